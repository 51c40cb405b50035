"""Administering: a load of a replica set, in addition to that of one broker.

It creates topics, and a group commits offsets and reads them back together with the end offsets of
queues. Neither may decrease, except for changes that had hardly been replicated when a fault began.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self

from rockhopper.client import Admin, ClientError
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.codes import RequestCode
from tests.chaos import topics
from tests.chaos.ledger import Commit, Ledger

REQUEST_TIMEOUT_S = 4.0
LOOKERS = "lookers"
PAUSE_S = 0.1
MOST_QUEUES = 2
QUEUE = MessageQueue(topics.PLAIN, "broker-a", 0)


@dataclass(frozen=True, slots=True)
class Look:
    """A read of a committed offset."""

    offset: int
    asked_s: float
    answered_s: float


@dataclass(slots=True)
class Records:
    """The acknowledged changes, and the values read."""

    topics: dict[str, int | None] = field(default_factory=dict)
    """Name -> the last number of queues, None once the topic is deleted.

    Topics with an unanswered change are excluded.
    """
    groups: list[str] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    """Commits of LOOKERS in QUEUE."""
    looks: list[Look] = field(default_factory=list)
    retractions: list[str] = field(default_factory=list)


class Administering:
    """The clients, from ``async with`` to its end."""

    def __init__(self, nameserver: str, ledger: Ledger, dice: random.Random) -> None:
        self._nameserver, self._ledger, self._dice = nameserver, ledger, dice
        self.records = Records()
        self._tasks: list[asyncio.Task[None]] = []
        self._end_offset = 0

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        admin = Admin(self._nameserver, request_timeout_s=REQUEST_TIMEOUT_S)
        self.admin = await self._stack.enter_async_context(admin)
        await self._create_group(LOOKERS)
        works = (
            self.create_topic,
            self.change_topic,
            self._create_some_group,
            self._commit,
            self._look_at_end,
        )
        self._tasks = [asyncio.create_task(self._repeat(work)) for work in works]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except (ClientError, OSError, TimeoutError) as error:
                self._ledger.refused(error)
            await asyncio.sleep(self._dice.uniform(0, 2 * PAUSE_S))

    async def create_topic(self) -> None:
        """Create one more topic."""
        name = f"made-{self._dice.randrange(1 << 30)}"
        if await self.admin.create_topic(name, queues=1):
            self.records.topics[name] = 1

    async def change_topic(self) -> None:
        """Increase a topic's number of queues, or delete the topic."""
        names = [name for name, queues in self.records.topics.items() if queues is not None]
        if not names:
            return
        name = self._dice.choice(names)
        before = self.records.topics.pop(name)
        if before == MOST_QUEUES and await self.admin.delete_topic(name):
            self.records.topics[name] = None
        elif before and await self.admin.create_topic(name, queues=before + 1):
            self.records.topics[name] = before + 1

    async def _create_some_group(self) -> None:
        await self._create_group(f"made-{self._dice.randrange(1 << 30)}")

    async def _create_group(self, name: str) -> None:
        body = json.dumps({"groupName": name}).encode()
        for master in await self.admin.masters():
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await self.admin.request(master.address, code, body=body)
            self.records.groups.append(name)

    async def _commit(self) -> None:
        await self.look()
        commits = self.records.commits
        now_s = self._ledger.now_s()
        commit = Commit(0, commits[-1].offset + 1 if commits else 1, now_s)
        commits.append(commit)
        await self.admin.offsets.commit(LOOKERS, QUEUE, commit.offset)
        commit.acknowledged_s = self._ledger.now_s()

    async def look(self) -> None:
        """Read the committed offset and note it. Raises ClientError."""
        asked_s = self._ledger.now_s()
        offset = await self.admin.offsets.committed(LOOKERS, QUEUE)
        self.records.looks.append(Look(offset or 0, asked_s, self._ledger.now_s()))

    async def _look_at_end(self) -> None:
        end = await self.admin.offsets.max_offset(QUEUE)
        if end < self._end_offset:
            self.records.retractions.append(
                f"{QUEUE} ended at {self._end_offset} and later at {end}"
            )
        self._end_offset = end
