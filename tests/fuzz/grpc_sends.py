"""Compares the compiled functions for plain messages of RocketMQ 5 clients with their oracles."""

import hashlib
from typing import Any
from unittest import mock

from rockhopper.broker.gateways.grpc import _plain_calls, converting
from rockhopper.broker.gateways.grpc.converting import (
    SendLimits,
    build_properties,
    encode_delivery,
    send_of,
)
from rockhopper.broker.gateways.grpc.resources import full_name
from rockhopper.broker.gateways.grpc.sending_rules import type_of
from rockhopper.broker.gateways.grpc.statuses import OK
from rockhopper.broker.kernel.send.send_request import PlainSend
from rockhopper.protocol.grpc_v2.framing import encode_frame
from rockhopper.protocol.grpc_v2.messages import METHODS, MessageType
from rockhopper.protocol.properties import SYSTEM_PROPERTIES, decode_properties, join_properties
from rockhopper.protocol.store.record_head import HEAD_SIZE_BYTES, head_struct

BODY_SIZE_BYTES_MAX = 512
HOST = "10.0.0.7"
_LIMITS = SendLimits(BODY_SIZE_BYTES_MAX, 1000, 1_700_000_000_000)
_BODY_SIZE = head_struct("body_size_bytes")
_OK = OK.SerializeToString()


def read(request: bytes) -> PlainSend | None:
    """Read a request by compiled code; None if it leaves it to Python."""
    fields = _plain_calls.read_send(request, HOST, BODY_SIZE_BYTES_MAX, SYSTEM_PROPERTIES)
    return None if fields is None else PlainSend(*fields)


def check(request: bytes) -> PlainSend | None:
    """Read a request, and compare what is read with what Python makes of it."""
    found = read(request)
    if found is None:
        return None
    (message,) = METHODS["SendMessage"].request.FromString(request).messages
    topic = full_name(message.topic)
    properties = build_properties(message, topic, HOST, _LIMITS)
    send = send_of(message, topic, -1, properties, b"")
    assert found[:3] == (topic, message.system_properties.message_id, send.body)
    assert found.born_time_ms == send.born_time_ms
    # A map of protobuf has no order of its own.
    user = {name: properties.pop(name) for name in dict(message.user_properties)}
    assert found.properties.endswith(join_properties(properties))
    assert sorted(found.properties) == sorted(join_properties(user | properties))
    decoded = decode_properties(found.properties)
    assert decoded == {name: text for name, text in (user | properties).items() if text}
    assert type_of(properties) == MessageType.NORMAL
    assert (send.sys_flag, send.flag, send.reconsume_times) == (0, 0, 0)
    return found


def check_reply(message_id: str, offset: int) -> None:
    """Compare an encoded reply with protobuf's."""
    reply: Any = METHODS["SendMessage"].reply(status=OK)
    reply.entries.add(status=OK, message_id=message_id, offset=offset)
    assert _plain_calls.encode_sent(_OK, message_id, offset) == encode_frame(
        reply.SerializeToString()
    )


def check_delivery(
    record: bytes, topic: str, namespace: str, handle: str, invisible_ms: int, attempts: int
) -> bool:
    """Compare the reply with a stored message; return whether compiled code has encoded it."""
    name = topic.removeprefix(f"{namespace}%") if namespace else topic
    (body_size,) = _BODY_SIZE.unpack_from(record)
    digest = hashlib.md5(record[HEAD_SIZE_BYTES:][:body_size]).hexdigest().upper()
    parts = name, namespace, digest, handle, invisible_ms, attempts, SYSTEM_PROPERTIES
    frame = _plain_calls.encode_received(record, *parts)
    if frame is None:
        return False
    with mock.patch.object(converting, "encode_received", None):
        expected = encode_delivery(record, topic, namespace, handle, invisible_ms, attempts)
    # The order of a map in protobuf's bytes is arbitrary.
    assert frame[:5] == expected[:5]
    reply = METHODS["ReceiveMessage"].reply
    assert reply.FromString(frame[5:]) == reply.FromString(expected[5:])
    return True
