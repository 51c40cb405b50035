"""SetPresence: a replica's entry in the engine: its id, its starts and its announcements.

    claim      wait until no other process has this replica's id, neither announced nor leading
    count      count this start of the store; an engine that knows a later one detects an old copy
    announce   every few seconds, and soon after a change of anything but the log
    lose       stay out once another process is announced under the id, and claim it again

The identity of one process is its incarnation, `<id>-<store>-<starts>-<place>-<random>`. If a
process was restarted on the same store in the same place, the earlier process has ended, because
the new one holds the lock of the store. A copy of the store is in another place. A process that
finds an incarnation from another place cannot know whether that one still runs.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace

import structlog

from rockhopper.broker.replication.election.replica_disk import ReplicaDisk
from rockhopper.broker.replication.election.replica_set import (
    Announcement,
    Leader,
    Replica,
    SetView,
)
from rockhopper.broker.replication.engines.consensus.complaints import Complaints
from rockhopper.broker.replication.engines.engine import (
    ENDED_AFTER_MS,
    MEMBER_LEASE_MS,
    Engine,
    EngineError,
)
from rockhopper.broker.replication.shipping.engine_health import EngineHealth
from rockhopper.broker.replication.shipping.replica_log import ReplicaLog

log = structlog.get_logger("broker.ha")

ANNOUNCE_INTERVAL_S = 7.0
ANNOUNCE_AGAIN_S = 2.0
ENGINE_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The identity of one process."""

    id: int
    store: str
    starts: int
    place: str
    """ReplicaDisk explains the value."""
    token: str
    """Random, so that two copies in one place with equal start counts still differ."""

    def __str__(self) -> str:
        return f"{self.id}-{self.store}-{self.starts}-{self.place}-{self.token}"

    def comes_after(self, other: str) -> bool:
        """Return whether *other* is this process, or an earlier, ended one in the same place."""
        if other == str(self):
            return True
        parts = other.split("-")
        is_like_ours = len(parts) == 5 and parts[2].isdigit()
        if not is_like_ours or parts[:2] != [str(self.id), self.store]:
            return False
        return parts[3] == self.place and int(parts[2]) < self.starts


class SetPresence:
    """The entry of one replica in the engine. Belongs to the event loop."""

    def __init__(
        self,
        replica_id: int,
        replica_disk: ReplicaDisk,
        replica_log: ReplicaLog,
        engine: Engine,
        health: EngineHealth,
        now_ms: Callable[[], int],
    ) -> None:
        """*replica_disk* must already have counted this start."""
        self.me = Replica(replica_id, replica_disk.store)
        self._identity = Incarnation(
            replica_id,
            replica_disk.store[:8],
            replica_disk.starts,
            replica_disk.place,
            secrets.token_hex(4),
        )
        self.incarnation = str(self._identity)
        self.seen_view: SetView | None = None
        """The last view that was read to claim the id."""
        self.second_because = ""
        """Why this replica stays out: another process has the same id. Blank if none has."""
        self._log = replica_log
        self._engine = engine
        self._health = health
        self._now_ms = now_ms
        self._complaints = Complaints()
        self._announced: Announcement | None = None
        """The last announcement, apart from the log's end."""
        self._announce_at_s = 0.0

    def leader(self, epoch: int) -> Leader:
        """Return this process as the leader of an epoch."""
        return Leader(self.me.id, self.incarnation, epoch)

    async def claim(self) -> bool:
        """Wait while another process is announced as this replica, or leads as it.

        Other replicas cannot distinguish a copy of a disk from the original, so one's
        acknowledgements would count for the other's log. Return whether this disk is a copy: the
        other process has written messages that are missing here, or its announcement lasted longer
        than that of an ended process.
        """
        self._announced = None
        began_ms, other_end = self._now_ms(), 0
        while True:
            try:
                self.seen_view = view = await self._engine.read()
                other = self._other_in(view)
                self._health.answered()
            except EngineError as error:
                self._health.announced(error)
                self._complaints.tell("read", error)
            else:
                if not other:
                    has_waited, self.second_because = bool(self.second_because), ""
                    is_late = self._now_ms() - began_ms > ENDED_AFTER_MS
                    return has_waited and (is_late or other_end > self._log.end_offset)
                self._stay_out(other)
                if self.me.id in view.members:
                    other_end = max(other_end, view.members[self.me.id].log_end)
            await asyncio.sleep(ENGINE_PAUSE_S)

    def _other_in(self, view: SetView) -> str:
        """Return another process with this replica's id, except predecessors of this one."""
        member, leader = view.members.get(self.me.id), view.leader
        held = [member.incarnation] if member else []
        if leader and leader.id == self.me.id:
            held.append(leader.incarnation)
        return next((each for each in held if not self._identity.comes_after(each)), "")

    def _stay_out(self, other: str) -> None:
        if not self.second_because:
            log.warning(
                "another process is announced as this replica: waiting until it is gone",
                id=self.me.id,
                incarnation=self.incarnation,
                other=other,
            )
        self.second_because = (
            f"another process is announced as replica {self.me.id} ({other}): either an earlier "
            "one whose machine was killed, or one on a copy of its disk. This process waits "
            f"until the other has been gone for {MEMBER_LEASE_MS // 1000} s; if it still runs, "
            "stop one of the two"
        )

    async def count_start(self) -> bool:
        """Count this start; return False if the engine knows a later one: this disk is an old copy.

        Retries until the engine answers.
        """
        while True:
            try:
                is_latest = await self._engine.count_start(self.me, self._identity.starts)
                break
            except EngineError as error:
                self._health.announced(error)
                self._complaints.tell("count_start", error)
                await self._see_whether_it_answers()
                await asyncio.sleep(ENGINE_PAUSE_S)
        self._health.announced(None)
        return is_latest

    async def announce(self, member: Announcement) -> None:
        """Announce this replica if it is time, or if anything but its log has changed."""
        loop, told = asyncio.get_running_loop(), replace(member, log_end=0)
        if loop.time() < self._announce_at_s and told == self._announced:
            return
        try:
            await self._engine.announce(member)
            self._health.announced(None)
            self._announced = told
            self._announce_at_s = loop.time() + ANNOUNCE_INTERVAL_S
        except EngineError as error:
            self._health.announced(error)
            self._complaints.tell("announce", error)
            await self._see_whether_it_answers()
            self._announce_at_s = loop.time() + ANNOUNCE_AGAIN_S

    async def _see_whether_it_answers(self) -> None:
        """Distinguish an engine that refuses writes from one that is unreachable."""
        with contextlib.suppress(EngineError):
            await self._engine.read()
            self._health.answered()

    async def views(self) -> AsyncGenerator[SetView, None]:
        """Yield the set's views until another process is announced under this replica's id."""
        async for view in self._engine.watch():
            self._health.answered()
            member = view.members.get(self.me.id)
            if member and not self._identity.comes_after(member.incarnation):
                self._stay_out(member.incarnation)
                return
            yield view
