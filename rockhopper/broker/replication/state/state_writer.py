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
from collections.abc import Callable, Collection

import structlog

from rockhopper.broker.kernel.members.queue_locks import QueueKey
from rockhopper.broker.kernel.parts import ServingParts
from rockhopper.broker.kernel.scheduled.delay_journal import Pass
from rockhopper.broker.kernel.scheduled.timers.due import DueMessage
from rockhopper.broker.kernel.scheduled.timers.entries import SLOT_MS
from rockhopper.broker.kernel.state_channels import Channel
from rockhopper.broker.kernel.state_records import (
    PIECE_SIZE_BYTES,
    Entry,
    StateKind,
    encode_numbers,
    encode_slots,
    encode_table_entry,
    joined,
)
from rockhopper.broker.kernel.tables.json_table import JsonTable
from rockhopper.broker.kernel.tables.offset_journal import Change, encode_changes
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.name_server.values.kv_config import KeyValueTable
from rockhopper.broker.replication.state import applied
from rockhopper.broker.replication.state.kept_tables import KeptTables
from rockhopper.broker.replication.state.snapshot import pieces_of
from rockhopper.broker.replication.state.state_log import STATE_QUEUE_ID, StateLog
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.protocol import fastjson
from rockhopper.protocol.names import STATE_TOPIC

log = structlog.get_logger("broker.ha")

STATE_INTERVAL_MS = 100
_DROPPED = -1


