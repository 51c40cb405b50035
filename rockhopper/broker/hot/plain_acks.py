"""Acknowledgements of popped messages (200051), as many in one go as settle messages of one pop.

A consumer acknowledges the messages of a pop one by one, and one behind the other. Whatever is
not exactly that goes the general way (kernel/processors/pop.py), which says what the answer must
be: messages popped in order, offsets that their queue does not have, queues that do not exist.
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

# Behind these parts of an extra info stands only which message it is.
_POP_PARTS_MIN = 5


class _Popped(NamedTuple):
    """What acknowledgements of one pop from one queue have in common."""

    named: tuple[str, str, int, str]
    """Group, topic, queue and pop, as they name them."""
    topic: str
    info: ExtraInfo
    low: int
    high: int
    """Offsets that the queue has, the end included."""


class PlainAcks:
    """Serves them."""

    def __init__(self, broker: ServingParts) -> None:
        self._pop = broker.pop
        self._topics = broker.topics
        self._store = broker.store

    def take(self, frames: list[Frame], first: int) -> tuple[int, bytes]:
        """Serve the acknowledgements from frame *first* on that settle messages of one pop.

        Returns how many these are, and the answers; 0 if the first one goes the general way, and
        nothing has happened then.
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
            # The general way asks again, and says why.
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
