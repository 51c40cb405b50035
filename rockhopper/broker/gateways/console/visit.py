"""Visit: a request for a page, as the views see it, and what they make of it."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from rockhopper.broker.gateways.console.kept import Kept
from rockhopper.broker.users.access import Access, Action, Kind, Resource
from rockhopper.broker.users.errors import NoPermission
from rockhopper.broker.users.peer import Principal
from rockhopper.client.admin.admin import Admin
from rockhopper.client.admin.silence import Silent
from rockhopper.client.consuming.pulling import Puller
from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientError,
    RequestRefusedError,
)
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.network.tls import TlsOptions
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from rockhopper.protocol.signing import Credentials

_Row = TypeVar("_Row")
_Found = TypeVar("_Found")


class Shown(NamedTuple):
    """A page: its template, and what the template names."""

    template: str
    values: Mapping[str, Any]
    status: int = 200


class Data(NamedTuple):
    """JSON for our own scripts."""

    document: Any


class Raw(NamedTuple):
    """Bytes that a browser is to save and never to show."""

    body: bytes
    file_name: str


class Moved(NamedTuple):
    """Go to another page, which says what was done."""

    path: str
    query: Mapping[str, Any]
    notice: str = ""


Result = Shown | Data | Raw | Moved


class WrongInput(Exception):
    """What was asked for makes no sense; the sentence says why."""


class Turns:
    """What only one visitor is to do at a time; the others wait."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, what: str) -> asyncio.Lock:
        """The lock of something; it is forgotten once nobody holds it."""
        return self._locks.setdefault(what, asyncio.Lock())


