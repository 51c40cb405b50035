"""The permissions that a request needs: actions, and the resources that they apply to.

A row of a processor table declares them, as RocketMQ's annotations do (RocketMQAction, and
DefaultAuthorizationContextBuilder): for example one topic in a field of the header, or all topics
in a heartbeat's body. All permissions of a row must be met; any one of a permission's actions is
enough. A retry topic is checked as its group, and publishing to it counts as consuming. A
dead-letter topic is checked as itself.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from rockhopper.broker.users.access import (
    CLUSTER,
    AccessRules,
    Action,
    Resource,
    ResourceKind,
    name_missing,
)
from rockhopper.broker.users.errors import NoPermission
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.names import RETRY_PREFIX


class ExaminedRequest(Protocol):
    """The parts of a request that a need examines."""

    @property
    def code(self) -> int:
        """The request code."""

    @property
    def principal(self) -> Principal:
        """The principal of the request."""

    @property
    def ext(self) -> dict[str, str]:
        """The fields of the header."""

    @property
    def body(self) -> bytes:
        """The body as sent."""


Names = Callable[[ExaminedRequest], Iterable[str]]


class RequiredPermission(NamedTuple):
    """One required permission."""

    actions: tuple[Action, ...]
    kind: ResourceKind
    names: Names
    """Finds the resources in the request. Raises MalformedBodyError."""


def on_topic(*actions: Action, field: str = "topic") -> RequiredPermission:
    """Return a permission on the topic in a header field."""
    return RequiredPermission(actions, ResourceKind.TOPIC, name_field(field))


def on_group(*actions: Action, field: str = "consumerGroup") -> RequiredPermission:
    """Return a permission on the group in a header field."""
    return RequiredPermission(actions, ResourceKind.GROUP, name_field(field))


def on_topic_and_group(
    *actions: Action, group_field: str = "consumerGroup"
) -> tuple[RequiredPermission, RequiredPermission]:
    """Return permissions on the topic and on the group in header fields."""
    return on_topic(*actions), on_group(*actions, field=group_field)


def on_topics_and_groups(
    action: Action, topics: Names, groups: Names
) -> tuple[RequiredPermission, RequiredPermission]:
    """Return a permission on named topics, and the same on named groups."""
    return (
        RequiredPermission((action,), ResourceKind.TOPIC, topics),
        RequiredPermission((action,), ResourceKind.GROUP, groups),
    )


def on_cluster(action: Action) -> RequiredPermission:
    """Return a permission on the cluster as a whole."""
    return RequiredPermission((action,), CLUSTER.kind, name_all)


def name_field(field: str) -> Names:
    """Return a function for the name in a field; a missing one is empty, which is never allowed."""
    return lambda request: (request.ext.get(field, ""),)


def name_optional_field(field: str) -> Names:
    """Return a function for the name in a field, or nothing if the field is missing."""
    return lambda request: filter(None, (request.ext.get(field),))


def name_all(_request: ExaminedRequest) -> Iterable[str]:
    """Return the name of all resources of a kind."""
    return ("*",)


ADMINISTRATION = on_cluster(Action.ADMINISTER)
"""The permission that every request of administrators needs."""
SEE_CLUSTER, CHANGE_CLUSTER = on_cluster(Action.GET), on_cluster(Action.UPDATE)
CONSUME = on_topic_and_group(Action.SUB)
ALL_TOPICS = RequiredPermission((Action.LIST,), ResourceKind.TOPIC, name_all)


def check_access(
    access: AccessRules, request: ExaminedRequest, permissions: Iterable[RequiredPermission]
) -> None:
    """Return if *access* allows all *permissions*. Raises NoPermission, MalformedBodyError."""
    principal = request.principal
    missing = []
    for permission in permissions:
        for actions, resource in _demands(access, permission, request):
            if access.may_any(principal, actions, resource):
                continue
            if permission is ADMINISTRATION:
                raise NoPermission(
                    f"request code {request.code} is for administrators, and {principal.host} is "
                    "not this host: set remoteAdmin=true on the broker to allow it, or with "
                    "authenticationEnabled send it as a Super user"
                )
            missing.append((actions, resource))
    if missing:
        raise NoPermission(name_missing(principal, missing))


def check_subscriber(
    access: AccessRules, principal: Principal, resources: Iterable[Resource]
) -> None:
    """Return if *principal* may read all *resources*. Raises NoPermission."""
    missing = [
        ((Action.SUB,), each) for each in resources if not access.may(principal, Action.SUB, each)
    ]
    if missing:
        raise NoPermission(name_missing(principal, missing))


def _demands(
    access: AccessRules, permission: RequiredPermission, request: ExaminedRequest
) -> Iterator[tuple[tuple[Action, ...], Resource]]:
    for name in permission.names(request):
        if permission.kind == ResourceKind.TOPIC and name.startswith(RETRY_PREFIX):
            actions = tuple(dict.fromkeys(map(_on_group_of_retries, permission.actions)))
            for group in access.retry_owners.groups(name):
                yield actions, Resource(ResourceKind.GROUP, group)
        else:
            yield permission.actions, Resource(permission.kind, name)


def _on_group_of_retries(action: Action) -> Action:
    return Action.SUB if action is Action.PUB else action
