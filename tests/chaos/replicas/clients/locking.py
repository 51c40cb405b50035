"""Locking: two members of a group that consumes in order take turns locking queues.

A member holds a queue from the answer that grants the lock until it sends the unlock request, or
until it notices that its connection is lost, which releases its locks. Both times come from the
same clock.
"""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.chaos import topics
from tests.chaos.ledger import Ledger
from tests.support.raw_peer import RawPeer

GROUP = "lockers"
MEMBERS = ("lockers@one", "lockers@two")
HELD_S = (0.05, 1.5)
PAUSE_S = 0.1
NOTICED_WITHIN_S = 2.0
"""How much earlier the broker may notice the end of a connection than the member does."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A queue that a member held."""

    member: str
    queue_id: int
    from_s: float
    until_s: float


class Lockers:
    """Both members, from ``async with`` to its end."""

    def __init__(self, find_address: Callable[[], str], ledger: Ledger, dice: random.Random):
        self._find_address, self._ledger, self._dice = find_address, ledger, dice
        self.holdings: list[Holding] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._repeat(member)) for member in MEMBERS]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, member: str) -> None:
        while True:
            try:
                async with RawPeer(self._find_address()) as peer:
                    while True:
                        await self.take_a_turn(peer, member)
                        await asyncio.sleep(self._dice.uniform(0, 2 * PAUSE_S))
            except (OSError, EOFError) as error:  # a time-out is an OSError
                self._ledger.refused(error)
                await asyncio.sleep(PAUSE_S)

    async def take_a_turn(self, peer: RawPeer, member: str) -> None:
        """Lock one queue, hold it for a while, and unlock it.

        Raises:
            OSError: there was no answer in time.
            EOFError: the connection is lost.
        """
        queue_id = self._dice.randrange(topics.QUEUES)
        body = _body(member, queue_id)
        held_s = self._dice.uniform(*HELD_S)
        async with asyncio.timeout(2 * HELD_S[1]):
            answer = await peer.ask(RequestCode.LOCK_BATCH_MQ, body=body)
        if answer.code != ResponseCode.SUCCESS or not json.loads(answer.body)["lockOKMQSet"]:
            return
        from_s = self._ledger.now_s()
        try:
            async with asyncio.timeout(held_s):
                await peer.answer()  # no request is pending: only the end of the connection arrives
        except TimeoutError:
            until_s = self._ledger.now_s()
        except (OSError, EOFError):
            until_s = self._ledger.now_s() - NOTICED_WITHIN_S
            raise
        finally:
            self.holdings.append(Holding(member, queue_id, from_s, until_s))
        async with asyncio.timeout(2 * HELD_S[1]):
            await peer.ask(RequestCode.UNLOCK_BATCH_MQ, body=body)


def _body(member: str, queue_id: int) -> bytes:
    queue = {"topic": topics.ORDERED, "brokerName": "broker-a", "queueId": queue_id}
    return json.dumps({"consumerGroup": GROUP, "clientId": member, "mqSet": [queue]}).encode()
