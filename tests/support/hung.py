"""A broker that hangs: it accepts connections and requests, but sends no answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rockhopper.broker import Broker
from rockhopper.protocol.frame import FrameDecoder
from tests.support.listening import listening


class Hung:
    """Counts the requests."""

    def __init__(self) -> None:
        self.requests = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder()
        while data := await reader.read(1 << 16):
            self.requests += len(list(decoder.feed(data)))
        writer.close()


@asynccontextmanager
async def hanging(broker: Broker) -> AsyncIterator[Hung]:
    """Listen at the address of *broker*, which is still registered."""
    host, _, port = broker.address.rpartition(":")
    await broker.servers.remoting.close()
    hung = Hung()
    async with listening(hung.take, host, int(port)):
        yield hung
