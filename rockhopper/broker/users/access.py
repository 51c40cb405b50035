"""``may(principal, action, resource)``: the one place where permissions are decided.

The doors ask it. The dispatcher asks for every request of the general way, by the needs that its
row of the processor table names (server/remoting/needs.py); the hot pass asks when it admits a
topic, and for each pull, and leaves requests that are signed to the general way.

Without users (guard.py) everybody may do everything, but administer from other hosts, which
``remoteAdmin`` allows.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.addresses import is_loopback
from rockhopper.protocol.names import group_of_retry_topic


class Action(Enum):
    """What somebody wants to do; RocketMQ's names, and one of ours."""

    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"
    ADMINISTER = "Administer"
    """Use requests of administrators at all, whatever they are about."""


class Kind(Enum):
    """Of what kind a resource is; RocketMQ's names, and one of ours."""

    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"
    SINK = "Sink"
    """What publishes batches exactly once, by its id."""


class Resource(NamedTuple):
    """What it is done to. The name is ``*`` where all of a kind are asked for."""

    kind: Kind
    name: str


CLUSTER = Resource(Kind.CLUSTER, "*")


def _group_of_name(retry_topic: str) -> Iterable[str]:
    return (group_of_retry_topic(retry_topic),)


class Access:
    """The rules of one broker or name service."""

    is_open = True
    """Whether all but administration is everybody's, so that nobody needs to ask for the rest."""

    def __init__(self, *, remote_admin: bool) -> None:
        self._remote_admin = remote_admin
        self.retry_groups: Callable[[str], Iterable[str]] = _group_of_name
        """The groups that a retry topic stands for; a broker knows more than the name says."""

    def may(self, principal: Principal, action: Action, resource: Resource) -> bool:
        """Whether *principal* may do this; never blocks."""
        del resource
        if action is Action.ADMINISTER:
            return self._remote_admin or is_loopback(principal.host)
        return True

    def may_any(
        self, principal: Principal, actions: tuple[Action, ...], resource: Resource
    ) -> bool:
        """Whether *principal* may do one of *actions*, which is enough."""
        return any(self.may(principal, action, resource) for action in actions)


MISSING_NAMED_MAX = 20


def name_missing(
    principal: Principal, missing: Sequence[tuple[tuple[Action, ...], Resource]]
) -> str:
    """What somebody may not do: all of it, so that one change of the rules is enough."""
    named = [
        f"{' or '.join(action.value for action in actions)} {resource.kind.value}:{resource.name}"
        for actions, resource in dict.fromkeys(missing)
    ]
    more = len(named) - MISSING_NAMED_MAX
    rest = f", nor {more} more" if more > 0 else ""
    text = ", nor ".join(named[:MISSING_NAMED_MAX])
    return f"{principal.user or 'nobody'} at {principal.host} may not {text}{rest}"
