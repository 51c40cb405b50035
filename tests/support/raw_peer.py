"""A peer that writes any bytes and reads the answers."""

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Self

from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import FrameDecoder
from tests.support.hang import HANG_S

_HEAD = struct.Struct(">II")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def frame(header: bytes | str, body: bytes = b"", serialize_type: int = 0) -> bytes:
    """Return a frame with correct lengths around any header."""
    if isinstance(header, str):
        header = header.encode()
    word = serialize_type << 24 | len(header)
    return _HEAD.pack(4 + len(header) + len(body), word) + header + body


def request(
    code: int,
    ext: Mapping[str, object] | None = None,
    body: bytes = b"",
    *,
    opaque: int = 1,
    flag: int = 0,
) -> bytes:
    """Return a request as a foreign client writes it: code first, unchanged ext values."""
    header: dict[str, object] = {"code": code}
    if ext is not None:
        header["extFields"] = dict(ext)
    header |= {"flag": flag, "language": "JAVA", "opaque": opaque, "version": 479}
    return frame(json.dumps(header, separators=(",", ":")), body)


async def until(condition: Callable[[], bool]) -> None:
    """Run the event loop until *condition* holds."""
    async with asyncio.timeout(HANG_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


class RawPeer:
    """One connection to *address*; optionally over a socket *opened* elsewhere."""

    def __init__(
        self,
        address: str,
        *,
        receive_buffer_bytes: int = 0,
        opened: socket.socket | None = None,
    ) -> None:
        self._address = address
        self._opened = opened
        self._receive_buffer_bytes = receive_buffer_bytes
        self._decoder = FrameDecoder()
        self._answers: list[Command] = []

    async def __aenter__(self) -> Self:
        host, _, port = self._address.rpartition(":")
        opened = self._opened or socket.socket()
        opened.setblocking(False)
        if self._receive_buffer_bytes:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(opened, (host, int(port)))
        except BaseException:
            opened.close()
            raise
        self._socket = opened
        self._reader, self._writer = await asyncio.open_connection(sock=opened, limit=1 << 12)
        self.name = "{}:{}".format(*opened.getsockname())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    def send(self, data: bytes) -> None:
        """Write bytes; raise ConnectionError if the other side has broken the connection."""
        if self._writer.is_closing():  # uvloop would raise RuntimeError
            raise ConnectionResetError(f"{self._address} has hung up")
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the operating system has the bytes."""
        await self._writer.drain()

    def finish(self) -> None:
        """Send FIN and keep reading."""
        self._writer.write_eof()

    def reset(self) -> None:
        """Break the connection with RST, like a dying process."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._writer.transport.abort()

    async def answer(self) -> Command:
        """Return the next frame of the other side; raise EOFError if it closes."""
        async with asyncio.timeout(HANG_S):
            while not self._answers:
                data = await self._reader.read(1 << 16)
                if not data:
                    raise EOFError(f"{self._address} closed the connection")
                for serialize_type, header, body in self._decoder.feed(data):
                    self._answers.append(decode_header(serialize_type, header, body))
        return self._answers.pop(0)

    async def answers(self, count: int) -> list[Command]:
        """Return the next *count* frames."""
        return [await self.answer() for _ in range(count)]

    async def ask(
        self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b""
    ) -> Command:
        """Send a request and return the next frame as its answer."""
        self.send(request(code, ext, body))
        return await self.answer()

    async def until_closed(self) -> bytes:
        """Return everything up to the close by the other side."""
        received = b""
        try:
            async with asyncio.timeout(HANG_S):
                while data := await self._reader.read(1 << 16):
                    received += data
        except ConnectionError:
            pass
        return received
