"""The permissions that each RPC requires, as in RocketMQ's DefaultAuthorizationContextBuilder.

Names are not validated here; the activities do that. A retry topic stands for its group, and a
dead-letter topic for itself, as for remoting.
"""

from collections.abc import Iterator
from typing import Any

from rockhopper.broker.gateways.grpc.call import Demands
from rockhopper.broker.gateways.grpc.resources import full_name
from rockhopper.broker.users.access import Action, Resource, ResourceKind
from rockhopper.protocol.names import RETRY_PREFIX, group_of_retry_topic

_PUB, _SUB, _ANY = (Action.PUB,), (Action.SUB,), (Action.PUB, Action.SUB)
_LOOK = (Action.SUB, Action.GET)
_Demand = tuple[tuple[Action, ...], Resource]


def _topic(resource: Any, actions: tuple[Action, ...]) -> _Demand:
    name = full_name(resource)
    if name.startswith(RETRY_PREFIX):
        actions = tuple(Action.SUB if each is Action.PUB else each for each in actions)
        return actions, Resource(ResourceKind.GROUP, group_of_retry_topic(name))
    return actions, Resource(ResourceKind.TOPIC, name)


def _group(resource: Any, actions: tuple[Action, ...] = _SUB) -> _Demand:
    return actions, Resource(ResourceKind.GROUP, full_name(resource))


def of_route(request: Any) -> Demands:
    """Require either permission on the topic."""
    return (_topic(request.topic, _ANY),)


def of_sending(request: Any) -> Demands:
    """Require PUB on every topic of the messages."""
    return {_topic(message.topic, _PUB) for message in request.messages}


def of_plain_send(topic: str) -> Demands:
    """Require PUB on a topic that is no group's."""
    return ((_PUB, Resource(ResourceKind.TOPIC, topic)),)


def of_producing(request: Any) -> Demands:
    """Require PUB on the topic of the request."""
    return (_topic(request.topic, _PUB),)


def of_consuming(request: Any) -> Demands:
    """Require SUB on the topic and the group of the request."""
    return _topic(request.topic, _SUB), _group(request.group)


def of_queue(request: Any) -> Demands:
    """Require SUB on the queue's topic and on the group of the request."""
    return _topic(request.message_queue.topic, _SUB), _group(request.group)


def of_looking(request: Any) -> Demands:
    """Require SUB or GET on the queue's topic."""
    return (_topic(request.message_queue.topic, _LOOK),)


def heartbeat_permissions(request: Any) -> Demands:
    """Require SUB on the group, if a consumer names one."""
    return (_group(request.group),) if full_name(request.group) else ()


def telemetry_permissions(command: Any) -> Demands:
    """Require PUB on published topics, and SUB on the group and its topics, of client settings."""
    return list(_of_settings(command.settings)) if command.HasField("settings") else ()


def _of_settings(settings: Any) -> Iterator[_Demand]:
    for topic in settings.publishing.topics:
        yield _topic(topic, _PUB)
    if settings.HasField("subscription"):
        yield _group(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            yield _topic(entry.topic, _SUB)
