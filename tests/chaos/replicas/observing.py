"""Observer: queries every replica's status repeatedly, and notes who leads in each epoch."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Self

from rockhopper.client.admin.admin import Admin
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.raw_peer import RawPeer

INTERVAL_S = 0.2
ANSWER_TIMEOUT_S = 1.0
SETTLED_WITHIN_S = 60.0
"""Ten times the usual time on an idle machine."""
SWITCHED_WITHIN_S = 10.0
PUT_BACK_SAYS = "the engine was restored from a backup"
MEANT = "this machine's clock is", "nothing is stored"
"""Parts of alarms that the nemesis causes: it sets clocks and kills replicas."""

Status = dict[str, Any]


class Observer:
    """One task for each replica, from ``async with`` to its end."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._addresses = addresses
        self._tasks: list[asyncio.Task[None]] = []
        self._told = asyncio.Event()
        self.statuses: dict[int, Status] = {}
        """The last status of each replica; replicas that did not answer are absent."""
        self.leaders: dict[int, set[int]] = defaultdict(set)
        """Epoch -> the replicas that were seen to lead in it."""
        self.alarms: set[str] = set()
        self.epoch_fell: list[str] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._ask_on(number)) for number in self._addresses]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def master(self) -> int | None:
        """The leader according to the newest epoch, if any replica reports one."""
        leading = [
            (status["epoch"], number)
            for number, status in self.statuses.items()
            if status["role"] == "leading"
        ]
        return max(leading)[1] if leading else None

    @property
    def master_address(self) -> str:
        """The address for requests that only the master serves; of any replica while none leads."""
        return self._addresses[self.master or next(iter(self._addresses))]

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the replicas' statuses satisfy *condition*.

        Raises:
            TimeoutError: they did not; the text has *what*, and the statuses.
        """
        try:
            async with asyncio.timeout(SETTLED_WITHIN_S):
                while not condition():
                    for task in self._tasks:
                        if task.done():
                            await task  # raises: no task queries it any more
                    self._told.clear()
                    await self._told.wait()
        except TimeoutError:
            raise TimeoutError(f"not {what}: {json.dumps(self.statuses)}") from None

    async def switch(self) -> None:
        """Ask the master to hand over, and wait until another replica leads."""
        before = self.master
        async with Admin() as admin:
            await admin.request(
                self.master_address,
                RequestCode.CHANGE_REPLICA_SET,
                {"action": "switch"},
                timeout_s=SWITCHED_WITHIN_S,
            )
        await self.until(lambda: self.master not in (None, before), "led by another")

    async def settle(self) -> None:
        """Wait until all are in sync; meanwhile do what alarms ask of an operator.

        A replica that saw a change of the set in an engine restored from a backup stays out when
        the engine has its own data again. The leader seeds it.
        """
        seeded: set[int] = set()
        while True:
            await self.until(
                lambda: self.is_whole_set() or bool(self._apart() - seeded),
                "complete after the faults",
            )
            if self.is_whole_set():
                return
            async with Admin() as admin:
                for number in self._apart() - seeded:
                    seeded.add(number)
                    await admin.request(
                        self._addresses[number],
                        RequestCode.CHANGE_REPLICA_SET,
                        {"action": "reseed"},
                        timeout_s=SWITCHED_WITHIN_S,
                    )

    def _apart(self) -> set[int]:
        """Return replicas that do not follow another leader because of the engine's old data."""
        return {
            number
            for number, status in self.statuses.items()
            if self.master not in (None, number)
            and any(PUT_BACK_SAYS in alarm for alarm in status["alarms"])
        }

    def is_led(self) -> bool:
        """Return whether a replica leads."""
        return self.master is not None

    def is_whole_set(self) -> bool:
        """Return whether all are in sync."""
        master = self.statuses.get(self.master or 0)
        in_sync = [each["id"] for each in master["replicas"] if each["isInSync"]] if master else []
        return len(in_sync) == len(self._addresses)

    def is_whole(self) -> bool:
        """Return whether all are in sync and have the master's log and replicated offset."""
        master = self.statuses.get(self.master or 0)
        if master is None or len(self.statuses) < len(self._addresses):
            return False
        end = master["logEnd"]
        return self.is_whole_set() and all(
            status["logEnd"] == status["confirmedOffset"] == end
            for status in self.statuses.values()
        )

    async def _ask_on(self, number: int) -> None:
        while True:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    peer = await RawPeer(self._addresses[number]).__aenter__()
                try:
                    while True:
                        async with asyncio.timeout(ANSWER_TIMEOUT_S):
                            answer = await peer.ask(RequestCode.GET_REPLICA_SET)
                        if answer.code != ResponseCode.SUCCESS:
                            break
                        status = json.loads(answer.body)
                        if status["id"] != number:
                            break  # The connection is passed on, like those of clients.
                        self.note(number, status)
                        await asyncio.sleep(INTERVAL_S)
                finally:
                    await peer.__aexit__()
            except (OSError, EOFError, TimeoutError):
                pass
            self.statuses.pop(number, None)
            self._told.set()
            await asyncio.sleep(INTERVAL_S)

    def note(self, number: int, status: Status) -> None:
        """Note a replica's status."""
        before = self.statuses.get(number)
        if before is not None:
            for what in ("promise", "epoch"):
                if before[what] > status[what]:
                    self.epoch_fell.append(
                        f"the {what} of replica {number} was {before[what]} and then "
                        f"{status[what]}, on one connection"
                    )
        self.statuses[number] = status
        if status["role"] == "leading" and status["masterId"] == number:
            self.leaders[status["epoch"]].add(number)
        self.alarms.update(
            f"replica {number}: {alarm}"
            for alarm in status["alarms"]
            if not any(each in alarm for each in MEANT)
        )
        self._told.set()
