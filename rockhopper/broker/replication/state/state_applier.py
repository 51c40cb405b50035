"""StateApplier: a follower's side of rmq_sys_rockhopper_state.

Records are applied in order, once they are in their queue, which ends at the confirmed offset. This
happens in slices of a few milliseconds. Only records marked *alone* are applied immediately, before
anything behind them is dispatched.

A replica that knows its applied position in this very log continues there. Any other replica (with
a copied log, or an ex-master) waits for the newest complete snapshot, and skips everything before
it.

    records    1 topic T, 2 snapshot, 3 offsets, 4 timers; applied.json says 3
    restart    the log has the record before 3: continues with 3
    seeded     the log was replaced: starts with the snapshot, record 2
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import structlog

from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.scheduled.delay_journal import Pass
from rockhopper.broker.kernel.state_records import (
    StateKind,
    StateRecord,
    StateRecordError,
    decode_document,
    decode_state,
    decode_table_entry,
)
from rockhopper.broker.replication.state import applied
from rockhopper.broker.replication.state.applied import Applied
from rockhopper.broker.replication.state.snapshot import Pieces
from rockhopper.broker.replication.state.state_log import STATE_QUEUE_ID
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetStatus
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import STATE_TOPIC
from rockhopper.protocol.store.message_codec import decode_message, decode_messages
from rockhopper.protocol.sys_flags import SYS_FLAG_BORN_HOST_V6
from rockhopper.tasks import run_in_background

log = structlog.get_logger("broker.ha")

SLICE_S = 0.004
SAVE_INTERVAL_S = 1.0
RETRY_S = 1.0
READ_COUNT = 32
NONE = -1
_TIMERS = StateKind.TIMERS_ALL, StateKind.TIMERS_MORE
_TABLES = StateKind.ENTRY, StateKind.DOCUMENT
_NO_SENSE = ValueError, KeyError, TypeError, AttributeError, struct.error


class _Todo(NamedTuple):
    kind: int
    payload: bytes
    log_offset: int


class FollowerState:
    """A follower's copy of its master's state, in the files that a broker opens.

    Each entry is applied in memory at once, and appended to its journal if it has one; ``save``
    writes the tables. Applying the same entries again, in order, changes nothing. Belongs to the
    event loop.
    """

    def __init__(self, store: MessageStore, tables: Tables) -> None:
        self._store = store
        self._states = tables.states
        self._by_kind = {kind: state for state in tables.states for kind in state.kinds}
        self._tables = {name: table for name, (table, _) in tables.replicated.items()}

    def open(self) -> None:
        """Read the files once the store is open; blocks.

        Raises:
            OSError: a file cannot be read or written.
            CorruptFileError: a table is damaged.
        """
        for state in self._states:
            state.follow(self._store)

    def apply(self, kind: int, payload: bytes, log_offset: int) -> None:
        """Apply one entry of the record at *log_offset*.

        Raises:
            StateRecordError: the entry is invalid, and is not applied.
            OSError: a file cannot be written.
        """
        state = self._by_kind.get(kind)
        if state is None and kind not in _TABLES:
            raise StateRecordError(
                f"this release does not know its kind {kind}: upgrade this replica"
            )
        try:
            if state is not None:
                state.apply(kind, payload, log_offset)
            elif kind == StateKind.ENTRY:
                self._apply_entry(payload)
            else:
                self._apply_document(payload)
        except (*_NO_SENSE, ProtocolError) as error:
            raise StateRecordError(f"its entry of kind {kind} is invalid: {error!r}") from error

    def _apply_entry(self, payload: bytes) -> None:
        table, name, value = decode_table_entry(payload)
        # A replica without a name server ignores the values of one.
        if table in self._tables:
            self._tables[table].take_entry(name, value)

    def _apply_document(self, payload: bytes) -> None:
        table, document = decode_document(payload)
        if table in self._tables:
            self._tables[table].take_copy(document)

    def catch_up(self) -> bool:
        """Process a part of the log; return whether there may be more. Raises OSError."""
        return any(state.catch_up() for state in self._states)

    async def save(self) -> None:
        """Write everything applied so far to disk. Raises OSError."""
        for table in self._tables.values():
            await table.saved()
        for state in self._states:
            await state.save()

    async def close(self) -> None:
        """Write everything to disk, for a broker to open; apply nothing more. Raises OSError."""
        for state in self._states:
            await state.leave()
        for table in self._tables.values():
            await table.saved()


class StateApplier:
    """Belongs to the event loop; the store must be open and the saving of tables started."""

    def __init__(self, store: MessageStore, tables: Tables) -> None:
        self._store = store
        self._passes = tables.delays.table.passes
        self.state = FollowerState(store, tables)
        self._todo: deque[_Todo] = deque()
        self._pieces = Pieces()
        self._next = 0
        self._last = 0, 0
        self._replicated_offset = 0
        # The writer whose snapshot has been applied, now or before the last start.
        self._whole_of: int | None = None
        self.problem: str | None = None
        """Why nothing can be applied now; None if it can."""
        self._handle: asyncio.Handle | None = None
        self._save_timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None
        self._is_open = False

    def open(self) -> None:
        """Read the files, and find the position to continue from; blocks.

        Raises:
            OSError: a file cannot be read or written.
            CorruptFileError: a table is damaged.
        """
        self.state.open()
        noted = applied.load(self._store.opened.layout)
        if noted is not None and self._is_here(noted):
            self._next, self._last = noted.queue_offset, (noted.log_offset, noted.writer)
            self._passes.update({level: Pass(level, *rest) for level, *rest in noted.passes})
            self._whole_of = noted.writer
        else:
            self._next = self._newest_snapshot()
        self._is_open = True
        self._store.dispatch.watchers[STATE_TOPIC] = self

    def _is_here(self, noted: Applied) -> bool:
        """Return whether this log contains the record that was applied last."""
        message = self._message(noted.queue_offset - 1)
        return (
            message is not None
            and message.commit_log_offset == noted.log_offset
            and decode_state(message.body).writer == noted.writer
        )

    def _newest_snapshot(self) -> int:
        """Return the start of the newest complete snapshot if the queue shows one.

        Otherwise return the beginning of the queue.
        """
        low, high = self._store.reading.queue_range(STATE_TOPIC, STATE_QUEUE_ID)
        newest = self._message(high - 1)
        begin = low if newest is None else decode_state(newest.body).snapshot
        return max(low, begin)

    def _message(self, queue_offset: int) -> StoredMessage | None:
        found = self._read(queue_offset, 1) if queue_offset >= 0 else []
        return found[0] if found and found[0].queue_offset == queue_offset else None

    def _read(self, queue_offset: int, count: int) -> list[StoredMessage]:
        result = self._store.reading.get_message(STATE_TOPIC, STATE_QUEUE_ID, queue_offset, count)
        return decode_messages(result.body) if result.status is GetStatus.FOUND else []

    @property
    def is_whole(self) -> bool:
        """Whether the state here is a complete one of a master; False before the first snapshot."""
        return self._whole_of is not None

    @property
    def next_queue_offset(self) -> int:
        """The offset of the first record that is not fully applied."""
        return self._next

    def apply_to(self, replicated_offset: int) -> None:
        """Apply dispatched records before *replicated_offset*, now or in later loop iterations."""
        self._replicated_offset = max(self._replicated_offset, replicated_offset)
        if self._is_open and self._handle is None:
            self._run()

    def arrived(self, topic: str, queue_id: int) -> None:
        """Apply a newly dispatched record at once if it is marked *alone*."""
        newest = self._message(self._store.reading.queue_range(topic, queue_id)[1] - 1)
        if newest is not None and _is_alone(newest):
            self._replicated_offset = max(self._replicated_offset, newest.commit_log_offset + 1)
            self._run(newest.queue_offset)

    def _run(self, through: int = NONE) -> None:
        """Continue for one slice, and at least to the end of the record *through*."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        stop_s = time.perf_counter() + SLICE_S
        loop = asyncio.get_running_loop()
        try:
            while more := self._step():
                is_through = self._next > through and not (self._todo and through != NONE)
                if is_through and time.perf_counter() >= stop_s:
                    break
        except (OSError, StoreError) as error:
            if self.problem is None:
                log.error("the master's state cannot be saved here", reason=str(error))
            self.problem = str(error)
            self._handle = loop.call_later(RETRY_S, self._run)
            return
        self.problem = None
        if more:
            self._handle = loop.call_soon(self._run)
        self._save_later()

    def _step(self) -> bool:
        """Do one step; return whether there may be more to do."""
        if self._todo:
            self._take(self._todo[0])
            self._todo.popleft()
            return True
        messages = self._read(self._next, READ_COUNT)
        if not messages:
            low = self._store.reading.queue_range(STATE_TOPIC, STATE_QUEUE_ID)[0]
            if self._next < low:
                self._lose(low)
                return True
        wanted = [m for m in messages if m.commit_log_offset < self._replicated_offset]
        for message in wanted:
            self._open_up(message)
        return bool(wanted) or self.state.catch_up()

    def _lose(self, queue_offset: int) -> None:
        log.warning("a part of the master's state has expired here; waiting for a snapshot")
        self._next, self._whole_of = queue_offset, None

    def _open_up(self, message: StoredMessage) -> None:
        """Queue the entries of a record that have to be applied."""
        log_offset = message.commit_log_offset
        self._next = message.queue_offset + 1
        record = self._decoded(message)
        if record is None:
            return
        self._last = log_offset, record.writer
        for kind, payload in record.entries:
            if kind == StateKind.SNAPSHOT:
                self._take_piece(payload, log_offset, record.writer)
            elif self.is_whole or _is_alone(message):
                self._todo.append(_Todo(kind, payload, log_offset))

    def _decoded(self, message: StoredMessage) -> StateRecord | None:
        try:
            return decode_state(message.body)
        except StateRecordError as error:
            self._tell(message.commit_log_offset, error)
            return None

    def _take_piece(self, payload: bytes, log_offset: int, writer: int) -> None:
        try:
            entries = self._pieces.append(payload)
        except StateRecordError as error:
            self._tell(log_offset, error)
            return
        for kind, content in entries or ():
            # A follower of this master's whole term already knows the timers, which are many.
            if kind not in _TIMERS or self._whole_of != writer:
                self._todo.append(_Todo(kind, content, log_offset))
        if entries is not None:
            self._whole_of = writer

    def _take(self, todo: _Todo) -> None:
        try:
            self.state.apply(*todo)
        except StateRecordError as error:
            self._tell(todo.log_offset, error)

    def _tell(self, log_offset: int, error: StateRecordError) -> None:
        log.error(
            "skipping an invalid record of the master's state",
            log_offset=log_offset,
            reason=str(error),
        )

    def _save_later(self) -> None:
        if self._save_timer is None and self._is_open:
            loop = asyncio.get_running_loop()
            self._save_timer = loop.call_later(SAVE_INTERVAL_S, self._begin_to_save)

    def _begin_to_save(self) -> None:
        self._save_timer = None
        if self._saving is not None or self._todo or self._pieces:
            # Reschedule: no further record may arrive to trigger another attempt.
            self._save_later()
        elif self.is_whole and self._is_open:
            self._saving = run_in_background(self._save(), "saving the state")

    async def saved(self) -> None:
        """Return once the applied state and its position are on disk."""
        if self._saving is None:
            self._begin_to_save()
        if self._saving is not None:
            await asyncio.shield(self._saving)

    async def _save(self) -> None:
        passes = [(p.level, p.first_offset, p.end_offset, p.log_end) for p in self._passes.values()]
        place = Applied(self._next, *self._last, passes)
        try:
            await self.state.save()
            await asyncio.to_thread(applied.save, self._store.opened.layout, place)
        except OSError as error:
            log.warning(
                "the replication position of this replica cannot be saved", reason=str(error)
            )
            self._save_later()
        finally:
            self._saving = None

    async def finish(self) -> None:
        """Apply everything in the log, and write the files that a broker opens.

        Call this before the parts are open. Nothing is applied afterwards.

        Raises:
            OSError: a file cannot be written.
        """
        await self._end()
        self._replicated_offset = self._store.log.written_offset
        while self._step():
            pass
        for message in self._iterate_undispatched():
            self._open_up(message)
            while self._todo:
                self._take(self._todo.popleft())
        if not self.is_whole and self._store.reading.queue_range(STATE_TOPIC, STATE_QUEUE_ID)[1]:
            log.error(
                "this replica starts to lead without a complete copy of the master's state: "
                "check its topics"
            )
        applied.remove(self._store.opened.layout)
        await self.state.close()

    def _iterate_undispatched(self) -> Iterator[StoredMessage]:
        for record in self._store.reading.records_from(self._store.dispatch.offset):
            message = decode_message(record)
            if message.topic == STATE_TOPIC and message.queue_offset == self._next:
                yield message

    async def close(self) -> None:
        """Stop following, and store the applied position. Raises OSError."""
        await self._end()
        while self._todo:
            self._take(self._todo.popleft())
        if self.is_whole and not self._pieces:
            await self._save()
        await self.state.close()

    async def _end(self) -> None:
        self._is_open = False
        self._store.dispatch.watchers.pop(STATE_TOPIC, None)
        for handle in (self._handle, self._save_timer):
            if handle is not None:
                handle.cancel()
        self._handle = self._save_timer = None
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)


def _is_alone(message: StoredMessage) -> bool:
    return bool(message.sys_flag & SYS_FLAG_BORN_HOST_V6)
