"""Insiders: clients on the replicas' own hosts, which stay on their replica's side of a cut.

Each sends to its replica and reads from it, whether it leads or not. The answers of a deposed
master count as much as those of any other.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Self

from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.store.message_codec import decode_messages
from tests.chaos import topics
from tests.chaos.ledger import Kind, Ledger
from tests.chaos.replicas.network import Network
from tests.support.direct import pull_fields, send_fields
from tests.support.raw_peer import RawPeer

ANSWER_TIMEOUT_S = 4.0
PAUSE_S = 0.05
PAUSE_AFTER_REFUSAL_S = 0.2


class Insiders:
    """A client for each replica, from ``async with`` to its end; none if nothing can be cut."""

    def __init__(
        self, network: Network, addresses: Mapping[int, str], ledger: Ledger, dice: random.Random
    ) -> None:
        self._network, self._addresses = network, addresses
        self._ledger, self._dice = ledger, dice
        self.acknowledged = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        if self._network.is_cuttable:
            self._tasks = [asyncio.create_task(self._repeat(one)) for one in self._addresses]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, number: int) -> None:
        while True:
            try:
                inside = self._network.socket(f"r{number}")
                async with RawPeer(self._addresses[number], opened=inside) as peer:
                    while True:
                        await self.send_and_read(peer)
            except (OSError, EOFError) as error:  # a time-out is an OSError
                self._ledger.refused(error)
            await asyncio.sleep(PAUSE_AFTER_REFUSAL_S)

    async def send_and_read(self, peer: RawPeer) -> None:
        """Send one message and read the last ones of its queue. Raise OSError without an answer."""
        queue_id = self._dice.randrange(topics.QUEUES)
        fact, asked_s = self._ledger.expect(topics.PLAIN, Kind.PLAIN), self._ledger.now_s()
        pause_s, end = PAUSE_AFTER_REFUSAL_S, 0
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            fields = send_fields(topics.PLAIN, queue_id)
            answer = await peer.ask(RequestCode.SEND_MESSAGE, fields, fact.body)
        if answer.code == ResponseCode.SUCCESS:
            end, pause_s = int((answer.ext or {})["queueOffset"]), PAUSE_S
            self.acknowledged += 1
            self._ledger.acknowledged(fact)
            self._ledger.placed(fact, queue_id, end, asked_s)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            fields = pull_fields(topics.PLAIN, max(end - 4, 0), queue_id)
            answer = await peer.ask(RequestCode.PULL_MESSAGE, fields)
        for message in decode_messages(answer.body):
            self._ledger.saw(topics.PLAIN, queue_id, message.queue_offset, message.body)
        await asyncio.sleep(self._dice.uniform(0, 2 * pause_s))
