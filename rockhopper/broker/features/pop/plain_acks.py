"""Acknowledgements of popped messages (200051): consecutive ones for one pop in one call.

A consumer acknowledges the messages of a pop one by one, in sequence. Every other acknowledgement
takes the general path (features/pop/processors.py), which defines the right response: messages
popped in order, offsets that their queue does not have, queues that do not exist.
"""

from typing import NamedTuple

from rockhopper.broker.features.pop.extra_info import ExtraInfo, parse_extra_info, real_topic
from rockhopper.broker.hot.hot_codec import (
    ACK_PREFIX,
    COMMITTED,
    UNDECODABLE,
    AckHeader,
    decode_ack,
    json_frame,
)
from rockhopper.broker.kernel.parts import ServingParts
from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE, SerializeType
from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.frame import Frame

# Only the message's number follows these parts of an extra info.
_POP_PARTS_MIN = 5


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

    def __init__(self, broker: ServingParts) -> None:
        self._pop = broker.pop
        self._topics = broker.topics
        self._store = broker.store

    def serve(self, frames: list[Frame], first: int) -> tuple[int, bytes]:
        """Serve the acknowledgements from frame *first* on that belong to one pop.

        Returns how many, and the responses; 0, with nothing done, if the first one must take the
        general path.
        """
        requests: list[AckHeader] = []
        popped: _Popped | None = None
        for at in range(first, len(frames)):
            request = _decoded(*frames[at][:2])
            if request is None:
                break
            fields = request.extFields
            pop = fields.extraInfo.rpartition(" ")[0]
            named = fields.consumerGroup, fields.topic, fields.queueId, pop
            if popped is None:
                popped = self._popped(named)
            if popped is None or named != popped.named:
                break
            if not popped.low <= fields.offset <= popped.high:
                break
            requests.append(request)
        if popped is None or not self._settle(popped, requests):
            return 0, b""
        answers = [
            json_frame(COMMITTED, (request.opaque,))
            for request in requests
            if not request.flag & FLAG_ONEWAY
        ]
        return len(requests), b"".join(answers)

    def _popped(self, named: tuple[str, str, int, str]) -> _Popped | None:
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
        return _Popped(named, topic, info, *self._store.queue_range(topic, queue_id))

    def _settle(self, popped: _Popped, requests: list[AckHeader]) -> bool:
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


def _decoded(serialize_type: int, header: bytes) -> AckHeader | None:
    if serialize_type != SerializeType.JSON or not header.startswith(ACK_PREFIX):
        return None
    try:
        request = decode_ack(header)
    except UNDECODABLE:
        return None
    return None if request.flag & FLAG_RESPONSE or request.extFields.rh else request
