"""Receipts: the texts that a pop's answer contains and an acknowledgement returns to the broker.

Extra info (property POP_CK), separated by blanks:

    ckOffset popTime invisibleTime reviveQid retryFlag brokerName queueId msgQueueOffset

RocketMQ: ExtraInfoUtil, KeyBuilder.
"""

from typing import NamedTuple

from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.names import RETRY_PREFIX, pop_retry_topic
from rockhopper.protocol.properties import PROPERTY_POP_CK, properties_size_bytes

NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
ORDERLY_REVIVE_QUEUE = 999


class ExtraInfo(NamedTuple):
    """The pop that an acknowledgement refers to."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue_id: int
    retry_flag: str

    @property
    def is_orderly(self) -> bool:
        """Whether the message was popped in order."""
        return self.revive_queue_id == ORDERLY_REVIVE_QUEUE


def parse_extra_info(text: str) -> ExtraInfo:
    """The extra info of a request. Raises FieldError."""
    parts = text.split(" ")
    if len(parts) < 4:
        raise FieldError("extraInfo", f"is {text[:100]!r}, which has fewer than four parts")
    try:
        start, pop_ms, invisible_ms, revive = (int(part) for part in parts[:4])
    except ValueError:
        raise FieldError(
            "extraInfo", f"is {text[:100]!r}, whose first parts are not numbers"
        ) from None
    return ExtraInfo(start, pop_ms, invisible_ms, revive, parts[4] if len(parts) > 4 else NORMAL)


def format_extra_info(
    start_offset: int,
    pop_ms: int,
    invisible_ms: int,
    revive_queue_id: int,
    retry_flag: str,
    broker_name: str,
    queue_id: int,
    offset: int,
) -> str:
    """The property POP_CK of a message."""
    return (
        f"{start_offset} {pop_ms} {invisible_ms} {revive_queue_id} {retry_flag} {broker_name} "
        f"{queue_id} {offset}"
    )


def extra_info_size_bytes_max(broker_name: str) -> int:
    """Return how many bytes the property POP_CK of a message of a retry topic takes at most."""
    most = 2**63 - 1
    text = format_extra_info(
        most, most, most, ORDERLY_REVIVE_QUEUE, RETRY_V1, broker_name, 2**31 - 1, most
    )
    return properties_size_bytes({PROPERTY_POP_CK: text})


def retry_flag(group: str, topic: str, popped_from: str) -> str:
    """Return the retry flag of a message of *topic* that was popped from *popped_from*."""
    if popped_from == topic:
        return NORMAL
    return RETRY_V2 if popped_from == pop_retry_topic(group, topic) else RETRY_V1


def real_topic(group: str, topic: str, retry_flag: str) -> str:
    """The topic that a message was popped from."""
    if topic.startswith(RETRY_PREFIX) or retry_flag not in (RETRY_V1, RETRY_V2):
        return topic
    joint = "_" if retry_flag == RETRY_V1 else "+"
    return f"{RETRY_PREFIX}{group}{joint}{topic}"


def origin_topic(group: str, topic: str) -> str:
    """The topic that a pop retry topic of *group* belongs to; any other topic unchanged."""
    for joint in ("+", "_"):
        prefix = f"{RETRY_PREFIX}{group}{joint}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic
