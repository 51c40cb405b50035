"""The content of a send, from any protocol and serialization, and the messages of a batch."""

from collections.abc import Mapping
from typing import NamedTuple

from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.store.log.encoding import (
    DELAYING_PROPERTIES,
    OWN_PROPERTIES,
    drop_own_properties,
)
from rockhopper.broker.users.errors import IllegalMessage
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.errors import MalformedBatchError
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_INNER_NUM,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT,
    decode_properties,
    join_properties,
    parse_whole_number,
)
from rockhopper.protocol.store.message_codec import (
    INNER_BATCH_COUNT_MAX,
    decode_batch,
    encode_batch,
)
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_TRANSACTION_MASK,
    SYS_FLAG_TRANSACTION_PREPARED,
)

Messages = list[tuple[int, bytes, bytes]]

_OWN_NAMES = tuple(name.encode() for name in OWN_PROPERTIES)
_DELAYING_NAMES = tuple(name.encode() for name in DELAYING_PROPERTIES)


class Send(NamedTuple):
    """A message, or a batch, with its target."""

    group: str
    topic: str
    default_topic: str
    default_queue_nums: int
    queue_id: int
    sys_flag: int
    born_time_ms: int
    flag: int
    properties: str
    reconsume_times: int
    reconsume_times_max: int | None
    is_batch: bool
    unit_mode: bool
    body: bytes
    born_host: bytes
    """The sender's address in the format of records."""
    version: int
    """The sending client's MQVersion ordinal."""
    connection: Peer | None = None
    apart: dict[str, str] | None = None
    """The properties, if they were never text; *properties* is then empty."""


class PlainSend(NamedTuple):
    """A message that needs nothing but to be stored, as compiled code reads it."""

    topic: str
    message_id: str
    body: bytes
    properties: str
    """In stored form, without those that the broker adds to every message."""
    born_time_ms: int


def waits_for_disk(properties: str) -> bool:
    """Return whether a producer wants its answer only once the message is safe; nearly all do."""
    return "false" not in properties or decode_properties(properties).get(PROPERTY_WAIT) != "false"


def is_half(send: Send, properties: Mapping[str, str]) -> bool:
    """Return whether *send*, with these decoded *properties*, begins a transaction.

    A message that a consumer sends back does not: it carries TRAN_MSG of its first delivery.
    """
    if send.reconsume_times > 0 and parse_whole_number(properties.get(PROPERTY_DELAY_LEVEL)) > 0:
        return False
    return (
        properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
        or send.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_TRANSACTION_PREPARED
    )


def batch_of(body: bytes) -> tuple[bytes, Messages]:
    """Return the messages of a batch body, without properties that only the broker sets.

    Nearly every body is returned unchanged. Raises Refusal.
    """
    try:
        messages = decode_batch(body)
    except MalformedBatchError as error:
        raise IllegalMessage(str(error)) from None
    # A text search first, because bodies are long and may contain anything.
    texts = b"".join([text for _, _, text in messages])
    if not any(name in texts for name in _OWN_NAMES):
        return body, messages
    cleaned = []
    for flag, inner_body, text in messages:
        properties = decode_properties(text)
        if OWN_PROPERTIES.isdisjoint(properties):
            cleaned.append((flag, inner_body, text))
            continue
        kept = join_properties(drop_own_properties(properties))
        cleaned.append((flag, inner_body, kept.encode()))
    return encode_batch(cleaned), cleaned


def is_any_delayed(body: bytes, messages: Messages) -> bool:
    """Return whether a message of the batch in *body* is delayed.

    Long properties are parsed only if one of the names occurs in the batch at all.
    """
    if not any(name in body for name in _DELAYING_NAMES):
        return False
    return any(not DELAYING_PROPERTIES.isdisjoint(decode_properties(text)) for *_, text in messages)


def inner_count(send: Send, topic: TopicConfig) -> int:
    """Return how many messages a record made of a batch contains; 0 for a single message.

    The number is the sender's, as in RocketMQ, because the body may be compressed. Raises Refusal.
    """
    is_inner = bool(send.sys_flag & SYS_FLAG_INNER_BATCH)
    if not is_inner and PROPERTY_INNER_NUM not in send.properties:
        return 0
    properties = decode_properties(send.properties)
    number = properties.get(PROPERTY_INNER_NUM)
    if (is_inner and not topic.is_batch) or (number is not None and not is_inner):
        raise IllegalMessage(
            "a message that contains a batch needs the flag INNER_BATCH and a topic of type BatchCQ"
        )
    if number is None:
        return 0
    is_delayed = not DELAYING_PROPERTIES.isdisjoint(properties)
    if is_delayed or send.sys_flag & SYS_FLAG_TRANSACTION_MASK:
        raise IllegalMessage("a batch can neither be delayed nor be part of a transaction")
    count = parse_whole_number(number)
    check_inner_count(count, number)
    return max(count, 1)


def check_inner_count(count: int, told: str) -> None:
    """Raise Refusal unless one record may contain that many messages."""
    if not 0 <= count <= INNER_BATCH_COUNT_MAX:
        raise IllegalMessage(
            f"INNER_NUM is {told[:40]!r}: a record of a topic of type BatchCQ holds at most "
            f"{INNER_BATCH_COUNT_MAX} messages"
        )
