"""What a replica asks an engine of consensus for, and an engine that lives in memory.

An engine keeps the state of a set, which changes by compare-and-swap only, a lease of whoever
leads, and what running replicas announce. Nothing rests on its leases: they may end early or late.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from rockhopper.broker.replication.election.actions import Alter, Campaign
from rockhopper.broker.replication.election.replica_set import (
    Announcement,
    Leader,
    Outcome,
    Replica,
    SetState,
    View,
)

MEMBER_LEASE_MS = 15_000
ENDED_AFTER_MS = MEMBER_LEASE_MS + 5000
"""A process that is announced for longer, beside another one, had not ended when that began."""


class EngineError(Exception):
    """The engine gave no usable answer; the message names who was asked and what was wrong."""


class Engine(Protocol):
    """One set, asked by one replica.

    What could not be asked raises EngineError, but for the three requests that answer UNKNOWN then:
    they are never repeated here, because they may have been done.
    """

    async def read(self) -> View:
        """What there is now, and never what there was before an earlier answer."""

    def watch(self) -> AsyncGenerator[View, None]:
        """What there is now, then what there is after each change; several may come as one.

        Goes on through every failure, until the engine is closed.
        """

    async def campaign(self, request: Campaign, leader: Leader) -> tuple[Outcome, View | None]:
        """Change the state and take the lease, both or neither; what that made, if it is DONE."""

    async def alter(self, request: Alter) -> tuple[Outcome, int]:
        """Change the state; the version that this made if it is DONE, else 0."""

    async def renew(self, leader: Leader, version: int) -> Outcome:
        """Renew the lease; one that is gone is given again if the state has *version* still."""

    async def announce(self, member: Announcement) -> None:
        """Tell of a running replica; to be repeated well within ``MEMBER_LEASE_MS``.

        Where its log ends may be told later, if nothing else of it has changed. Raises EngineError
        as well if the engine would refuse the writes of an election, though it answers reads.
        """

    async def withdraw(self) -> None:
        """Take back what was announced here, unless another process has announced itself since.

        For a process that has closed its store, and announces nothing more.
        """

    async def count_start(self, replica: Replica, count: int) -> bool:
        """Whether this is the latest start known of that store: else its disk is an old copy.

        After an error the same engine may be asked again with the same count.
        """

    async def resign(self, leader: Leader) -> None:
        """Give the lease back, if *leader* has it."""

    async def close(self) -> None:
        """Give up what is under way, without giving back any lease."""


@dataclass
class MemorySet:
    """What an engine keeps of one set. Times are of whichever clock its callers use, in ms."""

    lease_ms: int
    state: SetState | None = None
    version: int = 0
    leader: Leader | None = None
    lease_until_ms: float = 0.0
    members: dict[int, Announcement] = field(default_factory=dict)
    starts: dict[Replica, int] = field(default_factory=dict)
    watchers: list[Callable[[], None]] = field(default_factory=list)
    """Called after each change but the end of a lease, which the next read finds."""
    _members_until_ms: dict[int, float] = field(default_factory=dict)

    def read(self, now_ms: float) -> View:
        """What there is now, the ends of leases included."""
        if self.leader and now_ms >= self.lease_until_ms:
            self.leader = None
        for number in list(self.members):
            if now_ms >= self._members_until_ms.get(number, math.inf):
                del self.members[number]
        return View(self.state, self.version, self.leader, dict(self.members))

    def campaign(self, request: Campaign, leader: Leader, now_ms: float) -> Outcome:
        """Do it if state and leader are what they were taken for."""
        held = self.read(now_ms).leader
        if request.version != self.version or (held and held != request.displaced):
            return Outcome.REFUSED
        self.state, self.leader = request.state, leader
        self.version += 1
        self._grant(now_ms)
        self._changed()
        return Outcome.DONE

    def alter(self, request: Alter) -> Outcome:
        """Do it if the state is what it was taken for."""
        if request.version != self.version:
            return Outcome.REFUSED
        self.state = request.state
        self.version += 1
        self._changed()
        return Outcome.DONE

    def renew(self, leader: Leader, version: int, now_ms: float) -> Outcome:
        """Renew, or give the lease again if nobody was elected."""
        held = self.read(now_ms).leader
        if held != leader and (held or version != self.version):
            return Outcome.REFUSED
        self.leader = leader
        self._grant(now_ms)
        if not held:
            self._changed()
        return Outcome.DONE

    def announce(self, member: Announcement, now_ms: float) -> None:
        """Keep it for ``MEMBER_LEASE_MS``."""
        self.members[member.replica.id] = member
        self._members_until_ms[member.replica.id] = now_ms + MEMBER_LEASE_MS
        self._changed()

    def withdraw(self, member: Announcement) -> None:
        """Forget that process, if it is the one that is announced."""
        held = self.members.get(member.replica.id)
        if held and held.incarnation == member.incarnation:
            del self.members[member.replica.id]
            self._changed()

    def count_start(self, replica: Replica, count: int) -> bool:
        """Whether no later start of that store is known."""
        is_later = self.starts.get(replica, 0) < count
        if is_later:
            self.starts[replica] = count
        return is_later

    def resign(self, leader: Leader) -> None:
        """End the lease, if it is that leader's."""
        if self.leader == leader:
            self.leader = None
            self._changed()

    def _grant(self, now_ms: float) -> None:
        self.lease_until_ms = now_ms + self.lease_ms

    def _changed(self) -> None:
        for watcher in list(self.watchers):
            watcher()


class MemoryEngine:
    """An engine for tests, and for a set of one process: what it keeps ends with the process."""

    def __init__(self, memory: MemorySet, now_ms: Callable[[], float]) -> None:
        """Serve one replica; those of a set share *memory* and a clock that never goes back."""
        self._memory = memory
        self._now_ms = now_ms
        self._announced: Announcement | None = None
        self._is_closed = False

    async def read(self) -> View:
        """See Engine."""
        return self._memory.read(self._now_ms())

    async def watch(self) -> AsyncGenerator[View, None]:
        """See Engine; the end of a lease alone is no change."""
        changed = asyncio.Event()
        self._memory.watchers.append(changed.set)
        try:
            while not self._is_closed:
                changed.clear()
                yield self._memory.read(self._now_ms())
                await changed.wait()
        finally:
            self._memory.watchers.remove(changed.set)

    async def campaign(self, request: Campaign, leader: Leader) -> tuple[Outcome, View | None]:
        """See Engine."""
        outcome = self._memory.campaign(request, leader, self._now_ms())
        return outcome, await self.read() if outcome is Outcome.DONE else None

    async def alter(self, request: Alter) -> tuple[Outcome, int]:
        """See Engine."""
        outcome = self._memory.alter(request)
        return outcome, self._memory.version if outcome is Outcome.DONE else 0

    async def renew(self, leader: Leader, version: int) -> Outcome:
        """See Engine."""
        return self._memory.renew(leader, version, self._now_ms())

    async def announce(self, member: Announcement) -> None:
        """See Engine."""
        self._announced = member
        self._memory.announce(member, self._now_ms())

    async def withdraw(self) -> None:
        """See Engine."""
        if self._announced:
            self._memory.withdraw(self._announced)

    async def count_start(self, replica: Replica, count: int) -> bool:
        """See Engine."""
        return self._memory.count_start(replica, count)

    async def resign(self, leader: Leader) -> None:
        """See Engine."""
        self._memory.resign(leader)

    async def close(self) -> None:
        """End what watches through this engine."""
        self._is_closed = True
        for watcher in list(self._memory.watchers):
            watcher()
