"""Commits of transactions (37) that nothing speaks against: those in a row are one write.

Taken are those of half messages that are open, as they came, whose producer nobody had to ask, and
that go to a queue of their topic; where the answers need not wait for the disk, and where there was
a compiler. Whatever is not exactly that goes the general way (transactions/ends.py), which is the
reference for what an end does: rollbacks, ends that are repeated, topics that are gone, delays.
"""

from functools import partial
from typing import NamedTuple

from rockhopper.broker.assembly.parts import ServingParts
from rockhopper.broker.hot.hot_codec import (
    COMMITTED,
    END_PREFIX,
    UNDECODABLE,
    EndFields,
    EndHeader,
    decode_end,
    json_frame,
)
from rockhopper.broker.remoting.turn import Turn
from rockhopper.broker.store.log.fast_encoding import encode_end, half_place
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.broker.transactions.half_messages import HALF_QUEUE_ID
from rockhopper.broker.transactions.open_halves import OpenHalf
from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE, SerializeType
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.names import NOT_SENDABLE_TOPICS, TRANSACTION_OP_HALF_TOPIC
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT_SIZE_BYTES
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_COMMIT


class _Ended(NamedTuple):
    """A transaction whose end is staged at a commit log offset."""

    half: OpenHalf
    log_offset: int
    topic: str
    size_bytes: int


class PlainEnds:
    """Serves them."""

    def __init__(self, broker: ServingParts) -> None:
        self._store = broker.store
        self._topics = broker.topics
        self._now_ms = broker.steady_ms
        self._store_host = broker.store.staging.store_host
        self._halves = broker.transactions.halves
        self._ends = broker.transactions.ends

    def take(self, turn: Turn, frames: list[Frame], first: int) -> int:
        """Stage the ends from frame *first* on; how many they are."""
        if encode_end is None or not self._store.written_is_safe or not turn.can_stage():
            return 0
        ended: dict[int, _Ended] = {}
        for at in range(first, len(frames)):
            request = _decoded(*frames[at][:2])
            # One that is repeated finds the first one written.
            if request is None or request.extFields.tranStateTableOffset in ended:
                break
            one = self._stage(request.extFields)
            if one is None:
                break
            ended[one.half.offset] = one
            answer = b""
            if not request.flag & FLAG_ONEWAY:
                answer = json_frame(COMMITTED, (request.opaque,))
            turn.sent(answer, one.log_offset, waits=True)
        if ended:
            turn.when_written(partial(self._written, list(ended.values())))
        return len(ended)

    def _stage(self, fields: EndFields) -> _Ended | None:
        half = self._halves.get(fields.tranStateTableOffset)
        if (
            half is None
            or half.log_offset != fields.commitLogOffset
            or half.group != fields.producerGroup
            or not half.is_as_it_came
        ):
            return None
        record = self._store.claimed_at(half.log_offset)
        place = half_place(record, half.log_offset) if half_place is not None else None
        tail = None if place is None else self._tail(*place)
        if tail is None or encode_end is None:
            return None
        store = self._store
        op_tail = store.tail(TRANSACTION_OP_HALF_TOPIC, HALF_QUEUE_ID)
        log_offset, room_end, store_time_ms = store.place()
        made = encode_end(
            record,
            half.offset,
            tail.constants,
            tail.next_offset,
            op_tail.constants,
            op_tail.next_offset,
            log_offset,
            store_time_ms,
            self._store_host,
            self._now_ms(),
        )
        if made is None:
            return None
        records, size_bytes, units, packed_keys = made
        middle, end = log_offset + size_bytes, log_offset + len(records)
        if end > room_end:
            return None
        size = CONSUME_QUEUE_UNIT_SIZE_BYTES
        store.stage_encoded(
            records,
            [(tail, log_offset, middle, units[:size], 1), (op_tail, middle, end, units[size:], 1)],
            packed_keys,
        )
        return _Ended(half, log_offset, tail.topic, len(record))

    def _tail(self, topic: str, queue_id: int) -> QueueTail | None:
        """Where the final message goes, if its topic has that queue and nothing peculiar."""
        settings = self._topics.get(topic)
        if settings is None or topic in NOT_SENDABLE_TOPICS or topic.startswith("%"):
            return None
        if queue_id >= max(settings.write_queue_nums, settings.read_queue_nums, 1):
            return None
        tail = self._store.tail(topic, queue_id)
        return None if tail.is_batch else tail

    def _written(self, ended: list[_Ended], end: int) -> None:
        for half, log_offset, topic, size_bytes in ended:
            if log_offset < end:
                self._ends.committed_with_others(half, topic, size_bytes)


def _decoded(serialize_type: int, header: bytes) -> EndHeader | None:
    if serialize_type != SerializeType.JSON or not header.startswith(END_PREFIX):
        return None
    try:
        request = decode_end(header)
    except UNDECODABLE:
        return None
    fields = request.extFields
    if request.flag & FLAG_RESPONSE or fields.rh:
        return None
    return request if fields.commitOrRollback == SYS_FLAG_TRANSACTION_COMMIT else None
