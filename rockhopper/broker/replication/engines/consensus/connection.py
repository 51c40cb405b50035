"""One HTTP/1.1 connection: send a request, read its answer or a stream.

An answer has a length, is chunked (with trailers behind the last chunk), or ends with the
connection. Sizes are bounded, so that a server that is not an engine cannot exhaust memory.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Self

from rockhopper.protocol.addresses import join_address
from rockhopper.sockets import connect

BODY_SIZE_BYTES_MAX = 8 << 20
LINE_SIZE_BYTES_MAX = 64 << 10
HEADER_LINES_MAX = 100


class MalformedHttpError(Exception):
    """The answer is not HTTP, or exceeds a limit."""


class HttpStatusError(Exception):
    """The server answered with an error status."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """An HTTP request; a body, if any, is JSON."""

    method: str
    path: str
    body: bytes = b""
    authorization: str = ""
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class _Head:
    status: int
    headers: dict[str, str]

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_chunked(self) -> bool:
        return self.headers.get("transfer-encoding", "").lower() == "chunked"


class HttpConnection:
    """A connection for one request at a time. Reads wait forever: callers set the time limits."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host
        self._is_idle = True

    @classmethod
    async def open(
        cls, host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None = None
    ) -> Self:
        """Connect and do the TLS handshake.

        Raise OSError, also if TCP takes longer than *timeout_s*.
        """
        reader, writer = await asyncio.open_connection(
            sock=await connect(host, port, timeout_s),
            ssl=tls,
            server_hostname=None if tls is None else host,
            limit=LINE_SIZE_BYTES_MAX,
        )
        return cls(reader, writer, join_address(host, port))

    @property
    def is_usable(self) -> bool:
        """Whether it can send another request.

        The last answer was complete and neither side closed it.
        """
        return self._is_idle and not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        """Close the connection at once, even during a request."""
        self._writer.transport.abort()

    async def ask(self, request: ServiceRequest) -> bytes:
        """Send a request and return the body of its answer.

        Raises:
            HttpStatusError: the server refused it.
            MalformedHttpError: the answer is not valid HTTP.
            OSError: the connection broke.
        """
        head = await self._head_of(request)
        answer = await self._read_whole(head)
        if not head.is_success:
            raise HttpStatusError(head.status, answer)
        return answer

    async def stream(self, request: ServiceRequest) -> AsyncGenerator[bytes, None]:
        """Send a request whose answer is a stream, and yield its lines; raises as ``ask``."""
        head = await self._head_of(request)
        if not head.is_success:
            raise HttpStatusError(head.status, await self._read_whole(head))
        rest = b""
        async with aclosing(self._parts(head)) as parts:
            async for part in parts:
                *lines, rest = (rest + part).split(b"\n")
                if len(rest) > BODY_SIZE_BYTES_MAX:
                    raise MalformedHttpError(f"a line of over {BODY_SIZE_BYTES_MAX:,} bytes")
                for line in lines:
                    yield line
        if rest:
            yield rest

    async def _head_of(self, request: ServiceRequest) -> _Head:
        self._is_idle = False
        lines = [
            f"{request.method} {request.path} HTTP/1.1",
            f"Host: {self._host}",
            f"Content-Type: {request.content_type}",
            f"Content-Length: {len(request.body)}",
            *([f"Authorization: {request.authorization}"] if request.authorization else []),
        ]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + request.body)
        await self._writer.drain()
        version, _, rest = (await self._line()).partition(" ")
        status = rest[:3]
        if not version.startswith("HTTP/1.") or not status.isdecimal():
            raise MalformedHttpError("not an HTTP answer")
        headers = {}
        for line in await self._lines():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return _Head(int(status), headers)

    async def _read_whole(self, head: _Head) -> bytes:
        answer = bytearray()
        async with aclosing(self._parts(head)) as parts:
            async for part in parts:
                answer += part
                _check_size(len(answer))
        return bytes(answer)

    async def _parts(self, head: _Head) -> AsyncGenerator[bytes, None]:
        if head.is_chunked:
            while size_bytes := _number(await self._line(), 16):
                yield await self._read_exactly(size_bytes)
                await self._line()
            await self._lines()
        elif (length := head.headers.get("content-length")) is not None:
            yield await self._read_exactly(_number(length, 10))
        else:
            while part := await self._reader.read(LINE_SIZE_BYTES_MAX):
                yield part
        self._is_idle = head.headers.get("connection", "").lower() != "close"

    async def _lines(self) -> list[str]:
        lines: list[str] = []
        while line := await self._line():
            lines.append(line)
            if len(lines) > HEADER_LINES_MAX:
                raise MalformedHttpError(f"over {HEADER_LINES_MAX} lines of headers")
        return lines

    async def _line(self) -> str:
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            raise MalformedHttpError(f"a line of over {LINE_SIZE_BYTES_MAX:,} bytes") from None
        except asyncio.IncompleteReadError:
            raise _build_error() from None
        return line.decode("latin-1").rstrip("\r\n")

    async def _read_exactly(self, size_bytes: int) -> bytes:
        _check_size(size_bytes)
        try:
            return await self._reader.readexactly(size_bytes)
        except asyncio.IncompleteReadError:
            raise _build_error() from None


def _check_size(size_bytes: int) -> None:
    if size_bytes > BODY_SIZE_BYTES_MAX:
        raise MalformedHttpError(f"an answer of over {BODY_SIZE_BYTES_MAX:,} bytes")


def _number(text: str, base: int) -> int:
    digits = text.partition(";")[0].strip()
    try:
        number = int(digits, base)
    except ValueError:
        number = -1
    if number < 0:
        raise MalformedHttpError(f"a length of {digits[:20]!r}")
    return number


def _build_error() -> ConnectionResetError:
    return ConnectionResetError("it closed the connection before its answer was complete")
