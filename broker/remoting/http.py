"""The operator's port: /healthz, /readyz and /metrics over HTTP/1.1, GET and HEAD only.

Every answer closes its connection, so there is no state to keep. A page is made by a function
that the owner registers; one that takes long runs in a thread.

Where there are users, who comes from another host says by HTTP's Basic authentication which of them
he is, and may read what ``may(principal, GET, cluster)`` allows. Others are told the states, for
balancers ask for them, and no reasons.
"""

import asyncio
import base64
import socket
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import NamedTuple, cast

import structlog

from rockhopper.broker.access.access import CLUSTER, Access, Action
from rockhopper.broker.access.errors import NotAuthenticated
from rockhopper.broker.access.guard import Guard
from rockhopper.broker.listening.caller import Caller
from rockhopper.broker.listening.listener import OPEN, Gate, Listener
from rockhopper.broker.listening.socket_names import socket_address
from rockhopper.protocol.addresses import is_loopback

log = structlog.get_logger("broker.http")

REQUEST_SIZE_BYTES_MAX = 8192
REQUEST_TIMEOUT_S = 10.0
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


_OK, _UNAUTHORIZED = 200, 401
_CHALLENGE = 'WWW-Authenticate: Basic realm="rockhopper", charset="UTF-8"\r\n'


class Page(NamedTuple):
    """An answer."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


PageMaker = Callable[[], Awaitable[Page]]


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
    """A listening port that serves a few pages."""

    def __init__(self, pages: Mapping[str, ServedPage], access: Access) -> None:
        self.pages = pages
        """By path."""
        self._access = access
        self._listener: Listener | None = None
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
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def answer(self, connection: "_Connection", head: bytes) -> None:
        """Serve the request in *head* on *connection*."""
        task = asyncio.get_running_loop().create_task(self._answer(connection, head))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, connection: "_Connection", head: bytes) -> None:
        method, path = _parse_request_line(head)
        page = await self._make_page(method, path, connection.host, head)
        connection.finish(page, with_body=method != "HEAD")

    async def _make_page(self, method: str, path: str, host: str, head: bytes) -> Page:
        if not method:
            return Page(b"this is no HTTP request\n", 400)
        if method not in ("GET", "HEAD"):
            return Page(b"only GET and HEAD are served\n", 405)
        served = self.pages.get(path)
        if served is None:
            return Page(f"served are {', '.join(sorted(self.pages))}\n".encode(), 404)
        refused = self._refusal(host, head)
        if refused is not None and served.readers is Readers.OPERATORS:
            return refused
        try:
            page = await served.make()
        except Exception as error:
            log.error("page failed", path=path, exc_info=error)
            return Page(b"see the broker's log\n", 500)
        if refused is not None:
            return Page(b"ok\n" if page.status == _OK else b"not ok\n", page.status)
        return page

    def _refusal(self, host: str, head: bytes) -> Page | None:
        """What somebody is told instead of what operators are; None for an operator."""
        access = self._access
        if not isinstance(access, Guard) or access.is_open or is_loopback(host):
            return None
        given = _basic_credentials(head)
        if given is None:
            return Page(b"say who you are: a user and his secret, by HTTP Basic\n", 401)
        try:
            principal = access.authenticator.prove(*given, host)
        except NotAuthenticated as error:
            return Page(f"{error}\n".encode(), 401)
        if access.may(principal, Action.GET, CLUSTER):
            return None
        return Page(f"{principal.user} may not Get Cluster:*\n".encode(), 403)


class _Connection(asyncio.Protocol):
    """Collects one request head, then belongs to its answer."""

    def __init__(self, server: HttpServer, caller: Caller) -> None:
        self._server = server
        self._caller = caller
        self.host = ""
        """Where the request comes from."""
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._is_complete = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport in all but inheritance.
        self._transport = cast("asyncio.Transport", transport)
        self.host, _ = socket_address(self._caller.address or transport.get_extra_info("peername"))
        self._timeout = asyncio.get_running_loop().call_later(
            REQUEST_TIMEOUT_S, self._transport.abort
        )

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._is_complete:
            return
        self._received += data
        if b"\r\n\r\n" in self._received or b"\n\n" in self._received:
            self._is_complete = True
            self._server.answer(self, bytes(self._received))
        elif len(self._received) > REQUEST_SIZE_BYTES_MAX:
            self._is_complete = True
            self.finish(Page(b"the request is too long\n", 400), with_body=True)

    def finish(self, page: Page, *, with_body: bool) -> None:
        """Write the answer and close; a peer that has gone is not an error."""
        if self._transport is None or self._transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\n"
            f"Content-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\n"
            f"{_CHALLENGE if page.status == _UNAUTHORIZED else ''}"
            "Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode("ascii") + (page.body if with_body else b""))
        self._transport.close()


def _parse_request_line(head: bytes) -> tuple[str, str]:
    """Method and path without query; two empty strings when it is no request line."""
    parts = head.split(b"\n", 1)[0].decode("latin-1").split()
    if len(parts) != 3 or not parts[2].startswith("HTTP/"):
        return "", ""
    return parts[0], parts[1].partition("?")[0]


def _basic_credentials(head: bytes) -> tuple[str, str] | None:
    """User and secret of an Authorization line; None without one that can be read."""
    for line in head.split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() != b"authorization":
            continue
        scheme, _, token = value.strip().partition(b" ")
        if scheme.lower() != b"basic":
            return None
        try:
            text = base64.b64decode(token.strip(), validate=True).decode()
        except ValueError:
            return None
        user, separator, secret = text.partition(":")
        return (user, secret) if separator else None
    return None
