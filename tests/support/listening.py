"""A server for a test that ends with it, whatever its peers do.

Since CPython 3.12 an ``asyncio.Server`` waits at its end for every connection: a peer that stays
connected would block the test for ever.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from rockhopper.sockets import close_server

Take = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(take: Take, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """Serve each connection by *take* and yield the port; connections are cut at the end."""
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        await take(reader, writer)

    server = await asyncio.start_server(serve, host, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await close_server(server)
        for writer in writers:
            writer.transport.abort()
