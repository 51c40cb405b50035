"""Acknowledgements of popped messages (200051): consecutive ones for one pop in one call.

A consumer acknowledges the messages of a pop one by one, in sequence. Every other acknowledgement
takes the general path (features/pop/processors/popping.py), which defines the right response:
messages popped in order, offsets that their queue does not have, queues that do not exist.
"""

from typing import NamedTuple

from rockhopper.broker.features.pop.extra_info import ExtraInfo, parse_extra_info, real_topic
from rockhopper.broker.features.pop.service import PopService
from rockhopper.broker.hot.similar_requests import (
    RequestShape,
    Rows,
    encode_successes,
    read_similar,
)
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.codes import FLAG_ONEWAY, RequestCode
from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.properties import parse_whole_number

# Only the message's number follows these parts of an extra info.
_POP_PARTS_MIN = 5
_SHAPE = RequestShape(
    int(RequestCode.ACK_MESSAGE),
    (b"consumerGroup", b"topic", b"queueId", b"extraInfo"),
    (b"offset",),
    cut=3,
)


class _Popped(NamedTuple):
    """The common data of acknowledgements for one pop from one queue."""

    group: str
    queue_id: int
    topic: str
    info: ExtraInfo
    low: int
    high: int
    """Offsets in the queue, including its end."""


class PlainAcks:
    """Serves plain acknowledgements."""

    code = int(RequestCode.ACK_MESSAGE)

    def __init__(self, pop: PopService, topics: TopicTable, store: MessageStore) -> None:
        self._pop = pop
        self._topics = topics
        self._store = store

    def serve(self, batch: ReplyBatch, frames: list[Frame], first: int) -> int:
        """Serve the acknowledgements from frame *first* on that belong to one pop."""
        texts, rows = read_similar(frames, first, _SHAPE)
        popped = self._find_popped(*texts) if rows else None
        if popped is None:
            return 0
        count = _count_of(popped, rows)
        if not count or not self._settle(popped, rows[:count]):
            return 0
        answered = [row[0] for row in rows[:count] if not row[1] & FLAG_ONEWAY]
        if answered:
            batch.promise(encode_successes(answered))
        return count

    def _find_popped(self, group: str, topic: str, queue: str, pop: str) -> _Popped | None:
        queue_id = parse_whole_number(queue)
        if pop.count(" ") + 1 < _POP_PARTS_MIN:
            return None
        try:
            info = parse_extra_info(pop)
        except FieldError:
            return None
        topic = real_topic(group, topic, info.retry_flag)
        settings = self._topics.get(topic)
        if info.is_orderly or settings is None or not 0 <= queue_id < settings.read_queue_nums:
            return None
        reading = self._store.reading
        return _Popped(group, queue_id, topic, info, *reading.queue_range(topic, queue_id))

    def _settle(self, popped: _Popped, rows: Rows) -> bool:
        offsets = list(dict.fromkeys([row[2] for row in rows]))
        try:
            self._pop.ack(popped.group, popped.topic, popped.queue_id, offsets, popped.info)
        except OSError:
            # The general path tries again, and returns the error.
            return False
        return True


def _count_of(popped: _Popped, rows: Rows) -> int:
    """Return how many of *rows*, from the first on, are about offsets that the queue has."""
    for count, (_, _, offset) in enumerate(rows):
        if not popped.low <= offset <= popped.high:
            return count
    return len(rows)
