"""The operator's port: a few pages, GET and HEAD, and nothing that a stranger can hold open."""

import asyncio
import base64
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.server.listening.listener import OPEN, Gate
from rockhopper.broker.server.listening.proxy_protocol import ProxyProtocol
from rockhopper.broker.server.remoting import http
from rockhopper.broker.server.remoting.http import (
    HttpRequest,
    HttpServer,
    Page,
    PageReaders,
    ServedPage,
)
from rockhopper.broker.users.access import AccessRules
from rockhopper.broker.users.accounts import User
from rockhopper.broker.users.guard import Guard
from tests.support.hang import HANG_S

Ask = Callable[[bytes], Awaitable[bytes]]


async def fine() -> Page:
    return Page(b"fine\n")


async def broken() -> Page:
    raise RuntimeError("secret")


async def sick() -> Page:
    return Page(b"the disk is full\n", 503)


PAGES = {
    "/fine": ServedPage(fine, PageReaders.OPERATORS),
    "/broken": ServedPage(broken, PageReaders.OPERATORS),
    "/state": ServedPage(fine, PageReaders.BALANCERS),
    "/sick": ServedPage(sick, PageReaders.BALANCERS),
}


async def serve(server: HttpServer, gate: Gate = OPEN) -> AsyncIterator[Ask]:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    await server.start_on(bound, gate)

    async def ask(request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    yield ask
    await server.close()


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_accepted_as_the_port_closes_is_closed(turns: int) -> None:
    server = HttpServer(PAGES, AccessRules(remote_admin=False))
    bound = socket.create_server(("127.0.0.1", 0))
    address = bound.getsockname()
    await server.start_on(bound)
    with socket.create_connection(address, timeout=HANG_S) as peer:
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.close()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(peer.recv, 1) == b""


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    async for each in serve(HttpServer(PAGES, AccessRules(remote_admin=False))):
        yield each


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /fine HTTP/1.1", b"200 OK", b"fine\n"),
        (b"GET /fine?x=1 HTTP/1.0", b"200 OK", b"fine\n"),
        (b"HEAD /fine HTTP/1.1", b"200 OK", b""),
        (b"GET /other HTTP/1.1", b"404 Not Found", None),
        (b"POST /fine HTTP/1.1", b"405 Method Not Allowed", None),
        (b"nonsense", b"400 Bad Request", None),
        (b"GET /fine SPDY/1", b"400 Bad Request", None),
    ],
)
async def test_every_request_is_answered(
    ask: Ask, request_line: bytes, status: bytes, body: bytes | None
) -> None:
    head, _, found = (await ask(request_line + b"\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert b"Connection: close" in head
    if body is not None:
        assert found == body
        assert b"Content-Length: 5" in head


async def test_bare_newlines_end_a_request_too(ask: Ask) -> None:
    assert (await ask(b"GET /fine HTTP/1.1\n\n")).endswith(b"fine\n")


async def test_a_page_that_fails_says_nothing_of_why(ask: Ask) -> None:
    with capture_logs() as logs:
        answer = await ask(b"GET /broken HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"secret" not in answer
    assert len(logs) == 1


async def test_a_request_that_is_too_long_is_refused(ask: Ask) -> None:
    answer = await ask(b"GET /" + b"x" * http.REQUEST_SIZE_BYTES_MAX)
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_who_never_asks_is_cut_off(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 0.0)
    outcome = (await asyncio.gather(ask(b"GET /fine"), return_exceptions=True))[0]
    assert outcome == b"" or isinstance(outcome, ConnectionError)


ELSEWHERE = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 9464\r\n"
USERS = {
    "root": User("root", "the secret of root", is_super=True),
    "al": User("al", "the secret of al"),
    "gone": User("gone", "the secret of gone", is_super=True, is_enabled=False),
}


@pytest.fixture
async def guarded() -> AsyncIterator[Ask]:
    """Pages for users; what is asked may begin with a line that says from where."""
    guard = Guard(remote_admin=False, authenticates=True, authorizes=True)
    guard.use(USERS, {})
    proxy = ProxyProtocol([ipaddress.ip_network("127.0.0.0/8")])
    async for each in serve(HttpServer(PAGES, guard), Gate(None, proxy)):
        yield each


def as_user(path: str, said: str, scheme: str = "Basic") -> bytes:
    token = base64.b64encode(said.encode()).decode()
    return f"GET {path} HTTP/1.1\r\nauthorization: {scheme} {token}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("root:the secret of root", 200),
        ("root:guessed", 401),
        ("nobody:the secret of root", 401),
        ("gone:the secret of gone", 401),
        ("al:the secret of al", 403),
        ("root", 401),
    ],
)
async def test_operators_say_who_they_are(guarded: Ask, said: str, status: int) -> None:
    head, _, body = (await guarded(ELSEWHERE + as_user("/fine", said))).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert (b"WWW-Authenticate: Basic" in head) == (status == 401)
    assert (body == b"fine\n") == (status == 200)
    assert b" of root" not in body
    assert b"guessed" not in body


@pytest.mark.parametrize(
    "line",
    ["", "Authorization: Bearer x\r\n", "Authorization: Basic \xe4\r\n", "authorization\r\n"],
)
async def test_who_says_nothing_gets_states_without_reasons(guarded: Ask, line: str) -> None:
    def asked(path: str) -> bytes:
        return ELSEWHERE + f"GET {path} HTTP/1.1\r\n{line}\r\n".encode("latin-1")

    assert (await guarded(asked("/fine"))).startswith(b"HTTP/1.1 401 ")
    assert (await guarded(asked("/state"))).endswith(b"\r\n\r\nok\n")
    told = await guarded(asked("/sick"))
    assert told.startswith(b"HTTP/1.1 503 ")
    assert told.endswith(b"\r\n\r\nnot ok\n")
    whole = await guarded(ELSEWHERE + as_user("/sick", "root:the secret of root"))
    assert whole.endswith(b"the disk is full\n")


async def test_this_host_reads_as_before(guarded: Ask) -> None:
    assert (await guarded(b"GET /fine HTTP/1.1\r\n\r\n")).endswith(b"fine\n")


@pytest.mark.parametrize(
    "line", ["X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1", "Host: localhost"]
)
async def test_this_host_is_who_connects_from_it_whatever_he_says(guarded: Ask, line: str) -> None:
    asked = f"GET /fine HTTP/1.1\r\n{line}\r\n\r\n".encode()
    assert (await guarded(ELSEWHERE + asked)).startswith(b"HTTP/1.1 401 ")
    assert (await guarded(asked)).endswith(b"fine\n")


async def echo(request: HttpRequest) -> Page:
    shown = f"{request.method} {request.path} {request.query} {request.headers.get('x-a')} "
    return Page(shown.encode() + request.body, headers=(("X-B", "b"),))


@pytest.fixture
async def application() -> AsyncIterator[Ask]:
    server = HttpServer(PAGES, AccessRules(remote_admin=False), {"app": echo})
    async for each in serve(server):
        yield each


async def test_an_application_sees_the_whole_request(application: Ask) -> None:
    answer = await application(b"GET /app/x?q=1 HTTP/1.1\r\nX-A: a:b \r\n\r\n")
    assert b"\r\nX-B: b\r\n" in answer
    assert answer.endswith(b"\r\n\r\nGET /app/x q=1 a:b ")
    assert (await application(b"GET /apple HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 ")


async def test_a_form_may_come_in_pieces(application: Ask) -> None:
    head = b"POST /app HTTP/1.1\r\nContent-Length: 5\r\n\r\n"
    assert (await application(head + b"a=123more")).endswith(b"a=123")
    assert (await application(b"POST /app HTTP/1.1\nContent-Length: 0\n\n")).endswith(b"None ")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"POST /app HTTP/1.1\r\n\r\n", b"411"),
        (b"POST /app HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"411"),
        (b"POST /app HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n" + b"x" * 1_048_577, b"413"),
        (b"POST /app HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
        (b"POST /app HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (b"GET /app HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"POST /fine HTTP/1.1\r\nContent-Length: 1\r\n\r\n", b"405"),
    ],
)
async def test_forms_that_cannot_be_read_are_refused(
    application: Ask, request_head: bytes, status: bytes
) -> None:
    assert (await application(request_head)).startswith(b"HTTP/1.1 " + status)
