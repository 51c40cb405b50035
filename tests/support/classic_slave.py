"""A RocketMQ slave made by hand: it reports what a test says, and keeps the frames that come."""

import asyncio
from typing import Self

from rockhopper.protocol.ha_frames import HaFrame, HaFrameDecoder, encode_report


class ClassicSlave:
    """One connection to a master's haListenPort, from an address of this machine."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._port = port
        self._host = host
        self._decoder = HaFrameDecoder()
        self.frames: list[HaFrame] = []

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, local_addr=(self._host, 0)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    def leave(self) -> None:
        """Cut the connection."""
        self._writer.transport.abort()

    def report(self, offset: int) -> None:
        """Say how far it is."""
        self._writer.write(encode_report(offset))

    @property
    def end_offset(self) -> int:
        """Behind the last byte that came."""
        return self.frames[-1].offset + len(self.frames[-1].data) if self.frames else -1

    @property
    def data(self) -> bytes:
        """All bytes that came."""
        return b"".join(frame.data for frame in self.frames)

    async def next_frames(self) -> list[HaFrame]:
        """What comes next, at least one frame; none when the master has closed the connection."""
        while True:
            data = await self._reader.read(1 << 16)
            frames = self._decoder.feed(data)
            self.frames += frames
            if frames or not data:
                return frames

    async def copy_to(self, end_offset: int) -> None:
        """Return when all in front of *end_offset* has come."""
        while self.end_offset < end_offset:
            if not await self.next_frames():
                raise ConnectionResetError("the master closed the connection")

    async def closed(self) -> None:
        """Return when the master has closed the connection."""
        try:
            while await self.next_frames():
                pass
        except ConnectionError:
            pass
