"""A connection of a server over a transport without a socket: what is fed is read as it allows."""

import asyncio
from collections.abc import Sequence
from typing import cast

from rockhopper.broker.server.remoting.server import Connection, Server
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import FrameDecoder

READ_BYTES = 256_000
"""What uvloop reads at a time."""


class PipedPeer:
    """The peer, and the transport to it."""

    def __init__(self, server: Server, port: int = 40_000) -> None:
        self._port = port
        self._decoder = FrameDecoder()
        self.reading = True
        self.aborted = self.closing = False
        self.pending = b""
        """Sent by the peer and not read yet."""
        self.writes: list[bytes] = []
        self.connection: Connection = server.make_connection()
        self.connection.connection_made(cast("asyncio.Transport", self))

    def send(self, data: bytes) -> None:
        """Have the server read *data*, as far as it reads: as libuv does, 32 times in a go."""
        self.pending += data
        for _ in range(32):
            if not self.pending or not self.reading or self.closing:
                break
            data, self.pending = self.pending[:READ_BYTES], self.pending[READ_BYTES:]
            self.connection.data_received(data)

    def answers(self) -> list[Command]:
        """What was answered since the last look."""
        data, self.writes = b"".join(self.writes), []
        return [
            decode_header(kind, header, body) for kind, header, body in self._decoder.feed(data)
        ]

    def set_write_buffer_limits(self, high: int) -> None:
        """Take no notice."""

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        """Both ends are here."""
        return "127.0.0.1", self._port

    def get_write_buffer_size(self) -> int:
        """Everything is read."""
        return 0

    def is_closing(self) -> bool:
        """Whether the server has closed it."""
        return self.closing

    def pause_reading(self) -> None:
        """Read no more."""
        self.reading = False

    def resume_reading(self) -> None:
        """Read on."""
        self.reading = True

    def write(self, data: bytes) -> None:
        """Take answers."""
        assert not self.closing
        self.writes.append(data)

    def writelines(self, parts: Sequence[bytes]) -> None:
        """Take answers in parts."""
        self.write(b"".join(parts))

    def close(self) -> None:
        """Be closed by the server."""
        self.closing = True

    def abort(self) -> None:
        """Be dropped by the server."""
        self.closing = self.aborted = True
