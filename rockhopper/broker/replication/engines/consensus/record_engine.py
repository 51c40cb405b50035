"""An engine over any store that keeps one record and replaces it by compare-and-swap.

Such a store has no leases. So the leader renews its own lease by incrementing a beat, and the other
replicas watch whether the beat still changes (sightings.py). A swap that fails because of a beat,
or of another change that does not matter to the request, is retried on the current record. A swap
whose answer was lost is never retried.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from rockhopper.broker.replication.election.actions import Alter, Campaign
from rockhopper.broker.replication.election.replica_set import (
    Announcement,
    Leader,
    Replica,
    SetView,
    SwapOutcome,
)
from rockhopper.broker.replication.engines.consensus.complaints import Complaints
from rockhopper.broker.replication.engines.consensus.set_record import (
    MemberRecord,
    SetRecord,
    Stored,
    start_name,
)
from rockhopper.broker.replication.engines.consensus.sightings import Sightings
from rockhopper.broker.replication.engines.consensus.values import StartCount
from rockhopper.broker.replication.engines.engine import MEMBER_LEASE_MS, EngineError

SWAP_TRIES_MAX = 10


class RecordKeeper(Protocol):
    """The store of a set's record. Raises EngineError for any failure."""

    name: str
    """The store's name in messages to operators."""

    async def load(self) -> Stored:
        """Return the current record, never one older than an earlier answer."""

    async def swap(self, record: SetRecord, tag: str | None) -> str | None:
        """Replace the record that has *tag*; return the tag of the new one.

        None: the record has another tag, and nothing was changed. After an error it may have been
        changed.
        """

    async def store_member(self, member: MemberRecord) -> None:
        """Replace the stored announcement of a running replica; see Engine.announce."""

    async def remove_member(self, member: MemberRecord) -> None:
        """Remove a replica's stored announcement if the same process wrote it.

        Engine.withdraw explains this.
        """

    def snapshots(self) -> AsyncGenerator[Stored, None]:
        """Yield the current content, and again whenever it may have changed, until a failure."""

    async def close(self) -> None:
        """Cancel pending work."""


Change = Callable[[SetRecord], SetRecord | None]


