"""The operator's port: /healthz, /readyz, /metrics and the console over HTTP/1.1.

Every answer closes its connection, so there is no state to keep. A page is made by a function
that the owner registers, for GET and HEAD; one that takes long runs in a thread. An application
has a first folder of paths to itself, sees the whole request, and takes forms by POST.

Where there are users, who comes from another host says by HTTP's Basic authentication which of them
he is, and may read what ``may(principal, GET, cluster)`` allows. Others are told the states, for
balancers ask for them, and no reasons.
"""

import asyncio
import base64
import socket
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from http import HTTPStatus
from typing import NamedTuple, cast

import structlog

from rockhopper.broker.server.listening.caller import Caller
from rockhopper.broker.server.listening.listener import OPEN, Gate, Listener
from rockhopper.broker.server.listening.socket_names import socket_address
from rockhopper.broker.server.listening.unfinished import Unfinished
from rockhopper.broker.users.access import CLUSTER, Access, Action
from rockhopper.broker.users.errors import NotAuthenticated
from rockhopper.broker.users.guard import Guard, guard_of
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.addresses import is_loopback
from rockhopper.sockets import close_in_children
from rockhopper.tasks import end_task, run_in_background

log = structlog.get_logger("broker.http")

REQUEST_SIZE_BYTES_MAX = 8192
FORM_SIZE_BYTES_MAX = 1 << 20
REQUEST_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 60.0


_OK, _UNAUTHORIZED = 200, 401
HTML = "text/html; charset=utf-8"
_CHALLENGE = 'WWW-Authenticate: Basic realm="rockhopper", charset="UTF-8"\r\n'


