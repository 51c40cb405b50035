"""A client that sends and receives frames, for tests over a real socket."""

import asyncio
from types import TracebackType

from rockhopper.protocol.codes import FLAG_ONEWAY, RequestCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import FrameDecoder
from tests.support.hang import HANG_S


class WireClient:
    """One connection: send a request and wait for its answer, or wait for a push of the broker."""

    def __init__(self, address: str, *, source: str = "") -> None:
        """*source* is an address of this host to connect from, if it matters."""
        host, _, port = address.rpartition(":")
        self._host, self._port = host, int(port)
        self._source = (source, 0) if source else None
        self._opaque = 0
        self._answers: dict[int, asyncio.Future[Command]] = {}
        self.pushed: asyncio.Queue[Command] = asyncio.Queue()

    async def __aenter__(self) -> "WireClient":
        self._reader, self._writer = await asyncio.open_connection(
            self._host, self._port, local_addr=self._source
        )
        self.task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        await self.task

    async def _read(self) -> None:
        decoder = FrameDecoder()
        try:
            while data := await self._reader.read(1 << 16):
                for serialize_type, header, body in decoder.feed(data):
                    self._take(decode_header(serialize_type, header, body))
        except ConnectionError:
            return

    def _take(self, command: Command) -> None:
        if command.is_response:
            self._answers.pop(command.opaque).set_result(command)
        else:
            self.pushed.put_nowait(command)

    def send(
        self, code: RequestCode, ext: dict[str, str] | None = None, body: bytes = b""
    ) -> "asyncio.Future[Command]":
        """Send a request; the future receives its answer.

        Raises:
            ConnectionError: the broker has hung up.
        """
        if self._writer.is_closing():  # uvloop would raise RuntimeError
            raise ConnectionResetError("the broker has hung up")
        self._opaque += 1
        answer = self._answers[self._opaque] = asyncio.get_running_loop().create_future()
        command = Command(code=code, opaque=self._opaque, ext=ext, body=body)
        self._writer.write(encode_command(command))
        return answer

    def send_oneway(self, code: RequestCode, ext: dict[str, str], body: bytes = b"") -> None:
        """Send a request without an answer."""
        self._opaque += 1
        command = Command(code=code, opaque=self._opaque, flag=FLAG_ONEWAY, ext=ext, body=body)
        self._writer.write(encode_command(command))

    async def ask(
        self, code: RequestCode, ext: dict[str, str] | None = None, body: bytes = b""
    ) -> Command:
        """Send a request and wait for its answer."""
        async with asyncio.timeout(HANG_S):
            return await self.send(code, ext, body)

    async def next_push(self) -> Command:
        """Return the next request that the broker pushes."""
        async with asyncio.timeout(HANG_S):
            return await self.pushed.get()
