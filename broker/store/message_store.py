"""MessageStore: the door of the store.

Writing takes three steps, so that the messages of one read of a socket cost one system call:

    store.begin()                   one clock read for the pass
    store.stage(...)                any number of times: builds records, hands out queue offsets
    store.commit()                  one write, then dispatch to consume queues and index

Under SYNC_FLUSH dispatch waits until the records are durable, or a power cut could leave consumer
offsets beyond the end of the log; ``park`` keeps a producer's answer for as long.

Everything here belongs to the event loop's thread.  Three things run elsewhere: fsync
(flush.py), making the next file, and deleting old ones (retention.py).
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import structlog

from broker.config import FlushDiskType, StoreConfig
from broker.store import checkpoint as checkpoints
from broker.store.batch_consume_queue import BatchConsumeQueue
from broker.store.checkpoint import StoreCheckpoint
from broker.store.consume_queue import ConsumeQueue
from broker.store.encoding import PROPERTIES_SIZE_BYTES_MAX, encode_record, index_entries
from broker.store.errors import (
    DiskFullError,
    RecordTooLargeError,
    StoreBusyError,
    StoreError,
    StoreFailedError,
)
from broker.store.fast_encoding import encode_batch, encode_plain
from broker.store.flush import FlushService, FlushWork
from broker.store.get_result import GetResult, GetStatus
from broker.store.opening import OpenedStore
from broker.store.queue_tail import QueueTail, Run
from broker.store.reader import MessageReader
from broker.store.reput import ReputService
from broker.store.retention import RetentionService
from broker.store.tags_codes import TagsCodes
from protocol.errors import ProtocolError
from protocol.message_codec import check_record, decode_message
from protocol.properties import (
    PROPERTY_INNER_NUM,
    PROPERTY_KEYS,
    PROPERTY_UNIQUE_KEY,
    decode_properties,
)
from protocol.queue_layout import CONSUME_QUEUE_UNIT
from protocol.subscription import Subscription

log = structlog.get_logger("broker.store")

Release = Callable[[StoreError | None], None]

RELEASE_IDLE_INTERVAL_S = 60.0
QUERY_BODY_BYTES_MAX = 8 << 20
CATCH_UP_BYTES = 1 << 20


class PutResult(NamedTuple):
    """Where a message stands; ``end_offset`` is what must be flushed for it to be durable."""

    commit_log_offset: int
    queue_offset: int
    end_offset: int
    store_time_ms: int


class MessageToStore(NamedTuple):
    """One message as ``put`` takes it; *born_host* is 8 or 20 bytes as in the record."""

    topic: str
    queue_id: int
    body: bytes
    properties: str
    flag: int = 0
    sys_flag: int = 0
    born_time_ms: int = 0
    born_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class MessageStore:
    """One store directory, locked, recovered and open."""

    def __init__(
        self,
        config: StoreConfig,
        opened: OpenedStore,
        *,
        now_ms: Callable[[], int],
        batch_topic: Callable[[str], bool],
    ) -> None:
        self._config = config
        self._opened = opened
        self._now_ms = now_ms
        self._batch_topic = batch_topic
        self._log = opened.commit_log
        self._queues = opened.queues
        self._index = opened.index
        self._reader = MessageReader(
            opened.commit_log,
            opened.commit_log.written_offset,
            opened.memory_bytes,
            opened.resolve_ext,
        )
        self._tails: dict[tuple[str, int], QueueTail] = {}
        self._group: list[Run] = []
        self._run: Run | None = None
        self._awaiting_flush: deque[tuple[int, int, list[Run]]] = deque()
        self._parked: deque[tuple[int, float, Release]] = deque()
        self._behind: StoreError | None = None
        self.dispatched_offset = self._log.written_offset
        # Recovery has dispatched and synced everything up to here.
        self._dispatched_time_ms = opened.report.last_store_time_ms
        self._queue_flushed_time_ms = self._index_flushed_time_ms = self._dispatched_time_ms
        self._log.flushed_time_ms = self._dispatched_time_ms
        self.is_sync = config.flush_disk_type is FlushDiskType.SYNC
        self.failure: StoreFailedError | None = None
        self.disk_full_reason: str | None = None
        self.on_arrival: Callable[[QueueTail, int, int], None] = _ignore_arrival
        self.on_failure: Callable[[StoreFailedError], None] = _ignore_failure
        self._reput = ReputService(self.catch_up)
        self._flush = FlushService(
            FlushWork(self._log.flush, self._flush_derived_files, self._save_checkpoint),
            flush_interval_ms=config.flush_interval_ms,
            queue_flush_interval_ms=config.consume_queue_flush_interval_ms,
            queue_flush_thorough_interval_ms=config.consume_queue_flush_thorough_interval_ms,
            on_flushed=self._flushed,
            on_failure=self._failed,
        )
        self._retention: RetentionService | None = None
        self._timeouts: asyncio.TimerHandle | None = None
        self._release_idle_at_s = 0.0

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        now_ms: Callable[[], int],
        batch_topic: Callable[[str], bool] = lambda topic: False,
        delay_ms: Callable[[int], int] = lambda level: 1000,
        store_host: bytes = b"\x7f\0\0\1\0\0\x2a\x9f",
    ) -> "MessageStore":
        """Lock, load and recover a store directory; blocks until every record is dispatched.

        Raises:
            StoreLockedError: another process has it open.
            StoreError: it cannot be opened as it is; the message says what to do.
            OSError: a directory or file cannot be made or read.
        """
        opened = OpenedStore(
            config,
            now_ms=now_ms,
            store_host=store_host,
            tags_codes=TagsCodes(delay_ms),
            batch_topic=batch_topic,
        )
        return cls(config, opened, now_ms=now_ms, batch_topic=batch_topic)

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start flushing, catching up and deleting expired files; needs a running event loop."""
        self._flush.start()
        self._reput.start()
        self._retention = self._opened.make_retention(self._config, self._disk_full_changed)
        await self._retention.start()
        self._watch_timeouts()

    async def close(self) -> None:
        """Dispatch and flush everything, write the checkpoint, and say that the stop was clean.

        After a failed fsync nothing is flushed and ``abort`` stays, so that the next start reads
        from disk what is really there.
        """
        if self._timeouts is not None:
            self._timeouts.cancel()
        if self._retention is not None:
            await self._retention.stop()
        await self._reput.stop()
        self._flush.stop()
        if self.failure is None:
            try:
                self._finish()
            except OSError as error:
                self._failed(
                    StoreFailedError(f"the store could not be flushed at the end: {error}")
                )
            except StoreFailedError as error:
                self._failed(error)
        self._opened.close(clean=self.failure is None and self._behind is None)

    def _finish(self) -> None:
        self._flushed(self._log.flush())
        try:
            while self.catch_up():
                pass
        except (StoreError, OSError) as error:
            log.error("queues and index are behind the log and will be rebuilt", reason=str(error))
        for _ in self._flush_derived_files(True):
            pass
        self._save_checkpoint()

    # -- writing -------------------------------------------------------------------------------

    def tail(self, topic: str, queue_id: int) -> QueueTail:
        """Where the next message of a queue goes; the caller has validated topic and queue."""
        key = (topic, queue_id)
        tail = self._tails.get(key)
        if tail is None:
            queue = self._queues.get(topic, queue_id)
            tail = QueueTail(
                topic,
                queue_id,
                self._opened.next_queue_offset(topic, queue_id),
                is_batch=self._batch_topic(topic),
            )
            tail.consume_queue = queue
            self._tails[key] = tail
        return tail

    def check_writable(self) -> None:
        """Raise the StoreError that a producer must be told, if messages cannot be taken now."""
        if self.failure is not None:
            raise self.failure
        if self.disk_full_reason is not None:
            raise DiskFullError(self.disk_full_reason)
        if self._behind is not None:
            raise self._behind
        if self.is_sync and (
            self._log.written_offset - self._log.flushed_offset
            > self._config.flush_waiting_bytes_max
        ):
            raise StoreBusyError(
                f"[PC_SYNCHRONIZED]broker busy, start flow control for a while: more than "
                f"{self._config.flush_waiting_bytes_max >> 20} MiB wait for the disk"
            )

    @property
    def is_writable(self) -> bool:
        """Whether messages are taken now."""
        return self.failure is None and self.disk_full_reason is None and self._behind is None

    def begin(self) -> int:
        """Read the clock for this pass and return it: store times never go backwards."""
        now_ms = self._now_ms()
        commit_log = self._log
        if now_ms > commit_log.store_time_ms:
            commit_log.store_time_ms = now_ms
        return now_ms

    def stage_plain(
        self,
        tail: QueueTail,
        body: bytes,
        properties: str,
        suffix: bytes,
        flag: int,
        sys_flag: int,
        born_time_ms: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> tuple[int, str, bool] | None:
        """Add a producer's message to the pass, with *suffix* behind its properties.

        Returns its commit log offset, its unique key, and whether its producer waits for the disk;
        None if the message is not plain (encoding.py) and nothing happened.

        Raises:
            RecordTooLargeError, DiskFullError: this message is not in the pass; others still are.
        """
        commit_log = self._log
        while True:
            position = commit_log.staged_offset
            encoded = encode_plain(
                tail.constants,
                position,
                tail.next_offset,
                commit_log.store_time_ms,
                commit_log.store_host,
                body,
                properties,
                suffix,
                flag,
                sys_flag,
                born_time_ms,
                born_host,
                reconsume_times,
            )
            if encoded is None:
                return None
            record, unit, entries, unique_key, waits = encoded
            if commit_log.add(record):
                break
            self._run = None
        run = self._run
        if run is None or run.tail is not tail:
            run = self._open_run(tail, position)
        run.units.append(unit)
        run.entries += entries
        run.count += 1
        run.end = commit_log.staged_offset
        tail.next_offset += 1
        return position, unique_key, waits

    def stage_batch(
        self, tail: QueueTail, body: bytes, sys_flag: int, born_time_ms: int, born_host: bytes
    ) -> list[int] | None:
        """Add the messages of a batch body, each as a record of its own; return their log offsets.

        None if the batch is not plain or malformed and nothing happened.

        Raises:
            RecordTooLargeError, DiskFullError: nothing of the batch is in the pass.
        """
        commit_log = self._log
        while True:
            position = commit_log.staged_offset
            encoded = encode_batch(
                tail.constants,
                position,
                tail.next_offset,
                commit_log.store_time_ms,
                commit_log.store_host,
                body,
                sys_flag,
                born_time_ms,
                born_host,
            )
            if encoded is None:
                return None
            records, units, entries, positions = encoded
            if commit_log.add(records):
                break
            self._run = None
        run = self._run
        if run is None or run.tail is not tail:
            run = self._open_run(tail, position)
        run.units.append(units)
        run.entries += entries
        run.count += len(positions)
        run.end = commit_log.staged_offset
        tail.next_offset += len(positions)
        return positions

    def stage(
        self,
        tail: QueueTail,
        body: bytes,
        properties: dict[str, str],
        flag: int,
        sys_flag: int,
        born_time_ms: int,
        born_host: bytes,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        batch_count: int = 0,
    ) -> int:
        """Add any message to the pass and return its commit log offset.

        Its queue offset is the tail's next one.  *batch_count* is the number of messages in a
        record that holds a batch, for topics of type BatchCQ.

        Raises:
            RecordTooLargeError, DiskFullError: this message is not in the pass; others still are.
        """
        commit_log = self._log
        text = join_properties(properties).encode("utf-8", "replace")
        if len(text) > PROPERTIES_SIZE_BYTES_MAX:
            raise RecordTooLargeError(
                f"the properties take {len(text)} bytes, and "
                f"{PROPERTIES_SIZE_BYTES_MAX} is the most"
            )
        while True:
            position = commit_log.staged_offset
            try:
                record = encode_record(
                    tail.constants,
                    position,
                    tail.next_offset,
                    commit_log.store_time_ms,
                    commit_log.store_host,
                    body,
                    text,
                    flag,
                    sys_flag,
                    born_time_ms,
                    born_host,
                    reconsume_times,
                    prepared_offset,
                )
            except struct.error as error:
                raise RecordTooLargeError(
                    f"a header field does not fit a record: {error}"
                ) from None
            if commit_log.add(record):
                break
            self._run = None
        code = self._opened.tags_codes.of(tail.topic, properties, commit_log.store_time_ms)
        run = self._open_run(tail, position)
        run.units.append(CONSUME_QUEUE_UNIT.pack(position, len(record), code))
        run.entries = index_entries(
            tail.constants,
            position,
            properties.get(PROPERTY_UNIQUE_KEY),
            properties.get(PROPERTY_KEYS),
        )
        run.count = run.batch_count = batch_count or 1
        run.end = commit_log.staged_offset
        tail.next_offset += run.count
        if tail.is_batch:
            self._run = None
        return position

    def _open_run(self, tail: QueueTail, position: int) -> Run:
        run = self._run = Run(tail, position)
        self._group.append(run)
        return run

    def commit(self) -> int:
        """Write the pass and return the offset up to which the log is written.

        Raises:
            StoreError: nothing of the pass is visible to anybody; its queue offsets are free again.
        """
        try:
            self._log.write()
        except StoreError:
            self._roll_back()
            raise
        end = self._log.written_offset
        group = self._group
        if group:
            self._group, self._run = [], None
            if self.is_sync:
                self._awaiting_flush.append((end, self._log.store_time_ms, group))
                self._flush.request()
            elif self._behind is None:
                self._dispatch(group, self._log.store_time_ms)
        return end

    def _roll_back(self) -> None:
        """Give the queue offsets of what was not written back; what a roll had written stays."""
        group, self._group, self._run = self._group, [], None
        end = self._log.written_offset
        written = [run for run in group if run.end <= end]
        for run in reversed(group[len(written) :]):
            run.tail.next_offset = run.first_offset
        if written and self.is_sync:
            self._awaiting_flush.append((end, self._log.store_time_ms, written))
        elif written and self._behind is None:
            self._dispatch(written, self._log.store_time_ms)

    def put(self, message: MessageToStore) -> PutResult:
        """Store one message outside of a pass: for everything but the producers' hot path.

        Tags and keys are taken from its properties.

        Raises:
            StoreError: it is not stored.
        """
        self.check_writable()
        self.begin()
        tail = self.tail(message.topic, message.queue_id)
        position = self.stage(
            tail,
            message.body,
            decode_properties(message.properties),
            message.flag,
            message.sys_flag,
            message.born_time_ms,
            message.born_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
        )
        queue_offset = tail.next_offset - 1
        end = self.commit()
        return PutResult(position, queue_offset, end, self._log.store_time_ms)

    def park(self, end_offset: int, release: Release) -> None:
        """Call *release* once the log is durable up to *end_offset*, or with why it is not."""
        deadline_s = asyncio.get_running_loop().time() + self._config.sync_flush_timeout_ms / 1000
        self._parked.append((end_offset, deadline_s, release))

    async def wait_durable(self, end_offset: int) -> None:
        """Under SYNC_FLUSH wait until the log is durable up to *end_offset*.

        Raises:
            StoreError: the flush failed or took too long; the message is in the log all the same.
        """
        if not self.is_sync or end_offset <= self._log.flushed_offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def release(error: StoreError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.park(end_offset, release)
        await future

    # -- dispatch ------------------------------------------------------------------------------

    def _dispatch(self, group: list[Run], store_time_ms: int) -> None:
        """The dispatch step: consume queue entries, index entries, wake-up of who waits."""
        index = self._index
        run = group[0]
        try:
            for run in group:
                tail = run.tail
                queue = tail.consume_queue
                if queue is None:
                    queue = self._open_queue(tail)
                units = run.units[0] if len(run.units) == 1 else b"".join(run.units)
                if isinstance(queue, BatchConsumeQueue):
                    position, size, code = CONSUME_QUEUE_UNIT.unpack(units)
                    queue.append_batch(
                        run.first_offset, run.count, position, size, code, store_time_ms
                    )
                else:
                    queue.append_many(run.first_offset, units, run.count, run.end)
                if index is not None:
                    index.put_many(run.entries, store_time_ms)
                self.dispatched_offset = run.end
        except (OSError, StoreError) as error:
            self._fall_behind(run.start, error)
        self._dispatched_time_ms = store_time_ms
        for run in group:
            if run.tail.waiters:
                self._wake(run)

    def _wake(self, run: Run) -> None:
        """Tell who waits of every message, for its tag: unless it is not in its queue yet."""
        tail, offset = run.tail, run.first_offset
        if run.start >= self.dispatched_offset:
            return
        for _, _, code in CONSUME_QUEUE_UNIT.iter_unpack(b"".join(run.units)):
            offset += run.batch_count or 1
            self.on_arrival(tail, offset, code)

    def _open_queue(self, tail: QueueTail) -> ConsumeQueue | BatchConsumeQueue:
        queue: ConsumeQueue | BatchConsumeQueue
        if tail.is_batch:
            queue = self._queues.get_or_create(tail.topic, tail.queue_id, True)
        else:
            queue = self._queues.get_or_create(tail.topic, tail.queue_id)
        tail.consume_queue = queue
        return queue

    def _fall_behind(self, position: int, error: OSError | StoreError) -> None:
        self.dispatched_offset = position
        self._behind = DiskFullError(
            f"a consume queue or the index cannot grow ({error}): free disk space; "
            "messages already accepted are safe in the commit log"
        )
        self._reput.wake()

    def catch_up(self) -> bool:
        """Dispatch a bounded piece of the log; return whether there is more to do.

        Raises:
            StoreError, OSError: dispatch stands still at ``dispatched_offset``.
        """
        bound = self._log.flushed_offset if self.is_sync else self._log.written_offset
        stop = min(bound, self.dispatched_offset + CATCH_UP_BYTES)
        while self.dispatched_offset < stop:
            self._redispatch_one()
        if self.dispatched_offset < bound:
            return True
        self._behind = None
        return False

    def _redispatch_one(self) -> None:
        position = self.dispatched_offset
        record = self._log.record_at(position)
        if not record:
            self.dispatched_offset = self._log.next_file_offset(position)
            return
        message = decode_message(record)
        properties = message.properties
        tail = self.tail(message.topic, message.queue_id)
        run = Run(tail, position)
        run.first_offset = message.queue_offset
        run.count = run.batch_count = int(properties.get(PROPERTY_INNER_NUM, "1"))
        run.end = position + len(record)
        code = self._opened.tags_codes.of(message.topic, properties, message.store_time_ms)
        run.units.append(CONSUME_QUEUE_UNIT.pack(position, len(record), code))
        run.entries = index_entries(
            tail.constants,
            position,
            properties.get(PROPERTY_UNIQUE_KEY),
            properties.get(PROPERTY_KEYS),
        )
        behind, self._behind = self._behind, None
        self._dispatch([run], message.store_time_ms)
        if self._behind is not None:
            raise self._behind
        self._behind = behind

    # -- flush ---------------------------------------------------------------------------------

    def _flushed(self, offset: int) -> None:
        """Dispatch and answer what *offset* covers.  One answer that fails must not stop others."""
        awaiting = self._awaiting_flush
        while awaiting and awaiting[0][0] <= offset:
            _, store_time_ms, group = awaiting.popleft()
            if self._behind is None:
                self._dispatch(group, store_time_ms)
        parked = self._parked
        while parked and parked[0][0] <= offset:
            parked.popleft()[2](None)
        if parked or awaiting:
            self._flush.request()

    def _failed(self, error: StoreFailedError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        log.critical("the store has stopped taking messages", reason=str(error))
        while self._parked:
            self._parked.popleft()[2](error)
        self.on_failure(error)

    def _watch_timeouts(self) -> None:
        """Answer what has waited for the disk for too long: it is stored, and not confirmed."""
        loop = asyncio.get_running_loop()
        self._timeouts = loop.call_later(1.0, self._watch_timeouts)
        now_s = loop.time()
        if now_s >= self._release_idle_at_s:
            self._release_idle_at_s = now_s + RELEASE_IDLE_INTERVAL_S
            self._queues.release_idle()
        while self._parked and self._parked[0][1] <= now_s:
            self._parked.popleft()[2](StoreBusyError("the disk did not confirm the flush in time"))

    def _flush_derived_files(self, thorough: bool) -> Iterator[None]:
        """In the flush thread: queues worth flushing, or all of them and the index."""
        dispatched_time_ms = self._dispatched_time_ms
        yield from self._queues.flush_steps(thorough)
        if not thorough:
            return
        self._queue_flushed_time_ms = dispatched_time_ms
        if self._index is not None:
            self._index.flush()
            self._index_flushed_time_ms = dispatched_time_ms

    def _save_checkpoint(self) -> None:
        """In the flush thread, after the fsyncs that the checkpoint states."""
        saved = self._opened.checkpoint
        new = StoreCheckpoint(
            commit_log_ms=self._log.flushed_time_ms,
            consume_queue_ms=self._queue_flushed_time_ms,
            index_ms=self._index_flushed_time_ms,
            master_flushed_offset=saved.master_flushed_offset,
            confirm_offset=saved.confirm_offset,
        )
        if new != saved:
            checkpoints.save(self._opened.layout.checkpoint, new)
            self._opened.checkpoint = new

    def _disk_full_changed(self, reason: str | None) -> None:
        self.disk_full_reason = reason

    # -- reading -------------------------------------------------------------------------------

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        subscription: Subscription | None = None,
    ) -> GetResult:
        """Read messages of a queue; *subscription* None lets everything through."""
        queue = self._queues.get(topic, queue_id)
        if isinstance(queue, BatchConsumeQueue):
            return self._reader.get_batch(queue, offset, count_max)
        return self._reader.get(queue, offset, count_max, subscription)

    def message_at(self, commit_log_offset: int) -> bytes:
        """The verified record at a commit log offset; empty when there is none."""
        return self._reader.record(commit_log_offset)

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> list[bytes]:
        """Records of *topic* that carry *key*, newest first: the record itself decides."""
        if self._index is None:
            return []
        found: list[bytes] = []
        size_all = 0
        seen: set[int] = set()
        for position in self._index.query(topic, key, count_max, begin_ms, end_ms):
            record = b"" if position in seen else self._reader.record(position)
            seen.add(position)
            if not record or not _carries(record, topic, key, begin_ms, end_ms):
                continue
            size_all += len(record)
            if len(found) >= count_max or (found and size_all > QUERY_BODY_BYTES_MAX):
                break
            found.append(record)
        return found

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) queue offset; (0, 0) for a queue that does not exist.  Creates nothing."""
        queue = self._queues.get(topic, queue_id)
        return (0, 0) if queue is None else (max(queue.min_offset, 0), queue.max_offset)

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, *, upper: bool) -> int:
        """The queue offset that stands at a store time; 0 for a queue that does not exist."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_by_time(time_ms, upper, self._store_time_of)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """The store time of one message, −1 when there is no such message."""
        result = self.get_message(topic, queue_id, queue_offset, 1)
        if result.status is not GetStatus.FOUND:
            return -1
        return decode_message(result.body).store_time_ms

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """The store time of a queue's oldest message, −1 when it has none."""
        return self.store_time(topic, queue_id, self.queue_range(topic, queue_id)[0])

    def _store_time_of(self, commit_log_offset: int, size_bytes: int) -> int:
        record = self._log.read(commit_log_offset, commit_log_offset + size_bytes)
        try:
            return check_record(record, 0, len(record), commit_log_offset, False).store_time_ms
        except ProtocolError:
            return -1

    @property
    def store_time_ms(self) -> int:
        """The store time of the messages of this pass."""
        return self._log.store_time_ms

    # -- the whole -----------------------------------------------------------------------------

    @property
    def min_commit_log_offset(self) -> int:
        """The oldest byte of the log."""
        return self._log.min_offset

    @property
    def max_commit_log_offset(self) -> int:
        """The end of the log."""
        return self._log.written_offset

    @property
    def flushed_offset(self) -> int:
        """Up to where the log is known to be durable."""
        return self._log.flushed_offset

    @property
    def earliest_time_ms(self) -> int:
        """The store time of the oldest message in the log, −1 when it is empty."""
        position = self._log.min_offset
        head = self._log.record_at(position)
        return self._store_time_of(position, len(head)) if head else -1

    @property
    def layout(self) -> object:
        """Paths of the store directory."""
        return self._opened.layout

    def queue_ids(self, topic: str) -> list[int]:
        """The ids of the queues of *topic* that hold or held messages."""
        return sorted(self._queues.queues_of(topic))

    def delete_topic(self, topic: str) -> None:
        """Forget the queues of a topic; its records stay in the log until they expire."""
        for key in [key for key in self._tails if key[0] == topic]:
            del self._tails[key]
        self._opened.delete_topic(topic, self._log.written_offset)


def join_properties(properties: dict[str, str]) -> str:
    """The string that carries properties; a value may hold the character 1, as it came."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def _carries(record: bytes, topic: str, key: str, begin_ms: int, end_ms: int) -> bool:
    message = decode_message(record)
    if message.topic != topic or not begin_ms <= message.store_time_ms <= end_ms:
        return False
    properties = message.properties
    keys = properties.get(PROPERTY_KEYS, "")
    return key == properties.get(PROPERTY_UNIQUE_KEY) or key in keys.split(" ")


def _ignore_arrival(tail: QueueTail, max_offset: int, tags_code: int) -> None:
    """Nobody waits."""


def _ignore_failure(error: StoreFailedError) -> None:
    """Nobody asked to be told."""
