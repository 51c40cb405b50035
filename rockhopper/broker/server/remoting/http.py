"""The operator's port: /healthz, /readyz, /metrics and the console over HTTP/1.1.

Every response closes its connection, so no state is kept. The owner registers a function for each
page, for GET and HEAD; a slow one runs in a thread. An application owns all paths below one first
folder, gets the whole request, and accepts forms by POST.

If there are users, a client on another host authenticates by HTTP Basic, and may read what
``may(principal, GET, cluster)`` allows. Other clients get the states, because load balancers query
them, but no reasons.
"""

import asyncio
import base64
import socket
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import NamedTuple, cast

import structlog

from rockhopper.broker.server.listening.caller import Caller
from rockhopper.broker.server.listening.listener import OPEN, Gate, Listener
from rockhopper.broker.server.listening.socket_names import socket_address
from rockhopper.broker.server.listening.unfinished import Unfinished
from rockhopper.broker.users.access import CLUSTER, AccessRules, Action
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
    """A response."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    """More header lines; the values are ASCII without line breaks."""


class HttpRequest(NamedTuple):
    """A request as applications get it."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """By name in lower case; the last of several lines with one name."""
    body: bytes
    host: str
    """The client's address."""


PageMaker = Callable[[], Awaitable[Page]]
Application = Callable[[HttpRequest], Awaitable[Page]]


class PageReaders(Enum):
    """The clients that may read a page, if there are users."""

    OPERATORS = "operators"
    """Clients that may GET the cluster, or are on this host."""
    BALANCERS = "balancers"
    """All clients; those that are not operators get no reasons."""


class ServedPage(NamedTuple):
    """A page, and the clients that may read it."""

    make: PageMaker
    readers: PageReaders


class HttpServer:
    """A listening port that serves a few pages, and applications."""

    def __init__(
        self,
        pages: Mapping[str, ServedPage],
        access: AccessRules,
        applications: Mapping[str, Application] | None = None,
        knows_name: Callable[[str], bool] = lambda _named: True,
    ) -> None:
        """*knows_name* returns whether browsers may read pages under the name in a Host line."""
        self._knows_name = knows_name
        self.pages = pages
        """By path."""
        self.applications = dict(applications or {})
        """By the first folder of their paths; they check permissions themselves."""
        self._access = access
        self._listener: Listener | None = None
        self.connections: set[_HttpServerConnection] = set()
        """Connections without a complete request."""
        self._unfinished = Unfinished(has_users=guard_of(access) is not None)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start_on(self, bound: socket.socket, gate: Gate = OPEN) -> None:
        """Listen on a socket that is bound already; the server owns it from now on."""
        listener = Listener(
            bound, lambda caller: _HttpServerConnection(self, caller), name="http", gate=gate
        )
        await listener.start()
        self._listener = listener

    async def close(self) -> None:
        """Stop listening, cancel the responses in progress and drop incomplete requests."""
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None
        for connection in list(self.connections):
            connection.abort()
        for task in list(self._tasks):
            end_task(task)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def count_unfinished(self, size_bytes: int) -> None:
        """Count held bytes of requests, and close connections that hold too much."""
        self._unfinished.count(size_bytes, self.connections)

    def answer(self, connection: "_HttpServerConnection", request: HttpRequest) -> None:
        """Serve *request* on *connection*."""
        task = run_in_background(self._answer(connection, request), "a page")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def application(self, path: str) -> Application | None:
        """Return the application that owns this path."""
        return self.applications.get(path.split("/", 2)[1] if path.startswith("/") else "")

    async def _answer(self, connection: "_HttpServerConnection", request: HttpRequest) -> None:
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
        # Probes use any name. Browsers always send a name and languages: an unknown name may belong
        # to another site that points here to read the operators' pages.
        named = request.headers.get("host")
        is_kept = served.readers is PageReaders.OPERATORS or "accept-language" in request.headers
        if is_kept and named is not None and not self._knows_name(named):
            return unknown_name(named)
        refused = self._refusal(request)
        if refused is not None and served.readers is PageReaders.OPERATORS:
            return refused
        page = await served.make()
        if refused is not None:
            return Page(b"ok\n" if page.status == _OK else b"not ok\n", page.status)
        return page

    def _refusal(self, request: HttpRequest) -> Page | None:
        """Return the response that replaces an operator's page; None if an operator asks."""
        access = self._access
        if access.is_open or is_loopback(request.host):
            return None
        principal = identify_caller(access, request)
        if isinstance(principal, Page):
            return principal
        if access.may(principal, Action.GET, CLUSTER):
            return None
        return Page(f"{principal.user} is not allowed to Get Cluster:*\n".encode(), 403)


def unknown_name(host_line: str) -> Page:
    """Return the response for a host name that may belong to another site."""
    return Page(
        f"{host_line[:200]!a} is not a known name of this broker: use its address, or add the "
        "name to consoleHosts\n".encode(),
        421,
    )


def identify_caller(access: AccessRules, request: HttpRequest) -> Principal | Page:
    """Return the principal of *request*, by HTTP Basic if there are users, or an error page."""
    if not isinstance(access, Guard) or access.is_open:
        return Principal(request.host)
    given = basic_credentials(request)
    if given is None:
        return Page(b"say who you are: a user and his secret, by HTTP Basic\n", _UNAUTHORIZED)
    try:
        return access.authenticator.prove(*given, request.host)
    except NotAuthenticated as error:
        return Page(f"{error}\n".encode(), _UNAUTHORIZED)


class _HttpServerConnection(asyncio.Protocol):
    """Collects one request, then sends its response."""

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
        """The received bytes of an incomplete request."""
        return len(self._received)

    @property
    def is_known(self) -> bool:
        """Always False: no peer is authenticated before its request is complete."""
        return False

    def drop_held(self, reason: str) -> None:
        """Drop these bytes, and close at once."""
        log.info("connection closed", peer=self._host, reason=reason)
        self._received.clear()
        self.abort()

    def abort(self) -> None:
        """Close at once."""
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
        """Read the head once it is complete, and the size of the body; return a page on errors."""
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
        """Write the response and close; a closed peer is not an error.

        If there is more to read, closing would reset the connection and lose the response.
        """
        if self._transport is None or self._transport.is_closing():
            return
        from http import HTTPStatus  # its texts; a broker that nobody asks needs none

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
    """Return the request without its body; None if it is invalid, or repeats host or length."""
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
    """Return user and secret of an Authorization line; None without a valid one."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(token.strip(), validate=True).decode()
    except ValueError:
        return None
    user, separator, secret = text.partition(":")
    return (user, secret) if separator else None
