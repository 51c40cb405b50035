"""A bare uvloop echo: the yardstick that makes figures from different machines comparable.

It does the minimum of any broker of this design: it splits the stream into frames by their length
word and answers every frame with one of the same size, all answers of one pass in one write. It
prints its port, and serves until it is killed.
"""

import asyncio
import struct
from typing import cast

import uvloop

LENGTH = struct.Struct(">I")


class Echo(asyncio.Protocol):
    """Answers each complete frame with itself."""

    def __init__(self) -> None:
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Split *data* into frames and write them back in one piece."""
        if self._pending:
            data = self._pending + data
        frames = []
        start, last_start = 0, len(data) - LENGTH.size
        while start <= last_start:
            stop = start + LENGTH.size + LENGTH.unpack_from(data, start)[0]
            frame = data[start:stop]
            if stop - start > len(frame):
                break
            frames.append(frame)
            start = stop
        self._pending = data[start:]
        if frames:
            self._transport.write(b"".join(frames))


async def serve() -> None:
    """Listen on a free port of the loopback address."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
