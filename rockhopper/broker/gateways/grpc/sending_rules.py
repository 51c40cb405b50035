"""Validation of messages before they are stored.

RocketMQ's rules (GrpcValidator, ProxyConfig) and ours.

    body            1 byte to maxMessageSize
    user properties 128 pairs, 16 KiB including tag and keys; no reserved names
    tag             not blank, no |
    key             not blank
    message group   not blank, below 64 bytes
    delivery time   at most one day ahead, or timerMaxDelaySec if that is less
    recovery        at most one hour

No text may contain a control character.
"""

import unicodedata
from collections.abc import Iterable
from typing import Any

from rockhopper.broker.gateways.grpc.statuses import GrpcStatusError, millis_of
from rockhopper.broker.kernel.tables.topic_attributes import (
    MESSAGE_TYPE_DELAY,
    MESSAGE_TYPE_FIFO,
    MESSAGE_TYPE_MIXED,
    MESSAGE_TYPE_NORMAL,
    MESSAGE_TYPE_PRIORITY,
    MESSAGE_TYPE_TRANSACTION,
)
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import MessageType
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_LITE_TOPIC,
    PROPERTY_PRIORITY,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
    SYSTEM_PROPERTIES,
)

USER_PROPERTIES_MAX = 128
PROPERTIES_SIZE_BYTES_MAX = 16 << 10
MESSAGE_GROUP_SIZE_BYTES_MAX = 64
RECOVERY_MS_MAX = 3_600_000

_UTF_8_BYTES_MAX = 4
_DELAYING = frozenset(
    {
        PROPERTY_DELAY_LEVEL,
        PROPERTY_TIMER_DELIVER_MS,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELAY_MS,
    }
)
_TYPE_NAMES = {
    MessageType.NORMAL: MESSAGE_TYPE_NORMAL,
    MessageType.FIFO: MESSAGE_TYPE_FIFO,
    MessageType.DELAY: MESSAGE_TYPE_DELAY,
    MessageType.TRANSACTION: MESSAGE_TYPE_TRANSACTION,
    MessageType.LITE: "LITE",
    MessageType.PRIORITY: MESSAGE_TYPE_PRIORITY,
}
_TYPES = {name: number for number, name in _TYPE_NAMES.items()}
_MIXED = [MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION]


def type_of(properties: dict[str, str]) -> int:
    """Return the type of a message with these properties."""
    if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        return MessageType.TRANSACTION
    if not _DELAYING.isdisjoint(properties):
        return MessageType.DELAY
    if PROPERTY_SHARDING_KEY in properties:
        return MessageType.FIFO
    if PROPERTY_PRIORITY in properties:
        return MessageType.PRIORITY
    if PROPERTY_LITE_TOPIC in properties:
        return MessageType.LITE
    return MessageType.NORMAL


def get_accepted_types(declared: str | None) -> list[int]:
    """Return the types that a topic accepts, by its attribute message.type.

    The default is NORMAL.
    """
    if declared == MESSAGE_TYPE_MIXED:
        return list(_MIXED)
    number = _TYPES.get(declared or MESSAGE_TYPE_NORMAL)
    return [] if number is None else [number]


def check_type(topic: str, declared: str | None, number: int) -> None:
    """Check that *topic* accepts messages of a type. Raises GrpcStatusError."""
    if number not in get_accepted_types(declared):
        name = _TYPE_NAMES[number]
        raise GrpcStatusError(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"topic {topic} accepts {declared or 'NORMAL'} messages, and this one is {name}: set "
            f"its attribute, +message.type={name} or MIXED",
        )


def check_body(body: bytes, size_bytes_max: int) -> None:
    """Check that a body can be stored. Raises GrpcStatusError."""
    if not body:
        raise GrpcStatusError(Code.MESSAGE_BODY_EMPTY, "the body is empty")
    if len(body) > size_bytes_max:
        raise GrpcStatusError(
            Code.MESSAGE_BODY_TOO_LARGE,
            f"the body has {len(body)} bytes; {size_bytes_max} are allowed",
        )


