"""The operator's port: a few pages, GET and HEAD, and nothing that a stranger can hold open."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.remoting import http
from rockhopper.broker.remoting.http import HttpServer, Page

Ask = Callable[[bytes], Awaitable[bytes]]


async def fine() -> Page:
    return Page(b"fine\n")


async def broken() -> Page:
    raise RuntimeError("secret")


async def serve(server: HttpServer) -> AsyncIterator[Ask]:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    await server.start_on(bound)

    async def ask(request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    yield ask
    await server.close()


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    async for each in serve(HttpServer({"/fine": fine, "/broken": broken})):
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
