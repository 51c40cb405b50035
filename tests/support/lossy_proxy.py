"""A proxy that loses answers: the request arrives, but its answer does not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rockhopper.protocol.addresses import split_address
from rockhopper.sockets import close_server


class LossyProxy:
    """Passes everything on unless a test changes that."""

    def __init__(self, address: str) -> None:
        self.address = ""
        self.is_losing = False
        """Whether it closes a connection when an answer arrives."""
        self._host, self._port = split_address(address)
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["LossyProxy"]:
        """Serve on a free port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        try:
            yield self
        finally:
            await close_server(server)
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        there, back = await asyncio.open_connection(self._host, self._port)
        requests = asyncio.ensure_future(self._pass(reader, back))
        try:
            await self._pass(there, writer, may_lose=True)
        except (asyncio.CancelledError, ConnectionError):
            pass
        finally:
            requests.cancel()
            self._tasks.discard(task)
            writer.close()
            back.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, may_lose: bool = False
    ) -> None:
        while data := await reader.read(65536):
            if may_lose and self.is_losing:
                return
            writer.write(data)
            await writer.drain()
        writer.close()
