"""Acknowledgements of popped messages (200051): consecutive ones for one pop in one call.

A consumer acknowledges the messages of a pop one by one, in sequence. Every other acknowledgement
takes the general path (features/pop/processors/popping.py), which defines the right response:
messages popped in order, offsets that their queue does not have, queues that do not exist.
"""

from typing import Literal, NamedTuple

import msgspec

from rockhopper.broker.features.pop.extra_info import ExtraInfo, parse_extra_info, real_topic
from rockhopper.broker.features.pop.service import PopService
from rockhopper.broker.hot.hot_codec import (
    COMMITTED,
    UNDECODABLE,
    header_decoder,
    json_frame,
)
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode, SerializeType
from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.requests.fields import Int32, Int64

# Only the message's number follows these parts of an extra info.
_POP_PARTS_MIN = 5


class _AckFields(msgspec.Struct, gc=False):
    """The fields of ACK_MESSAGE, by their wire names."""

    consumerGroup: str  # noqa: N815
    topic: str
    queueId: Int32  # noqa: N815
    offset: Int64
    extraInfo: str  # noqa: N815
    rh: str = ""


class _AckHeader(msgspec.Struct, gc=False):
    """The header of ACK_MESSAGE."""

    code: Literal[200051]
    opaque: Int32
    extFields: _AckFields  # noqa: N815
    flag: Int32 = 0


_decode_ack = header_decoder(_AckHeader)


class _Popped(NamedTuple):
    """The common data of acknowledgements for one pop from one queue."""

    named: tuple[str, str, int, str]
    """Group, topic, queue and pop, as the requests name them."""
    topic: str
    info: ExtraInfo
    low: int
    high: int
    """Offsets in the queue, including its end."""


class PlainAcks:
    """Serves plain acknowledgements."""

    code = int(RequestCode.ACK_MESSAGE)
    prefix = b'{"code":200051,'

    def __init__(self, pop: PopService, topics: TopicTable, store: MessageStore) -> None:
        self._pop = pop
        self._topics = topics
        self._store = store

    def serve(self, batch: ReplyBatch, frames: list[Frame], first: int) -> int:
        """Serve the acknowledgements from frame *first* on that belong to one pop."""
        requests: list[_AckHeader] = []
        popped: _Popped | None = None
        for at in range(first, len(frames)):
            request = _decode(*frames[at][:2])
            if request is None:
                break
            fields = request.extFields
            pop = fields.extraInfo.rpartition(" ")[0]
            named = fields.consumerGroup, fields.topic, fields.queueId, pop
            if popped is None:
                popped = self._find_popped(named)
            if popped is None or named != popped.named:
                break
            if not popped.low <= fields.offset <= popped.high:
                break
            requests.append(request)
        if popped is None or not self._settle(popped, requests):
            return 0
        _respond(batch, requests)
        return len(requests)

    def _find_popped(self, named: tuple[str, str, int, str]) -> _Popped | None:
        group, topic, queue_id, pop = named
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
        return _Popped(named, topic, info, *self._store.reading.queue_range(topic, queue_id))

    def _settle(self, popped: _Popped, requests: list[_AckHeader]) -> bool:
        if not requests:
            return False
        group, _, queue_id, _ = popped.named
        offsets = list(dict.fromkeys(request.extFields.offset for request in requests))
        try:
            self._pop.ack(group, popped.topic, queue_id, offsets, popped.info)
        except OSError:
            # The general path tries again, and returns the error.
            return False
        return True


def _decode(serialize_type: int, header: bytes) -> _AckHeader | None:
    if serialize_type != SerializeType.JSON or not header.startswith(PlainAcks.prefix):
        return None
    try:
        request = _decode_ack(header)
    except UNDECODABLE:
        return None
    return None if request.flag & FLAG_RESPONSE or request.extFields.rh else request


def _respond(batch: ReplyBatch, requests: list[_AckHeader]) -> None:
    answers = [
        json_frame(COMMITTED, (request.opaque,))
        for request in requests
        if not request.flag & FLAG_ONEWAY
    ]
    if answers:
        batch.promise(b"".join(answers))
