"""A RocketMQ slave made by hand: a test sets its reports, and it stores the received frames."""

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
        """Break the connection."""
        self._writer.transport.abort()

    def report(self, offset: int) -> None:
        """Report an offset."""
        self._writer.write(encode_report(offset))

    @property
    def end_offset(self) -> int:
        """The offset after the last received byte."""
        return self.frames[-1].offset + len(self.frames[-1].data) if self.frames else -1

    @property
    def data(self) -> bytes:
        """All received bytes."""
        return b"".join(frame.data for frame in self.frames)

    async def next_frames(self) -> list[HaFrame]:
        """Return the next frames, at least one; none if the master has closed the connection."""
        while True:
            data = await self._reader.read(1 << 16)
            frames = self._decoder.feed(data)
            self.frames += frames
            if frames or not data:
                return frames

    async def copy_to(self, end_offset: int) -> None:
        """Return when everything before *end_offset* has arrived."""
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
