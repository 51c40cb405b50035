"""Plain commits of transactions (37): consecutive ones are written together.

A commit is plain if its half message is open and unchanged, its producer was never checked, and its
queue belongs to its topic. This code runs only if responses need not wait for the disk, and if the
C module was compiled. Every other end takes the general path (features/transactions/ends.py), which
defines what an end does: rollbacks, repeated ends, deleted topics, delays.
"""

from rockhopper.broker.features.transactions.ends import CommittedHalf, TransactionEnds
from rockhopper.broker.features.transactions.half_messages import HALF_QUEUE_ID
from rockhopper.broker.features.transactions.open_halves import OpenHalves
from rockhopper.broker.hot.encoded_writes import EncodedWrites
from rockhopper.broker.hot.similar_requests import RequestShape, encode_successes, read_similar
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.broker.store.log.fast_encoding import encode_end, half_place
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run
from rockhopper.protocol.codes import FLAG_ONEWAY
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.names import NOT_SENDABLE_TOPICS, TRANSACTION_OP_HALF_TOPIC
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT_SIZE_BYTES as _UNIT_SIZE
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_COMMIT

_SHAPE = RequestShape(
    37,
    (b"producerGroup",),
    (b"tranStateTableOffset", b"commitLogOffset", b"commitOrRollback"),
)


class _Batch:
    """Ends that are staged together, all in one file of the log."""

    __slots__ = (
        "ended",
        "finals",
        "log_offset",
        "now_ms",
        "op",
        "packed_keys",
        "records",
        "room_end",
        "time",
    )

    def __init__(self, place: tuple[int, int, int], now_ms: int, op_tail: QueueTail) -> None:
        self.log_offset, self.room_end, self.time = place
        self.now_ms = now_ms
        self.records: list[bytes] = []
        self.packed_keys: list[bytes] = []
        self.op = Run.empty_at(op_tail, self.log_offset)
        # By topic and queue id; None if the final message needs a closer check.
        self.finals: dict[tuple[str, int], Run | None] = {}
        # By half queue offset.
        self.ended: dict[int, CommittedHalf] = {}

    def runs(self) -> list[Run]:
        return [run for run in (*self.finals.values(), self.op) if run is not None and run.count]


class PlainEnds:
    """Serves plain commits of transactions."""

    code = 37

    def __init__(self, kernel: Kernel, halves: OpenHalves, ends: TransactionEnds) -> None:
        self._store = kernel.store
        self._topics = kernel.tables.topics
        self._now_ms = kernel.clock.steady_ms
        self._store_host = kernel.store_host
        self._writes = EncodedWrites(kernel)
        self._halves = halves
        self._ends = ends

    def serve(self, reply_batch: ReplyBatch, frames: list[Frame], first: int) -> int:
        """Store the ends from frame *first* on; return how many."""
        store = self._store
        if (
            encode_end is None
            or not store.safe_point.is_what_is_written
            or (place := self._writes.find_place()) is None
        ):
            return 0
        op_tail = store.staging.tail(TRANSACTION_OP_HALF_TOPIC, HALF_QUEUE_ID)
        batch = _Batch(place, self._now_ms(), op_tail)
        texts, rows = read_similar(frames, first, _SHAPE)
        answered: list[int] = []
        for opaque, flag, offset, log_offset, verdict in rows:
            # A repeated end must find the first one written.
            if (
                verdict != SYS_FLAG_TRANSACTION_COMMIT
                or offset in batch.ended
                or not self._add(batch, texts[0], offset, log_offset)
            ):
                break
            if not flag & FLAG_ONEWAY:
                answered.append(opaque)
        ended = list(batch.ended.values())
        if ended:
            records, packed_keys = b"".join(batch.records), b"".join(batch.packed_keys)
            reply_batch.flush()
            owed = [(reply_batch.connection, encode_successes(answered), True)]
            if self._writes.write(
                records, batch.runs(), packed_keys, owed, {}, reply_batch.began_s
            ):
                self._ends.committed_together(ended)
        return len(ended)

    def _add(self, batch: _Batch, group: str, offset: int, half_log_offset: int) -> bool:
        half = self._halves.get(offset)
        if (
            half is None
            or half.log_offset != half_log_offset
            or half.group != group
            or not half.is_as_it_came
        ):
            return False
        record = self._store.log.record_at(half.log_offset)
        place = half_place(record, half.log_offset) if half_place is not None else None
        if place is None or encode_end is None:
            return False
        if place not in batch.finals:
            tail = self._tail(*place)
            batch.finals[place] = None if tail is None else Run.empty_at(tail, batch.log_offset)
        final, op = batch.finals[place], batch.op
        if final is None:
            return False
        log_offset = batch.log_offset
        made = encode_end(
            record,
            half.offset,
            final.tail.constants,
            final.first_offset + final.count,
            op.tail.constants,
            op.first_offset + op.count,
            log_offset,
            batch.time,
            self._store_host,
            batch.now_ms,
        )
        if made is None or log_offset + len(made[0]) > batch.room_end:
            return False
        records, size_bytes, units, packed_keys = made
        batch.records.append(records)
        batch.packed_keys.append(packed_keys)
        middle, batch.log_offset = log_offset + size_bytes, log_offset + len(records)
        _add(final, log_offset, middle, units[:_UNIT_SIZE])
        _add(op, middle, batch.log_offset, units[_UNIT_SIZE:])
        batch.ended[half.offset] = half, log_offset, place[0], len(record)
        return True

    def _tail(self, topic: str, queue_id: int) -> QueueTail | None:
        """Return the tail of the final message's queue, if it exists and is an ordinary one."""
        settings = self._topics.get(topic)
        if settings is None or topic in NOT_SENDABLE_TOPICS or topic.startswith("%"):
            return None
        if queue_id >= max(settings.write_queue_nums, settings.read_queue_nums, 1):
            return None
        tail = self._store.staging.tail(topic, queue_id)
        return None if tail.is_batch else tail


def _add(run: Run, start: int, end: int, unit: bytes) -> None:
    if not run.count:
        run.start = start
    run.end = end
    run.count += 1
    run.units.append(unit)