@dataclass
class Visit:
    """Who asks for what, and what he may."""

    access: Access
    principal: Principal
    credentials: Credentials | None
    query: Mapping[str, str]
    may_change: bool
    name_services: str
    kept: Kept
    turns: Turns
    tls: TlsOptions | None = None
    notice: str = ""
    path: str = "-"
    """Below the console's."""
    silent: Sequence[Silent] = ()
    """The brokers that do not answer: the page does without them."""
    departed: Sequence[str] = ()
    """The names of those that were there since the name service started, and went."""
    closed: str = ""
    """Why he may change nothing although this broker allows it: others would not, if they knew."""
    is_part: bool = False
    """Whether the page leaves out what he may not see, and has to say so."""
    admin: Admin = field(init=False)
    """In the name of who asks; there once a view runs."""

    @property
    def why_not(self) -> str:
        """Why he may change nothing; blank if he may."""
        if self.may_change:
            return self.closed
        if self.access.is_open:
            return (
                f"Changes come from this host alone, and you are at {self.principal.host}: set "
                "remoteAdmin=true on the broker to allow them."
            )
        return f"{self.principal.user} is no administrator from {self.principal.host}."

    def check(self, action: Action, topic_or_group: str, kind: Kind = Kind.TOPIC) -> None:
        """Raise NoPermission unless he may, from where he is, which other hosts do not know."""
        if refusal := self.refusal(action, topic_or_group, kind):
            raise NoPermission(refusal)

    def refusal(self, action: Action, topic_or_group: str, kind: Kind = Kind.TOPIC) -> str:
        """Why he may not; blank if he may."""
        if self.access.is_open:
            return ""
        if kind is Kind.TOPIC and topic_or_group.startswith(RETRY_PREFIX):
            groups = self.access.retry_groups(topic_or_group)
            refusals = (self.refusal(action, group, Kind.GROUP) for group in groups)
            return next(filter(None, refusals), "")
        if kind is Kind.TOPIC and topic_or_group.startswith(DLQ_PREFIX):
            kind, topic_or_group = Kind.GROUP, topic_or_group.removeprefix(DLQ_PREFIX)
        if self.access.may(self.principal, action, Resource(kind, topic_or_group)):
            return ""
        return (
            f"{self.principal.user} at {self.principal.host} may not {action.value} "
            f"{kind.value}:{topic_or_group}"
        )

    def hindrance(self, action: Action, name: str, kind: Kind = Kind.TOPIC) -> str:
        """Why a form that changes something is not for him; blank if it is."""
        return self.why_not or self.refusal(action, name, kind)

    def sees_topic(self, name: str) -> bool:
        """Whether brokers tell him of a topic; lists leave out the others."""
        if name.startswith(RETRY_PREFIX):
            return all(map(self.sees_group, self.access.retry_groups(name)))
        return self.access.may(self.principal, Action.GET, Resource(Kind.TOPIC, name))

    def sees_group(self, name: str) -> bool:
        """Whether brokers tell him of a group."""
        return self.access.may(self.principal, Action.GET, Resource(Kind.GROUP, name))

    def only_seen(self, names: Iterable[str], kind: Kind = Kind.TOPIC) -> list[str]:
        """Those that he may see; the page tells whether there are others."""
        sees = self.sees_topic if kind is Kind.TOPIC else self.sees_group
        named = list(names)
        seen = [each for each in named if sees(each)]
        self.is_part |= len(seen) < len(named)
        return seen

    async def masters(self, broker: str) -> list[BrokerAddress]:
        """The master of this name. Raises BrokerUnreachableError, RouteNotFoundError."""
        for each, problem in self.silent:
            if each.is_master and each.name == broker:
                raise BrokerUnreachableError(
                    f"{broker} does not answer: {problem}", address=each.address
                )
        return await self.admin.masters(broker)

    def puller(self) -> Puller:
        """Reads from queues, for no group and without being counted."""
        return Puller(self.admin.session, None, is_browsing=True)

    def needed(self, name: str) -> str:
        """A field of the query that has to be there. Raises WrongInput."""
        value = self.query.get(name, "").strip()
        if not value:
            raise WrongInput(f"this page needs to be told {name}=…")
        return value

    def page_of(self, rows: Sequence[_Row], size: int) -> tuple[Sequence[_Row], dict[str, int]]:
        """Those of the page that is asked for, and what the pager has to know."""
        pages = max(-(-len(rows) // size), 1)
        page = self.number("page", 1, least=1, most=pages)
        return rows[(page - 1) * size : page * size], {"page": page, "pages": pages}

    def number(self, name: str, default: int, *, least: int = 0, most: int = 1 << 62) -> int:
        """A number of the query; another text than one is *default*."""
        return number(self.query.get(name, ""), default, least=least, most=most)


def is_forbidden(error: ClientError) -> bool:
    """Whether a broker refused because he may not."""
    return isinstance(error, RequestRefusedError) and error.is_forbidden


def told(error: Exception) -> str:
    """What went wrong, in the words of a broker that refused because he may not."""
    is_said = isinstance(error, RequestRefusedError) and error.is_forbidden and error.remark
    return is_said or str(error)


async def if_allowed(asked: Awaitable[_Found]) -> _Found | None:
    """What was asked for; None where he may not see it, so that a page can do without."""
    try:
        return await asked
    except NoPermission:
        return None
    except RequestRefusedError as error:
        if not is_forbidden(error):
            raise
        return None


def number(text: str, default: int, *, least: int = 0, most: int = 1 << 62) -> int:
    """The number in *text*, brought between *least* and *most*; *default* if it is none."""
    text = text.strip().replace(",", "")
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20):
        return default
    return min(max(int(text), least), most)


def whole(text: str, what: str) -> int:
    """The number that *text* has to be, from 0 on; WrongInput says *what* it is not."""
    digits = text.strip().replace(",", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise WrongInput(f"{text[:60]!r} is no {what}: a whole number from 0 on is expected")
    return int(digits)


def queue_of(text: str, topic: str) -> MessageQueue:
    """The queue that ``broker:id`` names. Raises WrongInput."""
    broker, _, queue_id = text.rpartition(":")
    if not broker or number(queue_id, -1, least=-1) < 0:
        raise WrongInput(f"{text[:100]!r} names no queue: broker:number is expected")
    return MessageQueue(topic, broker, number(queue_id, 0))


def queue_text(queue: MessageQueue) -> str:
    """What ``queue_of`` reads."""
    return f"{queue.broker_name}:{queue.queue_id}"
