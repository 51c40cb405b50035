"""What a replica requires of a consensus engine, and an in-memory engine.

An engine stores the state of a set, which changes only by compare-and-swap, the leader's lease, and
the announcements of running replicas. Safety does not depend on its leases: they may end early or
late.
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
    Replica,
    SetState,
    SetView,
    SwapOutcome,
)

MEMBER_LEASE_MS = 15_000
ENDED_AFTER_MS = MEMBER_LEASE_MS + 5000
"""If two processes announce one replica for longer, both run at the same time."""


class EngineError(Exception):
    """The engine returned no usable answer; the message names the endpoint and the cause."""


class Engine(Protocol):
    """The engine of one set, used by one replica.

    A request that fails raises EngineError, except for the three requests that return UNKNOWN
    instead. The engine never repeats these, because they may have been executed.
    """

    async def read(self) -> SetView:
        """Return the current view, never one older than an earlier answer."""

    def watch(self) -> AsyncGenerator[SetView, None]:
        """Yield the current view, then one after each change; several changes may be combined.

        Continues after every failure, until the engine is closed.
        """

    async def campaign(
        self, request: Campaign, leader: Leader
    ) -> tuple[SwapOutcome, SetView | None]:
        """Change the state and take the lease, both or neither; return the new view if DONE."""

    async def alter(self, request: Alter) -> tuple[SwapOutcome, int]:
        """Change the state; return the new version if DONE, else 0."""

    async def renew(self, leader: Leader, version: int) -> SwapOutcome:
        """Renew the lease; a lost lease is granted again if the state still has *version*."""

    async def announce(self, member: Announcement) -> None:
        """Announce a running replica; repeat this well within ``MEMBER_LEASE_MS``.

        The engine may store a new log end later if nothing else has changed. It also raises
        EngineError if it answers reads but would refuse the writes of an election.
        """

    async def withdraw(self) -> None:
        """Remove this process's announcement, unless another process has announced itself since.

        For a process that has closed its store and announces nothing more.
        """

    async def count_start(self, replica: Replica, count: int) -> bool:
        """Return whether this is the latest known start of that store.

        If not, its disk is an old copy. After an error the same engine may be asked again with the
        same count.
        """

    async def resign(self, leader: Leader) -> None:
        """Release the lease if *leader* holds it."""

    async def close(self) -> None:
        """Cancel pending requests, without releasing any lease."""


@dataclass
class MemorySet:
    """The content of an in-memory engine for one set. Times are in ms of the callers' clock."""

    lease_ms: int
    state: SetState | None = None
    version: int = 0
    leader: Leader | None = None
    lease_until_ms: float = 0.0
    members: dict[int, Announcement] = field(default_factory=dict)
    starts: dict[Replica, int] = field(default_factory=dict)
    watchers: list[asyncio.Event] = field(default_factory=list)
    """Set after each change, except the expiry of a lease, which the next read detects."""
    _members_until_ms: dict[int, float] = field(default_factory=dict)

    def read(self, now_ms: float) -> SetView:
        """Return the current view, after expiring leases."""
        if self.leader and now_ms >= self.lease_until_ms:
            self.leader = None
        for number in list(self.members):
            if now_ms >= self._members_until_ms.get(number, math.inf):
                del self.members[number]
        return SetView(self.state, self.version, self.leader, dict(self.members))

    def campaign(self, request: Campaign, leader: Leader, now_ms: float) -> SwapOutcome:
        """Elect *leader* if the state and the lease are as the request assumes."""
        held = self.read(now_ms).leader
        if request.version != self.version or (held and held != request.displaced):
            return SwapOutcome.REFUSED
        self.state, self.leader = request.state, leader
        self.version += 1
        self._grant(now_ms)
        self._changed()
        return SwapOutcome.DONE

    def alter(self, request: Alter) -> SwapOutcome:
        """Change the state if it has the version that the request assumes."""
        if request.version != self.version:
            return SwapOutcome.REFUSED
        self.state = request.state
        self.version += 1
        self._changed()
        return SwapOutcome.DONE

    def renew(self, leader: Leader, version: int, now_ms: float) -> SwapOutcome:
        """Renew the lease, or grant it again if no replica was elected since."""
        held = self.read(now_ms).leader
        if held != leader and (held or version != self.version):
            return SwapOutcome.REFUSED
        self.leader = leader
        self._grant(now_ms)
        if not held:
            self._changed()
        return SwapOutcome.DONE

    def announce(self, member: Announcement, now_ms: float) -> None:
        """Store the announcement for ``MEMBER_LEASE_MS``."""
        self.members[member.replica.id] = member
        self._members_until_ms[member.replica.id] = now_ms + MEMBER_LEASE_MS
        self._changed()

    def withdraw(self, member: Announcement) -> None:
        """Remove the announcement if it belongs to that process."""
        held = self.members.get(member.replica.id)
        if held and held.incarnation == member.incarnation:
            del self.members[member.replica.id]
            self._changed()

    def count_start(self, replica: Replica, count: int) -> bool:
        """Record the start number *count* of a replica; return whether it is the highest so far."""
        is_later = self.starts.get(replica, 0) < count
        if is_later:
            self.starts[replica] = count
        return is_later

    def resign(self, leader: Leader) -> None:
        """Release the lease if that leader holds it."""
        if self.leader == leader:
            self.leader = None
            self._changed()

    def _grant(self, now_ms: float) -> None:
        self.lease_until_ms = now_ms + self.lease_ms

    def _changed(self) -> None:
        for watcher in self.watchers:
            watcher.set()


class MemoryEngine:
    """An engine for tests, and for a set within one process: its content ends with the process."""

    def __init__(self, memory: MemorySet, now_ms: Callable[[], float]) -> None:
        """Serve one replica; the replicas of a set share *memory* and a monotonic clock."""
        self._memory = memory
        self._now_ms = now_ms
        self._announced: Announcement | None = None
        self._is_closed = False

    async def read(self) -> SetView:
        """See Engine."""
        return self._memory.read(self._now_ms())

    async def watch(self) -> AsyncGenerator[SetView, None]:
        """See Engine; the expiry of a lease alone is not a change."""
        changed = asyncio.Event()
        self._memory.watchers.append(changed)
        try:
            while not self._is_closed:
                changed.clear()
                yield self._memory.read(self._now_ms())
                await changed.wait()
        finally:
            self._memory.watchers.remove(changed)

    async def campaign(
        self, request: Campaign, leader: Leader
    ) -> tuple[SwapOutcome, SetView | None]:
        """See Engine."""
        outcome = self._memory.campaign(request, leader, self._now_ms())
        return outcome, await self.read() if outcome is SwapOutcome.DONE else None

    async def alter(self, request: Alter) -> tuple[SwapOutcome, int]:
        """See Engine."""
        outcome = self._memory.alter(request)
        return outcome, self._memory.version if outcome is SwapOutcome.DONE else 0

    async def renew(self, leader: Leader, version: int) -> SwapOutcome:
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
        """End the watches of this engine."""
        self._is_closed = True
        for watcher in self._memory.watchers:
            watcher.set()