class RecordEngine:
    """An Engine on top of a RecordKeeper."""

    def __init__(
        self,
        keeper: RecordKeeper,
        *,
        now_ms: Callable[[], float],
        lease_ms: int = 4000,
        retry_ms: int = 200,
        is_by_operator: bool = False,
    ) -> None:
        """*now_ms* is a monotonic clock.

        With *is_by_operator*, only the replica that an operator designated can lead.
        """
        self._keeper = keeper
        self._sightings = Sightings(now_ms)
        self._lease_ms = lease_ms
        self._retry_s = retry_ms / 1000
        self._is_by_operator = is_by_operator
        self._complaints = Complaints()
        self._version = 0
        """The largest version that was seen."""
        self._beat = secrets.randbits(32)
        self._own_name = secrets.token_hex(8)
        self._announced: MemberRecord | None = None
        self._is_closed = False

    async def read(self) -> SetView:
        """See Engine."""
        return self._view(await self._load())

    async def watch(self) -> AsyncGenerator[SetView, None]:
        """See Engine."""
        last: SetView | None = None
        while not self._is_closed:
            try:
                async with aclosing(self._keeper.snapshots()) as snapshots:
                    async for stored in snapshots:
                        view = self._view(stored)
                        if view != last:
                            last = view
                            yield view
                        if self._is_closed:
                            return
            except EngineError as error:
                self._tell("watch", error)
            await asyncio.sleep(self._retry_s)

    async def campaign(
        self, request: Campaign, leader: Leader
    ) -> tuple[SwapOutcome, SetView | None]:
        """See Engine."""

        def elect(record: SetRecord) -> SetRecord | None:
            held = record.leader if self._is_held(record) else None
            is_other = record.version != request.version or held not in (None, request.displaced)
            if is_other or self._find_designated(record) not in (None, leader.id):
                return None
            return record.with_state(request.state).grant_lease(leader)

        outcome, stored = await self._try_change("campaign", elect)
        return outcome, self._view(stored) if stored and outcome is SwapOutcome.DONE else None

    async def alter(self, request: Alter) -> tuple[SwapOutcome, int]:
        """See Engine."""

        def altered(record: SetRecord) -> SetRecord | None:
            return record.with_state(request.state) if record.version == request.version else None

        outcome, stored = await self._try_change("alter", altered)
        return outcome, stored.record.version if stored and outcome is SwapOutcome.DONE else 0

    async def renew(self, leader: Leader, version: int) -> SwapOutcome:
        """See Engine."""

        def renewed(record: SetRecord) -> SetRecord | None:
            if self._is_held(record):
                return record.grant_lease(leader) if record.leader == leader else None
            return record.grant_lease(leader) if record.version == version else None

        outcome, _ = await self._try_change("renew", renewed)
        return outcome

    async def announce(self, member: Announcement) -> None:
        """See Engine."""
        self._beat += 1
        self._announced = MemberRecord(member, self._beat)
        await self._keeper.store_member(self._announced)

    async def withdraw(self) -> None:
        """See Engine."""
        if self._announced:
            await self._keeper.remove_member(self._announced)

    async def count_start(self, replica: Replica, count: int) -> bool:
        """See Engine."""
        name, start = start_name(replica), StartCount(count=count, counted_by=self._own_name)

        def counted(record: SetRecord) -> SetRecord | None:
            known = record.starts.get(name)
            if known and known.count >= count:
                return None
            kept = replace(start, unknown=known.unknown if known else ())
            return record.with_start(replica, kept)

        _, stored = await self._change(counted)
        return stored.record.starts.get(name) == start

    async def resign(self, leader: Leader) -> None:
        """See Engine."""
        await self._change(
            lambda record: replace(record, leader=None) if record.leader == leader else None
        )

    async def close(self) -> None:
        """See Engine."""
        self._is_closed = True
        await self._keeper.close()

    async def _try_change(self, request: str, change: Change) -> tuple[SwapOutcome, Stored | None]:
        try:
            is_done, stored = await self._change(change)
        except EngineError as error:
            self._tell(request, error)
            return SwapOutcome.UNKNOWN, None
        return SwapOutcome.DONE if is_done else SwapOutcome.REFUSED, stored

    async def _change(self, change: Change) -> tuple[bool, Stored]:
        """Replace the record by the result of *change*, unless that is None.

        Return whether the record was replaced, and the current one.
        """
        for _ in range(SWAP_TRIES_MAX):
            stored = await self._load()
            record = change(stored.record)
            if record is None:
                return False, stored
            if (tag := await self._keeper.swap(record, stored.tag)) is not None:
                self._see(record)
                return True, replace(stored, record=record, tag=tag)
        raise EngineError(
            f"{self._keeper.name} was changed {SWAP_TRIES_MAX} times by other processes: retry "
            "later"
        )

    async def _load(self) -> Stored:
        seen = self._version
        stored = await self._keeper.load()
        if stored.record.version < seen:
            raise EngineError(
                f"{self._keeper.name} is older than the version seen before: was it restored "
                "from a backup, or deleted? If that was intended, restart this broker"
            )
        self._see(stored.record)
        return stored

    def _see(self, record: SetRecord) -> None:
        self._version = max(self._version, record.version)
        self._is_held(record)

    def _is_held(self, record: SetRecord) -> bool:
        """Return whether a replica holds the lease, as far as this process has observed."""
        mark = (record.leader, record.beat)
        return record.leader is not None and self._sightings.is_alive(
            "leader", mark, self._lease_ms
        )

    def _view(self, stored: Stored) -> SetView:
        record = stored.record
        self._see(record)
        members = {
            number: each.announcement
            for number, each in stored.members.items()
            if self._sightings.is_alive(
                f"member {number}", (each.announcement.incarnation, each.beat), MEMBER_LEASE_MS
            )
        }
        leader = record.leader if self._is_held(record) else None
        return SetView(record.state, record.version, leader, members, self._find_designated(record))

    def _find_designated(self, record: SetRecord) -> int | None:
        return record.designated or 0 if self._is_by_operator else record.designated

    def _tell(self, request: str, error: EngineError) -> None:
        if not self._is_closed:
            self._complaints.tell(request, error)
