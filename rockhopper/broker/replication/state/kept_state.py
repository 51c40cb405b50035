"""KeptState: a follower's copy of its master's state, in the files that a broker opens.

Each entry is applied in memory at once, and appended to its journal if it has one; ``save`` writes
the tables. Applying the same entries again, in order, changes nothing.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import structlog

from rockhopper.broker.kernel.members.queue_locks import FREE, LEASE_MS, QueueKey
from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.scheduled.delay_journal import DelayJournal, Pass
from rockhopper.broker.kernel.scheduled.timers.entries import ENTRY, TimerEntry
from rockhopper.broker.kernel.scheduled.timers.timers import Timers
from rockhopper.broker.kernel.state_records import (
    StateKind,
    StateRecordError,
    decode_document,
    decode_numbers,
    decode_slots,
    decode_table_entry,
)
from rockhopper.broker.kernel.tables.offset_journal import decode_changes
from rockhopper.broker.name_server.values.kv_config import KeyValueTable
from rockhopper.broker.replication.state.kept_tables import KeptTables
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol import fastjson
from rockhopper.protocol.errors import ProtocolError

log = structlog.get_logger("broker.ha")

_NO_SENSE = ValueError, KeyError, TypeError, AttributeError, struct.error


class KeptState:
    """A follower's copy of its master's state. Belongs to the event loop."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        values: KeyValueTable | None,
        timers: Timers,
        passed_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._tables = tables
        self.tables = KeptTables(tables, values)
        self._by_name = self.tables.every
        self.timers = timers
        self.passes: dict[int, Pass] = {}
        """The last pass of each delay level; the log shows how far it came."""
        self._passed_ms = passed_ms
        self.locks: OrderedDict[tuple[str, QueueKey], tuple[str, int]] = OrderedDict()
        """The owner of each locked queue, and the time of its record."""
        self._takers: dict[int, Callable[[bytes, int], None]] = {
            StateKind.ENTRY: self._take_entry,
            StateKind.DOCUMENT: self._take_document,
            StateKind.OFFSETS: self._take_offsets,
            StateKind.DELAYED: self._take_pass,
            StateKind.TIMERS: self._take_timers,
            StateKind.TIMERS_UNDONE: self._take_undone,
            StateKind.TIMERS_ALL: self._take_all_timers,
            StateKind.TIMERS_MORE: self._take_more_timers,
            StateKind.DELETED: self._take_deleted,
            StateKind.PURGED: self._take_purged,
            StateKind.ENDS: self._take_ends,
            StateKind.LOCKS: self._take_locks,
        }
        for state in tables.states:
            for kind in state.kinds:
                self._takers[kind] = partial(state.apply, kind)

    def open(self) -> None:
        """Read the files once the store is open; blocks.

        Raises:
            OSError: a file cannot be read or written.
            CorruptFileError: a table is damaged.
        """
        for state in self._tables.states:
            state.follow(self._store)
        self.timers.open()

    def apply(self, kind: int, payload: bytes, log_offset: int) -> None:
        """Apply one entry of the record at *log_offset*.

        Raises:
            StateRecordError: the entry is invalid, and is not applied.
            OSError: a file cannot be written.
        """
        taker = self._takers.get(kind)
        if taker is None:
            raise StateRecordError(
                f"this release does not know its kind {kind}: upgrade this replica"
            )
        try:
            taker(payload, log_offset)
        except (*_NO_SENSE, ProtocolError) as error:
            raise StateRecordError(f"its entry of kind {kind} is invalid: {error!r}") from error

    def follow(self) -> bool:
        """Index a part of the timers' queue; return whether there may be more. Raises OSError."""
        return self.timers.follow()

    def _take_entry(self, payload: bytes, log_offset: int) -> None:
        table, name, value = decode_table_entry(payload)
        # A replica without a name server ignores the values of one.
        if table in self._by_name:
            self._by_name[table].take_entry(name, value)

    def _take_document(self, payload: bytes, log_offset: int) -> None:
        table, document = decode_document(payload)
        if table in self._by_name:
            self._by_name[table].take_copy(document)
        if table == self._tables.delay_offsets.path.name:
            self.passes.clear()

    def _take_offsets(self, payload: bytes, log_offset: int) -> None:
        self._tables.offsets.take_changes(decode_changes(payload))

    def _take_pass(self, payload: bytes, log_offset: int) -> None:
        level, first_offset, end_offset = decode_numbers(payload, 3)
        # Everything before this pass is delivered; a promotion finds out how far the pass itself
        # came.
        self._tables.delay_offsets.put(level, first_offset)
        self.passes[level] = Pass(level, first_offset, end_offset, log_offset)

    def _take_timers(self, payload: bytes, log_offset: int) -> None:
        self.timers.delivered_elsewhere(decode_slots(payload), log_offset)

    def _take_undone(self, payload: bytes, log_offset: int) -> None:
        self.timers.index.undone_elsewhere(decode_slots(payload))

    def _take_all_timers(self, payload: bytes, log_offset: int) -> None:
        (queue_offset,) = decode_numbers(payload, 1)
        self.timers.take_all(queue_offset, log_offset)

    def _take_more_timers(self, payload: bytes, log_offset: int) -> None:
        self.timers.index.add(TimerEntry(*fields) for fields in ENTRY.iter_unpack(payload))

    def _take_deleted(self, payload: bytes, log_offset: int) -> None:
        deleted = self._store.visibility.delete_in_front_of(fastjson.loads(payload), log_offset)
        if deleted is not None:
            deleted.remove()

    def _take_purged(self, payload: bytes, log_offset: int) -> None:
        topics, end = fastjson.loads(payload)
        self._store.visibility.purge_in_front_of(topics, end)

    def _take_ends(self, payload: bytes, log_offset: int) -> None:
        deleted, purged = fastjson.loads(payload)
        visibility = self._store.visibility
        for topic, end in deleted.items():
            if topic in self._tables.topics:
                # The topic was created again, so its queues may contain later messages.
                visibility.purge_in_front_of([topic], end)
            elif (queues := visibility.delete_in_front_of([topic], end)) is not None:
                queues.remove()
        for topic, end in purged.items():
            visibility.purge_in_front_of([topic], end)

    def _take_locks(self, payload: bytes, log_offset: int) -> None:
        now_ms = self._passed_ms()
        for group, topic, broker, queue_id, client_id in fastjson.loads(payload):
            self.locks.pop((group, (topic, broker, queue_id)), None)
            if client_id != FREE:
                # The dictionary stays in the order of the records.
                self.locks[group, (topic, broker, queue_id)] = client_id, now_ms
        while self.locks and next(iter(self.locks.values()))[1] < now_ms - LEASE_MS:
            del self.locks[next(iter(self.locks))]

    async def save(self) -> None:
        """Write everything applied so far to disk. Raises OSError."""
        for table in self._by_name.values():
            await table.saved()
        await self.timers.save()

    async def close(self) -> None:
        """Write everything to disk, for a broker to open; apply nothing more. Raises OSError."""
        while self.timers.follow():
            pass
        self._note_passes()
        for state in self._tables.states:
            await state.leave()
        self._tables.subscriptions.begin_anew()
        for table in self._by_name.values():
            await table.saved()
        self.timers.leave()

    def _note_passes(self) -> None:
        layout = self._store.layout
        journal = DelayJournal(layout.own / "delay", layout.quarantine)
        journal.open()
        for about in self.passes.values():
            journal.note(about)
        journal.close()