class StateWriter:
    """Writes state while this broker leads; starts once the parts are open.

    Belongs to the event loop.
    """

    def __init__(
        self,
        parts: ServingParts,
        values: KeyValueTable | None = None,
        *,
        interval_ms: int = STATE_INTERVAL_MS,
        now_ms: Callable[[], int],
    ) -> None:
        """*values* are those of this process's name server, if there is one.

        *now_ms* is a monotonic clock that also advances while this process is suspended.
        """
        self._now_ms = now_ms
        self._due_ms: int | None = None
        """When the followers should have the gathered changes."""
        self._told: deque[tuple[int, int]] = deque()
        """Unconfirmed changes: the end of each in the log, and when it is due."""
        self._parts = parts
        self._store = parts.store
        self._kept = KeptTables(parts.tables, values)
        self._interval_ms = interval_ms
        self._log = StateLog(parts.store)
        self._timer: asyncio.TimerHandle | None = None
        self._changes: dict[tuple[str, int], int] = {}
        self._noted: dict[int, list[bytes]] = {}
        self._touched: dict[tuple[str, str], None] = {}
        self._locks: dict[tuple[str, QueueKey], str] = {}
        self._snapshot_at = 0
        self._min_offset = 0
        self._is_writing = False

    def begin(self) -> None:
        """Write a snapshot, and from now on every change.

        Raises:
            StoreError: the store accepts no writes now.
            OSError: the position of the followed state cannot be removed.
        """
        applied.remove(self._store.layout)
        self._is_writing = True
        self._parts.topics.put(
            TopicConfig(STATE_TOPIC, read_queue_nums=1, write_queue_nums=1, perm=0)
        )
        self.write_snapshot()
        self._hook()

    def write_snapshot(self) -> None:
        """Write a complete snapshot; blocks the loop.

        Raises StoreError: the snapshot does not count.
        """
        store = self._store
        self._tell()
        store.begin()
        self._min_offset, self._snapshot_at = (
            store.min_commit_log_offset,
            store.max_commit_log_offset,
        )
        first = store.tail(STATE_TOPIC, STATE_QUEUE_ID).next_offset
        for piece in pieces_of(self._parts, self._kept):
            self._log.stage([piece])
        store.commit()
        self._log.snapshot = first

    def _hook(self) -> None:
        parts, log = self._parts, self._log
        for name, table in self._kept.confirmed.items():
            table.on_entry = self._teller(name, table)
            table.confirmed = log.confirmed
        for name, table in self._kept.gathered.items():
            table.on_entry = self._gatherer(name)
        if (journal := parts.offsets.journal) is not None:
            journal.on_noted = self._committed
        parts.delayed.on_pass = self._delivers_level
        delivery = parts.timers.delivery
        delivery.on_pass, delivery.on_undone = self._delivers_timers, self._undone
        parts.locks.on_changed = self._locked
        parts.kernel.state.writer = self
        visibility = self._store.visibility
        visibility.on_deleted, visibility.on_purged = self._deleted, self._purged

    def _unhook(self) -> None:
        # Tables with confirmed changes keep their hook: after this, nothing is confirmed any more.
        parts = self._parts
        for table in self._kept.gathered.values():
            table.on_entry = _ignore
        if (journal := parts.offsets.journal) is not None:
            journal.on_noted = None
        delivery = parts.timers.delivery
        parts.delayed.on_pass = parts.locks.on_changed = None
        delivery.on_pass = delivery.on_undone = None

    async def stop(self) -> None:
        """Write the gathered changes and stop; return once they are replicated.

        Raises:
            StoreError: that took too long.
        """
        if self._is_writing:
            self._tell()
            self.drop()
            await self._log.confirmed()

    def drop(self) -> None:
        """Stop, and drop the gathered changes."""
        if self._is_writing:
            self._is_writing = False
            self._unhook()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._log.close()

    def write(self, kind: int, payload: bytes, channel: Channel, interval_ms: int) -> None:
        """Write a change of a feature's state to *channel*. Raises StoreError if STAGED."""
        match channel:
            case Channel.STAGED:
                self._log.stage([(kind, payload)])
            case Channel.GATHERED:
                if self._is_writing:
                    self._noted.setdefault(kind, []).append(payload)
                    self._soon(interval_ms)
            case _:
                self._log.note([(kind, payload)], alone=channel is Channel.ALONE)

    def flush(self) -> None:
        """Write the noted changes; no pass may be open."""
        self._log.flush()

    async def confirmed(self) -> None:
        """Return once followers have all noted changes. Raises NotReplicatedError, StoreError."""
        await self._log.confirmed()

    def _teller(self, table_name: str, table: JsonTable) -> Callable[[str], None]:
        # A follower must know a topic's queues before messages enter them.
        is_alone = table is self._kept.tables.topics

        def tell(name: str) -> None:
            payload = encode_table_entry(table_name, name, table.entry(name))
            self._log.note([(StateKind.ENTRY, payload)], alone=is_alone)

        return tell

    def _gatherer(self, table_name: str) -> Callable[[str], None]:
        def gather(name: str) -> None:
            self._touched[table_name, name] = None
            self._soon(self._interval_ms)

        return gather

    def _committed(self, change: Change) -> None:
        changes = self._changes
        place = change.key, change.queue_id
        if change.queue_id == _DROPPED:
            for other in [other for other in changes if other[0] == change.key]:
                del changes[other]
        changes.pop(place, None)
        changes[place] = change.offset
        self._soon(self._interval_ms)

    def _locked(self, group: str, queue: QueueKey, client_id: str) -> None:
        self._locks[group, queue] = client_id
        self._soon(self._interval_ms)

    def _soon(self, interval_ms: int) -> None:
        """Write the changes after half of the time in which the followers should have them."""
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
        self._gathered()
        self._log.flush()
        if self._due_ms is not None and not self._log.is_late:
            self._told.append((self._store.max_commit_log_offset, self._due_ms))
            self._due_ms = None

    def overdue_since_ms(self) -> int | None:
        """Return since when a change has been late at the followers; None if none is late.

        Answers that the master gave before that time survive its failure.
        """
        told, high_watermark = self._told, self._store.high_watermark
        while told and told[0][0] <= high_watermark:
            told.popleft()
        due = [due_ms for _, due_ms in told]
        if self._due_ms is not None:
            due.append(self._due_ms)
        if not due:
            return None
        due_ms = min(due)
        return due_ms if due_ms < self._now_ms() else None

    def _gathered(self) -> None:
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
        every = self._kept.gathered
        entries: list[Entry] = [
            (StateKind.ENTRY, encode_table_entry(table, name, every[table].entry(name)))
            for table, name in self._touched
        ]
        self._touched.clear()
        changes = [
            Change(key, queue_id, offset) for (key, queue_id), offset in self._changes.items()
        ]
        self._changes.clear()
        entries += joined(StateKind.OFFSETS, [encode_changes([change]) for change in changes])
        if self._locks:
            locks = [(group, *queue, client) for (group, queue), client in self._locks.items()]
            entries.append((StateKind.LOCKS, fastjson.dumps(locks).encode()))
            self._locks.clear()
        for kind, payloads in self._noted.items():
            entries += joined(kind, payloads)
        self._noted.clear()
        return entries

    def _is_snapshot_old(self) -> bool:
        """Return whether retention has deleted files, and would soon delete the newest snapshot."""
        min_offset = self._store.min_commit_log_offset
        file_size = self._parts.config.store.commit_log_file_size_bytes
        return min_offset > self._min_offset and self._snapshot_at < min_offset + file_size

    def _delivers_level(self, about: Pass) -> None:
        payload = encode_numbers(about.level, about.first_offset, about.end_offset)
        self._log.stage([(StateKind.DELAYED, payload)])

    def _delivers_timers(self, due: Collection[DueMessage]) -> None:
        self._log.stage([(StateKind.TIMERS, _slots_of(due))])

    def _undone(self, due: Collection[DueMessage]) -> None:
        self._log.note([(StateKind.TIMERS_UNDONE, _slots_of(due))])

    def _deleted(self, topics: Collection[str]) -> None:
        self._log.note([(StateKind.DELETED, fastjson.dumps(list(topics)).encode())], alone=True)

    def _purged(self, topics: Collection[str], end: int) -> None:
        self._log.note(
            [(StateKind.PURGED, fastjson.dumps([list(topics), end]).encode())], alone=True
        )


def _slots_of(due: Collection[DueMessage]) -> bytes:
    return encode_slots((message.due_ms // SLOT_MS, message.queue_offset) for message in due)


def _ignore(name: str) -> None:
    """Ignore the change."""
