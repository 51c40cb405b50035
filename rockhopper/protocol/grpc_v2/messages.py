"""The messages of messaging.proto as classes; to import this takes protobuf, of the extra [grpc].

They live in a descriptor pool of their own: RocketMQ's Python client, which may run in the same
process, registers the same names in the common one.
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
    """An RPC: its messages, and whether either side sends more than one."""

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
"""By name."""

# Every class is typed Any: protobuf makes them when this is imported.
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
    """What a message is, and what a topic takes."""

    NORMAL, FIFO, DELAY, TRANSACTION, LITE, PRIORITY = range(1, 7)


class ClientType:
    """What a client is."""

    PRODUCER, PUSH_CONSUMER, SIMPLE_CONSUMER, PULL_CONSUMER = range(1, 5)
    LITE_PUSH_CONSUMER, LITE_SIMPLE_CONSUMER = 5, 6


class Permission:
    """What may be done with a queue."""

    NONE, READ, WRITE, READ_WRITE = range(1, 5)


class AddressScheme:
    """What the hosts of endpoints are."""

    IPV4, IPV6, DOMAIN_NAME = range(1, 4)


class Encoding:
    """How a body is compressed."""

    IDENTITY, GZIP = 1, 2


FILTER_SQL = 2
DIGEST_CRC32, DIGEST_MD5, DIGEST_SHA1 = range(1, 4)
RESOLUTION_COMMIT, RESOLUTION_ROLLBACK = 1, 2
SOURCE_SERVER_CHECK = 2
OFFSET_BEGINNING, OFFSET_END, OFFSET_TIMESTAMP = range(3)
