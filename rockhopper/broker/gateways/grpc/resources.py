"""Names of topics and groups in requests: a name, with an optional namespace.

The broker prefixes the name with its namespace, ``namespace%name``, as RocketMQ 4 clients do. So
clients of both protocols use the same resource. RocketMQ's proxy drops the namespace.
"""

from typing import Any

from rockhopper.broker.gateways.grpc.statuses import GrpcStatusError
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.names import (
    group_error,
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
    topic_error,
)

NAMES_REMEMBERED_MAX = 4096
_sound_topics: set[str] = set()
_sound_groups: set[str] = set()


def full_name(resource: Any) -> str:
    """Return the name of a resource in the broker."""
    name, namespace = resource.name, resource.resource_namespace
    return f"{namespace}%{name}" if namespace and name else str(name)


def topic_of(resource: Any) -> str:
    """Return the topic of a request. Raises GrpcStatusError."""
    return check_topic(full_name(resource))


def check_topic(name: str) -> str:
    """Return the *name* of a topic that clients may use. Raises GrpcStatusError."""
    if name in _sound_topics:
        return name
    problem = topic_error(name)
    if problem is None and is_system_topic(name):
        problem = f"topic {name} belongs to the broker"
    if problem is not None:
        raise GrpcStatusError(Code.ILLEGAL_TOPIC, problem)
    if len(_sound_topics) >= NAMES_REMEMBERED_MAX:
        _sound_topics.clear()
    _sound_topics.add(name)
    return name


def sendable_topic_of(resource: Any) -> str:
    """Return the topic of a producer's request. Raises GrpcStatusError."""
    name = topic_of(resource)
    if name[0] == "%" and (is_retry_topic(name) or is_dlq_topic(name)):
        raise GrpcStatusError(
            Code.ILLEGAL_TOPIC, f"topic {name} belongs to a group: only the broker may send to it"
        )
    return name


def group_of(resource: Any) -> str:
    """Return the consumer group of a request. Raises GrpcStatusError."""
    name = full_name(resource)
    if name in _sound_groups:
        return name
    problem = group_error(name)
    if problem is None and is_system_group(name):
        problem = f"group {name} is reserved for tools and brokers"
    if problem is not None:
        raise GrpcStatusError(Code.ILLEGAL_CONSUMER_GROUP, problem)
    if len(_sound_groups) >= NAMES_REMEMBERED_MAX:
        _sound_groups.clear()
    _sound_groups.add(name)
    return name