class Page(NamedTuple):
    """An answer."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    """More header lines; the values are ASCII without line breaks."""


class HttpRequest(NamedTuple):
    """What an application sees of a request."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """By name in lower case; of several lines with a name the last."""
    body: bytes
    host: str
    """The address that it comes from."""


PageMaker = Callable[[], Awaitable[Page]]
Application = Callable[[HttpRequest], Awaitable[Page]]


class Readers(Enum):
    """Who gets a page, where there are users."""

    OPERATORS = "operators"
    """Who may GET the cluster, or is on this host."""
    BALANCERS = "balancers"
    """Everybody, but those who are no operators without the reasons."""


class ServedPage(NamedTuple):
    """A page, and who gets it."""

    make: PageMaker
    readers: Readers


class HttpServer:
    """A listening port that serves a few pages, and applications."""

    def __init__(
        self,
        pages: Mapping[str, ServedPage],
        access: Access,
        applications: Mapping[str, Application] | None = None,
        knows_name: Callable[[str], bool] = lambda _named: True,
    ) -> None:
        """*knows_name* says of a Host line whether browsers may have the pages under that name."""
        self._knows_name = knows_name
        self.pages = pages
        """By path."""
        self.applications = dict(applications or {})
        """By the first folder of their paths; they say themselves who gets what."""
        self._access = access
        self._listener: Listener | None = None
        self.connections: set[_Connection] = set()
        """Those that have not asked yet."""
        self._unfinished = Unfinished(has_users=guard_of(access) is not None)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start_on(self, bound: socket.socket, gate: Gate = OPEN) -> None:
        """Listen on a socket that is bound already, and is this server's from now on."""
        listener = Listener(bound, lambda caller: _Connection(self, caller), name="http", gate=gate)
        await listener.start()
        self._listener = listener

    async def close(self) -> None:
        """Stop listening and give up the answers under way."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for task in list(self._tasks):
            end_task(task)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def count_unfinished(self, size_bytes: int) -> None:
        """Note that so much more is held of requests, and close who holds too much, if need be."""
        self._unfinished.count(size_bytes, self.connections)

    def answer(self, connection: "_Connection", request: HttpRequest) -> None:
        """Serve *request* on *connection*."""
        task = run_in_background(self._answer(connection, request), "a page")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def application(self, path: str) -> Application | None:
        """The application that has this path."""
        return self.applications.get(path.split("/", 2)[1] if path.startswith("/") else "")

    async def _answer(self, connection: "_Connection", request: HttpRequest) -> None:
        try:
            page = await self._make_page(request)
        except Exception as error:
            log.error("page failed", path=request.path, exc_info=error)
            page = Page(b"see the broker's log\n", 500)
        connection.finish(page, with_body=request.method != "HEAD")

    async def _make_page(self, request: HttpRequest) -> Page:
        application = self.application(request.path)
        if application is not None:
            return await application(request)
        if request.method not in ("GET", "HEAD"):
            return Page(b"only GET and HEAD are served\n", 405)
        served = self.pages.get(request.path)
        if served is None:
            return Page(f"served are {', '.join(sorted(self.pages))}\n".encode(), 404)
        # Probes use any name. Browsers always send a name and languages: a name that is not ours
        # may be another site's, pointed here to read what operators read.
        named = request.headers.get("host")
        is_kept = served.readers is Readers.OPERATORS or "accept-language" in request.headers
        if is_kept and named is not None and not self._knows_name(named):
            return unknown_name(named)
        refused = self._refusal(request)
        if refused is not None and served.readers is Readers.OPERATORS:
            return refused
        page = await served.make()
        if refused is not None:
            return Page(b"ok\n" if page.status == _OK else b"not ok\n", page.status)
        return page

    def _refusal(self, request: HttpRequest) -> Page | None:
        """What somebody is told instead of what operators are; None for an operator."""
        access = self._access
        if access.is_open or is_loopback(request.host):
            return None
        principal = who_asks(access, request)
        if isinstance(principal, Page):
            return principal
        if access.may(principal, Action.GET, CLUSTER):
            return None
        return Page(f"{principal.user} may not Get Cluster:*\n".encode(), 403)


def unknown_name(host_line: str) -> Page:
    """What is told to who calls this host by a name of somebody else, perhaps."""
    return Page(
        f"this broker does not know itself by the name {host_line[:200]!a}: use its address, "
        "or add the name to consoleHosts\n".encode(),
        421,
    )


def who_asks(access: Access, request: HttpRequest) -> Principal | Page:
    """Who *request* is from, by HTTP Basic where there are users, or what he is told to say so."""
    if not isinstance(access, Guard) or access.is_open:
        return Principal(request.host)
    given = basic_credentials(request)
    if given is None:
        return Page(b"say who you are: a user and his secret, by HTTP Basic\n", _UNAUTHORIZED)
    try:
        return access.authenticator.prove(*given, request.host)
    except NotAuthenticated as error:
        return Page(f"{error}\n".encode(), _UNAUTHORIZED)


class _Connection(asyncio.Protocol):
    """Collects one request, then belongs to its answer."""

    def __init__(self, server: HttpServer, caller: Caller) -> None:
        self._server = server
        self._caller = caller
        self._host = ""
        self._received = bytearray()
        self._request: HttpRequest | None = None
        self._body_size = 0
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._is_complete = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport in all but inheritance.
        self._transport = cast("asyncio.Transport", transport)
        close_in_children(self._transport)
        self._host, _ = socket_address(self._caller.address or transport.get_extra_info("peername"))
        self._abort_after(REQUEST_TIMEOUT_S)
        self._server.connections.add(self)

    @property
    def held_bytes(self) -> int:
        """What has come of a request that is not complete."""
        return len(self._received)

    @property
    def is_known(self) -> bool:
        """Nobody is before the request is complete."""
        return False

    def drop_held(self, reason: str) -> None:
        """Let go of that, and close at once."""
        log.info("connection closed", peer=self._host, reason=reason)
        self._received.clear()
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._timeout is not None:
            self._timeout.cancel()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._is_complete:
            return
        self._received += data
        if self._request is None:
            refused = self._take_head()
            if refused is not None:
                self._is_complete = True
                self.finish(refused, with_body=True, is_all_read=False)
                return
        if self._request is not None and len(self._received) >= self._body_size:
            self._is_complete = True
            self._abort_after(ANSWER_TIMEOUT_S)
            body = bytes(self._received[: self._body_size])
            self._received.clear()
            self._server.connections.discard(self)
            self._server.answer(self, self._request._replace(body=body))
            return
        self._server.count_unfinished(len(data))

    def _take_head(self) -> Page | None:
        """Read the head once it is whole, and how much of a body follows; a refusal, if it is."""
        ends = [
            (at, at + len(end))
            for end in (b"\r\n\r\n", b"\n\n")
            if (at := self._received.find(end)) >= 0
        ]
        at, after = min(ends, default=(len(self._received), 0))
        if at > REQUEST_SIZE_BYTES_MAX:
            return Page(b"the request is too long\n", 400)
        if not after:
            return None
        request = _parse_head(bytes(self._received[:at]), self._host)
        if request is None:
            return Page(b"this is no HTTP request\n", 400)
        del self._received[:after]
        self._request = request
        if request.method != "POST" or self._server.application(request.path) is None:
            return None
        size = request.headers.get("content-length", "")
        if not (size.isascii() and size.isdigit()):
            return Page(b"say how long the form is: Content-Length\n", 411)
        if len(size) > 9 or int(size) > FORM_SIZE_BYTES_MAX:
            return Page(
                f"a form has at most {FORM_SIZE_BYTES_MAX} bytes: send larger messages by "
                "`rockhopper send TOPIC --file FILE`\n".encode(),
                413,
            )
        self._body_size = int(size)
        return None

    def _abort_after(self, seconds: float) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        if self._transport is not None:
            loop = asyncio.get_running_loop()
            self._timeout = loop.call_later(seconds, self._transport.abort)

    def finish(self, page: Page, *, with_body: bool, is_all_read: bool = True) -> None:
        """Write the answer and close; a peer that has gone is not an error.

        With more to read, closing would reset the connection, and the answer be lost.
        """
        if self._transport is None or self._transport.is_closing():
            return
        more = "".join(f"{name}: {value}\r\n" for name, value in page.headers)
        head = (
            f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\n"
            f"Content-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\n"
            f"{_CHALLENGE if page.status == _UNAUTHORIZED else ''}{more}"
            "Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode("ascii") + (page.body if with_body else b""))
        if is_all_read or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()


def _parse_head(head: bytes, host: str) -> HttpRequest | None:
    """The request without its body; None when it is none, or says twice where it is for."""
    first, *lines = head.decode("latin-1").split("\n")
    parts = first.split()
    if len(parts) != 3 or not parts[2].startswith("HTTP/"):
        return None
    path, _, query = parts[1].partition("?")
    pairs = [line.partition(":") for line in lines]
    named = [(name.strip().lower(), value.strip()) for name, _, value in pairs]
    names = [name for name, _ in named]
    if names.count("host") > 1 or names.count("content-length") > 1:
        return None
    return HttpRequest(parts[0], path, query, dict(named), b"", host)


def basic_credentials(request: HttpRequest) -> tuple[str, str] | None:
    """User and secret of an Authorization line; None without one that can be read."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(token.strip(), validate=True).decode()
    except ValueError:
        return None
    user, separator, secret = text.partition(":")
    return (user, secret) if separator else None
