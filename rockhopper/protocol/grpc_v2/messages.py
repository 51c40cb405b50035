"""The message classes of messaging.proto. Importing this needs protobuf, of the extra [grpc].

The classes have their own descriptor pool: RocketMQ's Python client, which may run in the same
process, registers the same names in the default pool.
"""

from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"
_DESCRIPTORS = Path(__file__).with_name("messaging.binpb")


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    for known in (duration_pb2, timestamp_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    described = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTORS.read_bytes())
    for file in described.file:
        pool.Add(file)
    return pool


POOL = _pool()


def _class(name: str) -> Any:
    return GetMessageClass(POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


class Method(NamedTuple):
    """An RPC: its message classes, and whether each side streams messages."""

    name: str
    request: Any
    reply: Any
    streams_requests: bool
    streams_replies: bool


def _methods() -> dict[str, Method]:
    found = {}
    for method in POOL.FindServiceByName(SERVICE).methods:
        described = descriptor_pb2.MethodDescriptorProto()
        method.CopyToProto(described)
        found[method.name] = Method(
            method.name,
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
            described.client_streaming,
            described.server_streaming,
        )
    return found


METHODS = _methods()
"""The methods by name."""

# Typed Any, because protobuf creates the classes at import.
Assignment = _class("Assignment")
Endpoints = _class("Endpoints")
Message = _class("Message")
MessageQueue = _class("MessageQueue")
RetryPolicy = _class("RetryPolicy")
SendResultEntry = _class("SendResultEntry")
Settings = _class("Settings")
Status = _class("Status")
TelemetryCommand = _class("TelemetryCommand")


class MessageType:
    """The type of a message, and of the messages that a topic accepts."""

    NORMAL, FIFO, DELAY, TRANSACTION, LITE, PRIORITY = range(1, 7)


class ClientType:
    """The type of a client."""

    PRODUCER, PUSH_CONSUMER, SIMPLE_CONSUMER, PULL_CONSUMER = range(1, 5)
    LITE_PUSH_CONSUMER, LITE_SIMPLE_CONSUMER = 5, 6


class Permission:
    """The permissions of a queue."""

    NONE, READ, WRITE, READ_WRITE = range(1, 5)


class AddressScheme:
    """The type of the hosts in endpoints."""

    IPV4, IPV6, DOMAIN_NAME = range(1, 4)


class Encoding:
    """The compression of a body."""

    IDENTITY, GZIP = 1, 2


FILTER_SQL = 2
DIGEST_CRC32, DIGEST_MD5, DIGEST_SHA1 = range(1, 4)
RESOLUTION_COMMIT, RESOLUTION_ROLLBACK = 1, 2
SOURCE_SERVER_CHECK = 2
OFFSET_BEGINNING, OFFSET_END, OFFSET_TIMESTAMP = range(3)
