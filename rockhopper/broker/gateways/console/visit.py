"""Visit: a page request as the views see it, and the results they return."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from rockhopper.broker.gateways.console.cache import ResultCache
from rockhopper.broker.users.access import AccessRules, Action, Resource, ResourceKind
from rockhopper.broker.users.errors import NoPermission
from rockhopper.broker.users.peer import Principal
from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.unreachable_brokers import UnreachableBroker
from rockhopper.client.consuming.pulling import GroupPuller
from rockhopper.client.errors import BrokerUnreachableError, ClientError, RequestRefusedError
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.network.tls import TlsOptions
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from rockhopper.protocol.signing import Credentials

_Row = TypeVar("_Row")
_Found = TypeVar("_Found")


class TemplatePage(NamedTuple):
    """A page: a template and its values."""

    template: str
    values: Mapping[str, Any]
    status: int = 200


class JsonDocument(NamedTuple):
    """JSON for the console's scripts."""

    document: Any


class Raw(NamedTuple):
    """Bytes that a browser saves and never displays."""

    body: bytes
    file_name: str


class Moved(NamedTuple):
    """A redirect to a page that shows what was done."""

    path: str
    query: Mapping[str, Any]
    notice: str = ""


Result = TemplatePage | JsonDocument | Raw | Moved


class WrongInput(Exception):
    """The input is invalid; the message gives the reason."""


