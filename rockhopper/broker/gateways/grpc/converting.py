"""Converts messages between the gRPC protocol and the store.

A producer's system properties are stored under RocketMQ's property names, so that consumers of both
protocols read the same message.
"""

import hashlib
import zlib
from collections.abc import Callable
from typing import Any

from rockhopper.broker.gateways.grpc.sending_rules import (
    check_body,
    check_properties,
    check_times,
    type_of,
)
from rockhopper.broker.gateways.grpc.statuses import GrpcStatusError, millis_of
from rockhopper.broker.kernel.send.send_request import Send
from rockhopper.protocol.addresses import join_address
from rockhopper.protocol.calendar_times import clamp_to_calendar
from rockhopper.protocol.codes import MQ_VERSION
from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.errors import CompressionError
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.framing import encode_frame
from rockhopper.protocol.grpc_v2.messages import (
    DIGEST_MD5,
    METHODS,
    Encoding,
    MessageType,
)
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import (
    PROPERTY_BORN_HOST,
    PROPERTY_BORN_TIMESTAMP,
    PROPERTY_CHECK_IMMUNITY_TIME,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_KEYS,
    PROPERTY_LITE_TOPIC,
    PROPERTY_PRIORITY,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACE_CONTEXT,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQUE_KEY,
    SYSTEM_PROPERTIES,
    parse_whole_number,
)
from rockhopper.protocol.store.message_codec import decode_message
from rockhopper.protocol.store.record_head import HEAD_SIZE_BYTES, head_struct
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_COMPRESSED_ZLIB,
    SYS_FLAG_TRANSACTION_PREPARED,
)

_ReceiveReply = METHODS["ReceiveMessage"].reply
_plain_calls = import_compiled("rockhopper.broker.gateways.grpc._plain_calls")
encode_received: Callable[..., bytes | None] | None = getattr(_plain_calls, "encode_received", None)
"""Encode a plain message as ``encode_delivery`` does; None if that must encode it.

Arguments: the record, the topic's name and namespace, the MD5 of the body, the handle, the
invisible time in ms, the number of attempts or -1, and the names of properties that are RocketMQ's.
"""
_BODY_SIZE = head_struct("body_size_bytes")
_GZIP = 16 + zlib.MAX_WBITS
INFLATED_SIZE_BYTES_MAX = 64 << 20


class SendLimits:
    """The limits of a message by the broker's settings."""

    def __init__(self, body_size_bytes_max: int, delay_ms_max: int, now_ms: int) -> None:
        self.body_size_bytes_max = body_size_bytes_max
        self.delay_ms_max = delay_ms_max
        self.now_ms = now_ms


def build_properties(
    message: Any, topic: str, born_host: str, limits: SendLimits
) -> dict[str, str]:
    """Validate a producer's *message* and return the properties to store.

    Raises GrpcStatusError.
    """
    system = message.system_properties
    properties: dict[str, str] = dict(message.user_properties)
    check_body(message.body, limits.body_size_bytes_max)
    check_properties(properties, system)
    check_times(system, limits.now_ms, limits.delay_ms_max)
    properties[PROPERTY_UNIQUE_KEY] = system.message_id
    if system.tag:
        properties[PROPERTY_TAGS] = system.tag
    if system.keys:
        properties[PROPERTY_KEYS] = " ".join(filter(None, system.keys))
    if system.message_group:
        properties[PROPERTY_SHARDING_KEY] = system.message_group
    if system.HasField("delivery_timestamp"):
        properties[PROPERTY_TIMER_DELIVER_MS] = str(system.delivery_timestamp.ToMilliseconds())
    if system.message_type == MessageType.TRANSACTION:
        properties[PROPERTY_TRANSACTION_PREPARED] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = system.orphaned_transaction_recovery_duration.ToSeconds()
            properties[PROPERTY_CHECK_IMMUNITY_TIME] = str(seconds)
    if system.HasField("priority"):
        properties[PROPERTY_PRIORITY] = str(system.priority)
    if system.HasField("lite_topic"):
        properties[PROPERTY_LITE_TOPIC] = system.lite_topic
    if system.trace_context:
        properties[PROPERTY_TRACE_CONTEXT] = system.trace_context
    properties[PROPERTY_BORN_HOST] = system.born_host or born_host
    born_ms = millis_of(system.born_timestamp, Code.BAD_REQUEST, "the time of the message")
    properties[PROPERTY_BORN_TIMESTAMP] = str(born_ms)
    properties[PROPERTY_PRODUCER_GROUP] = topic
    return properties


def send_of(
    message: Any, topic: str, queue_id: int, properties: dict[str, str], born_host: bytes
) -> Send:
    """Convert a producer's message for the sender. Raises GrpcStatusError."""
    system = message.system_properties
    body, sys_flag = message.body, 0
    if system.body_encoding == Encoding.GZIP:
        body, sys_flag = _compress_zlib(body), SYS_FLAG_COMPRESSED_ZLIB
    if PROPERTY_TRANSACTION_PREPARED in properties:
        sys_flag |= SYS_FLAG_TRANSACTION_PREPARED
    return Send(
        topic,
        topic,
        "",
        0,
        queue_id,
        sys_flag,
        int(properties[PROPERTY_BORN_TIMESTAMP]),
        0,
        "",
        system.delivery_attempt and max(system.delivery_attempt - 1, 0),
        None,
        False,
        False,
        body,
        born_host,
        MQ_VERSION,
        apart=properties,
    )