def check_properties(user: dict[str, str], system: Any) -> None:
    """Check that the properties of a message can be stored. Raises GrpcStatusError."""
    if len(user) > USER_PROPERTIES_MAX:
        raise GrpcStatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(user)} user properties; {USER_PROPERTIES_MAX} are allowed",
        )
    tag, keys = system.tag, system.keys
    length = len(tag)
    for name, value in user.items():
        length += len(name) + len(value)
        if not name or name in SYSTEM_PROPERTIES:
            raise GrpcStatusError(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"{name!r} is not a valid name of a user property",
            )
        _check_text(name, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "the name of a property")
        _check_text(value, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property {name}")
    for key in keys:
        length += len(key)
    if length * _UTF_8_BYTES_MAX > PROPERTIES_SIZE_BYTES_MAX:
        _check_size([*user, *user.values(), tag, *keys])
    _check_labels(system, tag, keys)


def _check_size(texts: Iterable[str]) -> None:
    size_bytes = sum(len(text.encode()) for text in texts)
    if size_bytes > PROPERTIES_SIZE_BYTES_MAX:
        raise GrpcStatusError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{size_bytes} bytes of properties; {PROPERTIES_SIZE_BYTES_MAX} are allowed",
        )


def _check_labels(system: Any, tag: str, keys: Iterable[str]) -> None:
    # RocketMQ treats a present but empty value as missing.
    if tag:
        if not tag.strip() or "|" in tag:
            raise GrpcStatusError(
                Code.ILLEGAL_MESSAGE_TAG,
                f"{tag[:100]!r} is not a valid tag: it is blank, or contains |",
            )
        _check_text(tag, Code.ILLEGAL_MESSAGE_TAG, "the tag")
    for key in keys:
        if key and not key.strip():
            raise GrpcStatusError(Code.ILLEGAL_MESSAGE_KEY, "a key is blank")
        _check_text(key, Code.ILLEGAL_MESSAGE_KEY, "a key")
    message_id = system.message_id
    if not message_id.strip():
        raise GrpcStatusError(Code.ILLEGAL_MESSAGE_ID, "the message id is blank")
    _check_text(message_id, Code.ILLEGAL_MESSAGE_ID, "the message id")
    if system.HasField("message_group"):
        group = system.message_group
        if not group.strip() or len(group.encode()) >= MESSAGE_GROUP_SIZE_BYTES_MAX:
            raise GrpcStatusError(
                Code.ILLEGAL_MESSAGE_GROUP,
                f"the message group {group[:100]!r} is blank, or has "
                f"{MESSAGE_GROUP_SIZE_BYTES_MAX} bytes or more",
            )
        _check_text(group, Code.ILLEGAL_MESSAGE_GROUP, "the message group")
    if system.HasField("trace_context"):
        _check_text(system.trace_context, Code.BAD_REQUEST, "the trace context")
    for text, what in (
        (system.born_host, "the host of the producer"),
        (system.lite_topic, "the lite topic"),
    ):
        _check_text(text, Code.BAD_REQUEST, what)


def check_times(system: Any, now_ms: int, delay_ms_max: int) -> None:
    """Check the times of a message. Raises GrpcStatusError."""
    if system.HasField("delivery_timestamp"):
        delivery = system.delivery_timestamp
        delay_ms = millis_of(delivery, Code.ILLEGAL_DELIVERY_TIME, "the delivery time") - now_ms
        if delay_ms > delay_ms_max:
            raise GrpcStatusError(
                Code.ILLEGAL_DELIVERY_TIME,
                f"the delivery is {delay_ms} ms ahead; {delay_ms_max} are allowed",
            )
    if system.HasField("orphaned_transaction_recovery_duration"):
        recovery = system.orphaned_transaction_recovery_duration
        recovery_ms = millis_of(recovery, Code.BAD_REQUEST, "the recovery of the transaction")
        if recovery_ms > RECOVERY_MS_MAX:
            raise GrpcStatusError(
                Code.BAD_REQUEST,
                f"the recovery of the transaction after {recovery_ms} ms; {RECOVERY_MS_MAX} are "
                "allowed",
            )


def _check_text(text: str, code: Code, what: str) -> None:
    if text.isprintable():
        return
    for character in text:
        if unicodedata.category(character) == "Cc":
            raise GrpcStatusError(code, f"{what} contains the control character {ord(character)}")