class Turns:
    """Named locks: one visitor at a time, while others wait."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def get_lock(self, what: str) -> asyncio.Lock:
        """Return the lock of a name; it is dropped once nothing uses it."""
        return self._locks.setdefault(what, asyncio.Lock())


@dataclass
class Visit:
    """One visitor's request, and their permissions."""

    access: AccessRules
    principal: Principal
    credentials: Credentials | None
    query: Mapping[str, str]
    may_change: bool
    name_services: str
    kept: ResultCache
    turns: Turns
    tls: TlsOptions | None = None
    notice: str = ""
    path: str = "-"
    """The page's path below the console's."""
    silent: Sequence[UnreachableBroker] = ()
    """The brokers that do not answer: the page is built without them."""
    departed: Sequence[str] = ()
    """The names of brokers that have disappeared since the name server started."""
    closed: str = ""
    """Why the visitor may change nothing although this broker would allow it.

    This is the case if another broker would not.
    """
    is_part: bool = False
    """Whether the page omits items that the visitor may not see, and must say so."""
    admin: Admin = field(init=False)
    """The client with the visitor's credentials; set before a view runs."""

    @property
    def why_not(self) -> str:
        """Why the visitor may change nothing; blank if they may."""
        if self.may_change:
            return self.closed
        if self.access.is_open:
            return (
                "Changes are only allowed from this host, but you are at "
                f"{self.principal.host}: set remoteAdmin=true on the broker to allow them."
            )
        return f"{self.principal.user} is not an administrator from {self.principal.host}."

    def check(
        self, action: Action, topic_or_group: str, kind: ResourceKind = ResourceKind.TOPIC
    ) -> None:
        """Raise NoPermission unless the visitor may do this.

        The rules for the visitor's host apply here, because other brokers do not know that host.
        """
        if refusal := self.refusal(action, topic_or_group, kind):
            raise NoPermission(refusal)

    def refusal(
        self, action: Action, topic_or_group: str, kind: ResourceKind = ResourceKind.TOPIC
    ) -> str:
        """Return why the visitor may not; blank if they may."""
        if self.access.is_open:
            return ""
        if kind == ResourceKind.TOPIC and topic_or_group.startswith(RETRY_PREFIX):
            groups = self.access.retry_owners.groups(topic_or_group)
            refusals = (self.refusal(action, group, ResourceKind.GROUP) for group in groups)
            return next(filter(None, refusals), "")
        if kind == ResourceKind.TOPIC and topic_or_group.startswith(DLQ_PREFIX):
            kind, topic_or_group = ResourceKind.GROUP, topic_or_group.removeprefix(DLQ_PREFIX)
        if self.access.may(self.principal, action, Resource(kind, topic_or_group)):
            return ""
        return (
            f"{self.principal.user} at {self.principal.host} is not allowed to {action.value} "
            f"{kind}:{topic_or_group}"
        )

    def hindrance(self, action: Action, name: str, kind: ResourceKind = ResourceKind.TOPIC) -> str:
        """Return why the visitor may not submit a form; blank if they may."""
        return self.why_not or self.refusal(action, name, kind)

    def sees_topic(self, name: str) -> bool:
        """Return whether brokers show a topic to the visitor; lists omit other topics."""
        if name.startswith(RETRY_PREFIX):
            return all(map(self.sees_group, self.access.retry_owners.groups(name)))
        return self.access.may(self.principal, Action.GET, Resource(ResourceKind.TOPIC, name))

    def sees_group(self, name: str) -> bool:
        """Return whether brokers show a group to the visitor."""
        return self.access.may(self.principal, Action.GET, Resource(ResourceKind.GROUP, name))

    def filter_seen(
        self, names: Iterable[str], kind: ResourceKind = ResourceKind.TOPIC
    ) -> list[str]:
        """Return the names that the visitor may see; the page says if there are others."""
        sees = self.sees_topic if kind == ResourceKind.TOPIC else self.sees_group
        named = list(names)
        seen = [each for each in named if sees(each)]
        self.is_part |= len(seen) < len(named)
        return seen

    async def masters(self, broker: str) -> list[BrokerAddress]:
        """Return the master of this name. Raises BrokerUnreachableError, RouteNotFoundError."""
        for each, problem in self.silent:
            if each.is_master and each.name == broker:
                raise BrokerUnreachableError(
                    f"{broker} does not answer: {problem}", address=each.address
                )
        return await self.admin.masters(broker)

    def puller(self) -> GroupPuller:
        """Return a reader of queues that uses no group and is not counted."""
        return GroupPuller(self.admin.session, None, is_browsing=True)

    def get_needed(self, name: str) -> str:
        """Return a required field of the query. Raises WrongInput."""
        value = self.query.get(name, "").strip()
        if not value:
            raise WrongInput(f"this page needs the parameter {name}=…")
        return value

    def page_of(self, rows: Sequence[_Row], size: int) -> tuple[Sequence[_Row], dict[str, int]]:
        """Return the rows of the requested page, and the values of the pager."""
        pages = max(-(-len(rows) // size), 1)
        page = self.number("page", 1, least=1, most=pages)
        return rows[(page - 1) * size : page * size], {"page": page, "pages": pages}

    def number(self, name: str, default: int, *, least: int = 0, most: int = 1 << 62) -> int:
        """Return a number from the query; *default* if it is invalid."""
        return number(self.query.get(name, ""), default, least=least, most=most)


def is_forbidden(error: ClientError) -> bool:
    """Return whether a broker refused because the visitor lacks permission."""
    return isinstance(error, RequestRefusedError) and error.is_forbidden


def format_error(error: Exception) -> str:
    """Return the message of an error; the broker's own words if the visitor lacks permission."""
    is_said = isinstance(error, RequestRefusedError) and error.is_forbidden and error.remark
    return is_said or str(error)


async def if_allowed(asked: Awaitable[_Found]) -> _Found | None:
    """Return a result, or None if the visitor may not see it, so that a page can omit it."""
    try:
        return await asked
    except NoPermission:
        return None
    except RequestRefusedError as error:
        if not is_forbidden(error):
            raise
        return None


def number(text: str, default: int, *, least: int = 0, most: int = 1 << 62) -> int:
    """Parse a number and limit it to *least* and *most*; return *default* if it is invalid."""
    text = text.strip().replace(",", "")
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20):
        return default
    return min(max(int(text), least), most)


def parse_whole(text: str, what: str) -> int:
    """Parse a whole number from 0 on. Raises WrongInput, whose message contains *what*."""
    digits = text.strip().replace(",", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise WrongInput(
            f"{text[:60]!r} is not a valid {what}: expected a whole number of at least 0"
        )
    return int(digits)


def queue_of(text: str, topic: str) -> MessageQueue:
    """Parse a queue as ``broker:id``. Raises WrongInput."""
    broker, _, queue_id = text.rpartition(":")
    if not broker or number(queue_id, -1, least=-1) < 0:
        raise WrongInput(f"{text[:100]!r} is not a queue: expected broker:number")
    return MessageQueue(topic, broker, number(queue_id, 0))


def queue_text(queue: MessageQueue) -> str:
    """Format a queue for ``queue_of``."""
    return f"{queue.broker_name}:{queue.queue_id}"
