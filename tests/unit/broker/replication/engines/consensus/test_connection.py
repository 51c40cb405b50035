"""HTTP as servers write it, and as they should not."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.replication.engines.consensus.connection import (
    BODY_SIZE_BYTES_MAX,
    HttpConnection,
    HttpStatusError,
    MalformedHttpError,
    ServiceRequest,
)
from rockhopper.sockets import close_server
from tests.support.fake_etcd import chunked, refused

GET = ServiceRequest("GET", "/")
OK = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Answers each request with the next of some bytes; None closes the connection."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.answers: list[bytes | None] = []
        self.pause = asyncio.Event()
        self.port = 0
        self.tasks: list[asyncio.Task[None] | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.tasks.append(asyncio.current_task())
        for answer in self.answers:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            self.requests.append(head + await reader.readexactly(length))
            if answer is None:
                break
            writer.write(answer)
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    listener = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = listener.sockets[0].getsockname()[1]
    yield found
    await close_server(listener)
    for task in found.tasks:
        assert task
        await task


async def connected(server: Server, *answers: bytes | None) -> HttpConnection:
    server.answers.extend(answers)
    return await HttpConnection.open("127.0.0.1", server.port, timeout_s=60)


async def test_a_request_and_an_answer_with_a_length(server: Server) -> None:
    connection = await connected(server, OK + b"Content-Length: 2\r\n\r\n{}")
    assert (
        await connection.ask(ServiceRequest("POST", "/v3/kv/range", b'{"a":1}', "secret")) == b"{}"
    )
    assert server.requests == [
        b"POST /v3/kv/range HTTP/1.1\r\n"
        + f"Host: 127.0.0.1:{server.port}\r\n".encode()
        + b"Content-Type: application/json\r\nContent-Length: 7\r\n"
        + b'Authorization: secret\r\n\r\n{"a":1}'
    ]
    connection.close()


async def test_answers_follow_each_other_on_one_connection(server: Server) -> None:
    trailed = chunked(200, b"second", b"Some: trailer\r\nAnd: another\r\n")
    connection = await connected(
        server,
        chunked(200, b"first"),
        trailed,
        refused(404, 5, "no such lease"),
        chunked(200, b"x"),
    )
    assert await connection.ask(GET) == b"first"
    assert await connection.ask(GET) == b"second"
    with pytest.raises(HttpStatusError) as error:
        await connection.ask(GET)
    assert error.value.status == 404
    assert error.value.body.startswith(b'{"error": "no such lease"')
    assert connection.is_usable
    assert await connection.ask(GET) == b"x"
    connection.close()
    assert not connection.is_usable


async def test_an_answer_may_end_with_the_connection(server: Server) -> None:
    connection = await connected(server, OK + b"\r\nall of it")
    assert await connection.ask(GET) == b"all of it"
    assert not connection.is_usable
    connection.close()


async def test_a_server_that_wants_to_close_is_asked_no_more(server: Server) -> None:
    answer = OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n"
    connection = await connected(server, answer)
    assert await connection.ask(GET) == b""
    assert not connection.is_usable
    connection.close()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 200",
        OK + b"Content-Length: 5\r\n\r\n{}",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ],
)
async def test_half_an_answer_is_none(server: Server, answer: bytes | None) -> None:
    connection = await connected(server, answer)
    with pytest.raises(ConnectionResetError, match="before its answer was complete"):
        await connection.ask(GET)
    assert not connection.is_usable
    connection.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "not an HTTP"),
        (b"HTTP/1.1 abc\r\n", "not an HTTP"),
        (OK + b"Content-Length: two\r\n\r\n", "a length of 'two'"),
        (OK + b"Content-Length: -2\r\n\r\n", "a length of '-2'"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "a length of 'zz'"),
        (OK + b"Content-Length: 99999999\r\n\r\n", "an answer of over"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n", "an answer of over"),
        (OK + b"X: " + bytes(100_000), "a line of over"),
        (OK + b"X: y\r\n" * 200, "lines of headers"),
    ],
)
async def test_what_makes_no_sense_is_an_error(server: Server, answer: bytes, reason: str) -> None:
    connection = await connected(server, answer)
    with pytest.raises(MalformedHttpError, match=reason):
        await connection.ask(GET)
    assert not connection.is_usable
    connection.close()


async def test_many_chunks_are_bounded_as_one(server: Server) -> None:
    part = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    count = BODY_SIZE_BYTES_MAX // (1 << 20) + 1
    connection = await connected(server, OK + b"Transfer-Encoding: chunked\r\n\r\n" + part * count)
    with pytest.raises(MalformedHttpError, match="an answer of over"):
        await connection.ask(GET)
    connection.close()


async def test_lines_of_a_stream_do_not_depend_on_chunks(server: Server) -> None:
    body = b"3\r\n{a}\r\n4\r\n\n{b}\r\n5\r\n\n{c}\n\r\n2\r\n{d\r\n1\r\n}\r\n0\r\n\r\n"
    connection = await connected(server, OK + b"Transfer-Encoding: chunked\r\n\r\n" + body)
    lines = [line async for line in connection.stream(GET)]
    assert lines == [b"{a}", b"{b}", b"{c}", b"{d}"]
    connection.close()


async def test_a_refused_stream_is_an_error(server: Server) -> None:
    connection = await connected(server, refused(401, 16, "invalid auth token"))
    with pytest.raises(HttpStatusError):
        await anext(connection.stream(GET))
    connection.close()


async def test_a_line_of_a_stream_is_bounded(server: Server) -> None:
    part = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    count = BODY_SIZE_BYTES_MAX // (1 << 20) + 1
    connection = await connected(server, OK + b"Transfer-Encoding: chunked\r\n\r\n" + part * count)
    with pytest.raises(MalformedHttpError, match="a line of over"):
        await anext(connection.stream(GET))
    connection.close()
