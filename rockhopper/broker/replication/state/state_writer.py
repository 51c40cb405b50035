"""StateWriter: replicates a master's state outside of messages while it leads.

It writes a snapshot first, then each change:

    at once, the answer waits   topics, groups, static topics, ids, request modes, sinks, values
                                of the name server; deletions and purges
    in the pass of the copies   deliveries of delay levels and timers
    25 ms later at most         pops, acknowledgements, revivals
    100 ms later at most        committed offsets, check counts, subscriptions, queue locks

It writes another snapshot before retention reaches the last one, so a complete log always contains
one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

import structlog

from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.state_channels import Channel, ReplicatedTable
from rockhopper.broker.kernel.state_records import (
    PIECE_SIZE_BYTES,
    Entry,
    StateKind,
    encode_table_entry,
    join,
)
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.replication.state import applied
from rockhopper.broker.replication.state.snapshot import pieces_of
from rockhopper.broker.replication.state.state_log import STATE_QUEUE_ID, StateLog
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.names import STATE_TOPIC

log = structlog.get_logger("broker.ha")

STATE_INTERVAL_MS = 100


class LeadingReplica(Protocol):
    """The replica that leads."""

    @property
    def leads_alone(self) -> bool:
        """Whether no other replica can lead now."""


class StateWriter:
    """Writes state while this broker leads; starts once the parts are open.

    Belongs to the event loop.
    """

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        leader: LeadingReplica,
        *,
        interval_ms: int = STATE_INTERVAL_MS,
        now_ms: Callable[[], int],
    ) -> None:
        """*now_ms* is a monotonic clock that also advances while this process is suspended."""
        self._now_ms = now_ms
        self._due_ms: int | None = None
        """When the followers should have the gathered changes."""
        self._told: deque[tuple[int, int]] = deque()
        """Unconfirmed changes: the end of each in the log, and when it is due."""
        self._store = store
        self._tables = tables
        self._leader = leader
        self._interval_ms = interval_ms
        self._log = StateLog(store)
        self._timer: asyncio.TimerHandle | None = None
        self._noted: dict[int, list[bytes]] = {}
        self._touched: dict[tuple[ReplicatedTable, str], None] = {}
        self._snapshot_at = 0
        self._min_offset = 0
        self.is_writing = False
        """See ChannelWriter."""

    def start(self) -> None:
        """Write a snapshot, and from now on every change.

        Raises:
            StoreError: the store accepts no writes now.
            OSError: the position of the followed state cannot be removed.
        """
        applied.remove(self._store.opened.layout)
        self.is_writing = True
        self._tables.topics.put(
            TopicConfig(STATE_TOPIC, read_queue_nums=1, write_queue_nums=1, perm=0)
        )
        self.write_snapshot()
        self._tables.channels.writer = self

    def write_snapshot(self) -> None:
        """Write a complete snapshot; blocks the loop.

        Raises StoreError: the snapshot does not count.
        """
        store = self._store
        self._tell()
        store.staging.read_clock()
        self._min_offset, self._snapshot_at = (
            store.log.min_offset,
            store.log.written_offset,
        )
        first = store.staging.tail(STATE_TOPIC, STATE_QUEUE_ID).next_offset
        for piece in pieces_of(self._tables):
            self._log.stage([piece])
        store.commit()
        self._log.snapshot = first

    async def stop(self) -> None:
        """Write the gathered changes and stop; return once they are replicated.

        Raises:
            StoreError: that took too long.
        """
        if self.is_writing:
            self._tell()
            self.drop()
            await self._log.wait_until_confirmed()

    def drop(self) -> None:
        """Stop, and drop the gathered changes.

        The channels keep this writer: after this, nothing is confirmed any more.
        """
        if self.is_writing:
            self.is_writing = False
            self._take_gathered()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._log.close()

    @property
    def leads_alone(self) -> bool:
        """See ChannelWriter."""
        return self._leader.leads_alone

    def write(self, kind: int, payload: bytes, channel: Channel, interval_ms: int) -> None:
        """See ChannelWriter."""
        match channel:
            case Channel.STAGED:
                if self.is_writing:
                    self._log.stage([(kind, payload)])
            case Channel.GATHERED:
                if self.is_writing:
                    self._noted.setdefault(kind, []).append(payload)
                    self.gather(interval_ms)
            case _:
                self._log.note([(kind, payload)], alone=channel is Channel.ALONE)

    def write_entry(self, table: ReplicatedTable, name: str, channel: Channel) -> None:
        """See ChannelWriter."""
        if channel is not Channel.GATHERED:
            entry = StateKind.ENTRY, encode_table_entry(table.path.name, name, table.entry(name))
            self._log.note([entry], alone=channel is Channel.ALONE)
        elif self.is_writing:
            self._touched[table, name] = None
            self.gather(0)

    def flush(self) -> None:
        """Write the noted changes; no pass may be open."""
        self._log.flush()

    async def wait_until_confirmed(self) -> None:
        """Return once followers have all noted changes. Raises NotReplicatedError, StoreError."""
        await self._log.wait_until_confirmed()

    def gather(self, interval_ms: int) -> None:
        """Write the changes after half of the time in which the followers should have them.

        *interval_ms* 0: as the settings have it.
        """
        interval_ms = interval_ms or self._interval_ms
        due_ms = self._now_ms() + interval_ms
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
        loop = asyncio.get_running_loop()
        due_s = loop.time() + interval_ms / 2000
        if self._timer is not None:
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due_s, self._tell_gathered)

    def _tell_gathered(self) -> None:
        self._timer = None
        self._tell()
        if self._is_snapshot_old():
            try:
                self.write_snapshot()
            except StoreError as error:
                log.warning("a snapshot for the replicas waits for the store", reason=str(error))

    def _tell(self) -> None:
        self._write_gathered()
        self._log.flush()
        if self._due_ms is not None and not self._log.is_late:
            self._told.append((self._store.log.written_offset, self._due_ms))
            self._due_ms = None

    def overdue_since_ms(self) -> int | None:
        """Return since when a change has been late at the followers; None if none is late.

        Answers that the master gave before that time survive its failure.
        """
        told, high_watermark = self._told, self._store.safe_point.high_watermark
        while told and told[0][0] <= high_watermark:
            told.popleft()
        due = [due_ms for _, due_ms in told]
        if self._due_ms is not None:
            due.append(self._due_ms)
        if not due:
            return None
        due_ms = min(due)
        return due_ms if due_ms < self._now_ms() else None

    def _write_gathered(self) -> None:
        """Note the gathered changes in records of bounded size."""
        size_bytes, told = 0, list[Entry]()
        for entry in self._take_gathered():
            if told and size_bytes + len(entry[1]) > PIECE_SIZE_BYTES:
                self._log.note(told)
                size_bytes, told = 0, []
            told.append(entry)
            size_bytes += len(entry[1])
        if told:
            self._log.note(told)

    def _take_gathered(self) -> list[Entry]:
        """Return the gathered changes as entries, and forget them."""
        entries: list[Entry] = [
            (StateKind.ENTRY, encode_table_entry(table.path.name, name, table.entry(name)))
            for table, name in self._touched
        ]
        self._touched.clear()
        for state in self._tables.states:
            entries += state.gathered()
        for kind, payloads in self._noted.items():
            entries += join(kind, payloads)
        self._noted.clear()
        return entries

    def _is_snapshot_old(self) -> bool:
        """Return whether retention has deleted files, and would soon delete the newest snapshot."""
        min_offset = self._store.log.min_offset
        file_size = self._tables.config.store.commit_log_file_size_bytes
        return min_offset > self._min_offset and self._snapshot_at < min_offset + file_size
