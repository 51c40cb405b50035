"""``may(principal, action, resource)``: the one place where permissions are decided.

The gateways call it. The dispatcher calls it for every request of the general path, by the
permissions that its row of the processor table declares (server/remoting/permissions.py). The hot
pass calls it when it admits a topic or a pull for a user, and leaves signed requests other than
sends and pulls to the general path.

Without users (guard.py) every client may do everything, except administer from other hosts, which
``remoteAdmin`` allows.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import ClassVar, NamedTuple, Protocol

from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.addresses import is_loopback
from rockhopper.protocol.names import group_of_retry_topic


class Action(Enum):
    """An action: RocketMQ's names, and ADMINISTER, which is ours."""

    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"
    ADMINISTER = "Administer"
    """Send administrators' requests at all, whatever they do."""


class ResourceKind(str):
    """The kind of a resource: RocketMQ's are here; a feature may define another.

    A kind is one capitalized word.
    """

    __slots__ = ()
    TOPIC: ClassVar["ResourceKind"]
    GROUP: ClassVar["ResourceKind"]
    CLUSTER: ClassVar["ResourceKind"]


ResourceKind.TOPIC = ResourceKind("Topic")
ResourceKind.GROUP = ResourceKind("Group")
ResourceKind.CLUSTER = ResourceKind("Cluster")
KINDS = (ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER)


class Resource(NamedTuple):
    """The target of an action. The name ``*`` means all of a kind."""

    kind: ResourceKind
    name: str


CLUSTER = Resource(ResourceKind.CLUSTER, "*")


class RetryTopicOwners(Protocol):
    """Knows the groups of retry topics."""

    def groups(self, name: str) -> Iterable[str]:
        """Return the groups of a retry topic."""


class NamedOwners:
    """Knows only what the name of a retry topic shows."""

    def groups(self, name: str) -> Iterable[str]:
        """See RetryTopicOwners."""
        return (group_of_retry_topic(name),)


class AccessRules:
    """The rules of one broker or name server."""

    is_open = True
    """Whether all clients may do everything but administer, so that other checks can be skipped."""

    def __init__(self, *, remote_admin: bool) -> None:
        self._remote_admin = remote_admin
        self.retry_owners: RetryTopicOwners = NamedOwners()
        """A broker knows more than the name shows."""

    def may(self, principal: Principal, action: Action, resource: Resource) -> bool:
        """Return whether *principal* may do this; never blocks."""
        del resource
        if action is Action.ADMINISTER:
            return self._remote_admin or is_loopback(principal.host)
        return True

    def may_any(
        self, principal: Principal, actions: tuple[Action, ...], resource: Resource
    ) -> bool:
        """Return whether *principal* may do any one of *actions*, which is enough."""
        return any(self.may(principal, action, resource) for action in actions)


MISSING_NAMED_MAX = 20


def name_missing(
    principal: Principal, missing: Sequence[tuple[tuple[Action, ...], Resource]]
) -> str:
    """Return a sentence with all missing permissions, so that one change of the rules is enough."""
    named = [
        f"{' or '.join(action.value for action in actions)} {resource.kind}:{resource.name}"
        for actions, resource in dict.fromkeys(missing)
    ]
    more = len(named) - MISSING_NAMED_MAX
    rest = f", nor {more} more" if more > 0 else ""
    text = ", nor ".join(named[:MISSING_NAMED_MAX])
    return f"{principal.user or 'nobody'} at {principal.host} is not allowed to {text}{rest}"
