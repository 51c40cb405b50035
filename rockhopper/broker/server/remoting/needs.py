"""What a request needs: the actions that its sender must be allowed, and the resources they are on.

A row of a processor table names them, as RocketMQ's annotations do (RocketMQAction, and
DefaultAuthorizationContextBuilder): one topic in a field of the header, say, or all topics of a
heartbeat's body. All needs of a row must be met; of a need's actions any one is enough. A retry
topic stands for its group, and whoever publishes there does what a consumer does. A topic of dead
letters stands for itself.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from rockhopper.broker.users.access import CLUSTER, Access, Action, Kind, Resource, name_missing
from rockhopper.broker.users.errors import NoPermission
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.names import RETRY_PREFIX


class Asked(Protocol):
    """What a need looks at in a request."""

    @property
    def code(self) -> int:
        """The request code."""

    @property
    def principal(self) -> Principal:
        """Who asks."""

    @property
    def ext(self) -> dict[str, str]:
        """The fields of the header."""

    @property
    def body(self) -> bytes:
        """The body as sent."""


Names = Callable[[Asked], Iterable[str]]


class Need(NamedTuple):
    """One thing that must be allowed."""

    actions: tuple[Action, ...]
    kind: Kind
    names: Names
    """Finds the resources in the request. Raises MalformedBodyError."""


def on_topic(*actions: Action, field: str = "topic") -> Need:
    """Of the topic that a field of the header names."""
    return Need(actions, Kind.TOPIC, in_field(field))


def on_group(*actions: Action, field: str = "consumerGroup") -> Need:
    """Of the group that a field of the header names."""
    return Need(actions, Kind.GROUP, in_field(field))


def on_cluster(action: Action) -> Need:
    """Of the cluster as a whole."""
    return Need((action,), CLUSTER.kind, everything)


def in_field(field: str) -> Names:
    """The name in a field; one that is missing is nobody's, and so is allowed to nobody."""
    return lambda request: (request.ext.get(field, ""),)


def in_optional_field(field: str) -> Names:
    """The name in a field, if it is there."""
    return lambda request: filter(None, (request.ext.get(field),))


def everything(_request: Asked) -> Iterable[str]:
    """All resources of a kind."""
    return ("*",)


ADMINISTRATION = on_cluster(Action.ADMINISTER)
"""Of every request that only administrators send."""


def check_access(access: Access, request: Asked, needs: Iterable[Need]) -> None:
    """Return when *access* allows all *needs*. Raises NoPermission, MalformedBodyError."""
    principal = request.principal
    missing = []
    for need in needs:
        for actions, resource in _demands(access, need, request):
            if access.may_any(principal, actions, resource):
                continue
            if need is ADMINISTRATION:
                raise NoPermission(
                    f"request code {request.code} is an administrator's, and {principal.host} is "
                    "not this host: set remoteAdmin=true on the broker to allow it, or with "
                    "authenticationEnabled send it as a Super user"
                )
            missing.append((actions, resource))
    if missing:
        raise NoPermission(name_missing(principal, missing))


def check_subscriber(access: Access, principal: Principal, resources: Iterable[Resource]) -> None:
    """Return when *principal* may read all *resources*. Raises NoPermission."""
    missing = [
        ((Action.SUB,), each) for each in resources if not access.may(principal, Action.SUB, each)
    ]
    if missing:
        raise NoPermission(name_missing(principal, missing))


def _demands(
    access: Access, need: Need, request: Asked
) -> Iterator[tuple[tuple[Action, ...], Resource]]:
    for name in need.names(request):
        if need.kind is Kind.TOPIC and name.startswith(RETRY_PREFIX):
            actions = tuple(dict.fromkeys(map(_on_group_of_retries, need.actions)))
            for group in access.retry_groups(name):
                yield actions, Resource(Kind.GROUP, group)
        else:
            yield need.actions, Resource(need.kind, name)


def _on_group_of_retries(action: Action) -> Action:
    return Action.SUB if action is Action.PUB else action