def _compress_zlib(body: bytes) -> bytes:
    """Convert a gzip body to zlib, which RocketMQ 4 consumers can read. Raises GrpcStatusError."""
    inflater = zlib.decompressobj(_GZIP)
    try:
        inflated = inflater.decompress(body, INFLATED_SIZE_BYTES_MAX)
    except zlib.error as error:
        raise GrpcStatusError(
            Code.MESSAGE_CORRUPTED, f"the body is not valid gzip: {error}"
        ) from None
    if inflater.unconsumed_tail or not inflater.eof:
        raise GrpcStatusError(
            Code.MESSAGE_CORRUPTED,
            f"the body is incomplete, or inflates to more than {INFLATED_SIZE_BYTES_MAX} bytes",
        )
    return zlib.compress(inflated)


def encode_delivery(
    record: bytes, topic: str, namespace: str, handle: str, invisible_ms: int, attempts: int
) -> bytes:
    """Encode a stored message for a consumer, as a frame with a ReceiveMessageResponse.

    *topic* is the name that the consumer used, *attempts* the number of earlier deliveries; -1 if
    it is that of the *record*.
    """
    if encode_received is not None:
        name = topic.removeprefix(f"{namespace}%") if namespace else topic
        (body_size,) = _BODY_SIZE.unpack_from(record)
        body = memoryview(record)[HEAD_SIZE_BYTES : HEAD_SIZE_BYTES + body_size]
        digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
        frame = encode_received(
            record, name, namespace, digest, handle, invisible_ms, attempts, SYSTEM_PROPERTIES
        )
        if frame is not None:
            return frame
    stored, reply = decode_message(record), _ReceiveReply()
    system = fill_message(reply.message, stored, topic, namespace).system_properties
    system.receipt_handle = handle
    system.invisible_duration.FromMilliseconds(invisible_ms)
    system.delivery_attempt = (stored.reconsume_times if attempts < 0 else attempts) + 1
    return encode_frame(reply.SerializeToString())


def fill_message(found: Any, message: StoredMessage, topic: str, namespace: str) -> Any:
    """Convert a stored message for a consumer, under the topic name that the consumer used.

    *found* is an empty message, for example that of a reply; returns it.

    Bodies that RocketMQ 4 producers compressed are delivered uncompressed, because 5.x clients
    support only gzip.
    """
    properties = message.properties
    if not properties.keys() <= SYSTEM_PROPERTIES:
        user_properties = found.user_properties
        for name, value in properties.items():
            if name not in SYSTEM_PROPERTIES:
                user_properties[name] = value
    found.topic.name = topic.removeprefix(f"{namespace}%") if namespace else topic
    if namespace:
        found.topic.resource_namespace = namespace
    system = found.system_properties
    body, encoding = message.body, Encoding.IDENTITY
    if message.sys_flag & SYS_FLAG_COMPRESSED:
        try:
            body = message.decompressed_body()
        except CompressionError:
            encoding = Encoding.GZIP
    found.body = body
    system.body_encoding = encoding
    system.body_digest.type = DIGEST_MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.message_id = message.message_id
    system.message_type = type_of(properties)
    system.queue_id = message.queue_id
    system.queue_offset = message.queue_offset
    system.born_timestamp.FromMilliseconds(clamp_to_calendar(message.born_time_ms))
    system.born_host = properties.get(PROPERTY_BORN_HOST) or message.born_host
    system.store_timestamp.FromMilliseconds(clamp_to_calendar(message.store_time_ms))
    system.store_host = join_address(message.store_host, message.store_port)
    _put_labels(system, properties)
    return found


def _put_labels(system: Any, properties: dict[str, str]) -> None:
    get = properties.get
    tag, keys, group = get(PROPERTY_TAGS), get(PROPERTY_KEYS), get(PROPERTY_SHARDING_KEY)
    if tag is not None:
        system.tag = tag
    if keys is not None:
        system.keys.extend(key for key in keys.split(" ") if key)
    if group is not None:
        system.message_group = group
    deliver_ms = parse_whole_number(get(PROPERTY_TIMER_DELIVER_MS))
    if deliver_ms >= 0:
        system.delivery_timestamp.FromMilliseconds(clamp_to_calendar(deliver_ms))
    context = get(PROPERTY_TRACE_CONTEXT)
    if context is not None:
        system.trace_context = context
    priority = parse_whole_number(get(PROPERTY_PRIORITY))
    if 0 <= priority < 2**31:
        system.priority = priority
    lite_topic = get(PROPERTY_LITE_TOPIC)
    if lite_topic is not None:
        system.lite_topic = lite_topic
    origin = get(PROPERTY_DLQ_ORIGIN_TOPIC)
    if origin is not None:
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = get(PROPERTY_DLQ_ORIGIN_MESSAGE_ID, "")
