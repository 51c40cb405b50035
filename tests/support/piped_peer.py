"""A server connection over a transport without a socket; it reads as flow control allows."""

import asyncio
from collections.abc import Sequence
from typing import cast

from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.server import Server
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import FrameDecoder

READ_BYTES = 256_000
"""The number of bytes that uvloop reads at a time."""


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
        self.connection: RemotingConnection = server.make_connection()
        self.connection.connection_made(cast("asyncio.Transport", self))

    def send(self, data: bytes) -> None:
        """Make the server read *data* as far as it allows: like libuv, up to 32 times in a row."""
        self.pending += data
        for _ in range(32):
            if not self.pending or not self.reading or self.closing:
                break
            data, self.pending = self.pending[:READ_BYTES], self.pending[READ_BYTES:]
            self.connection.data_received(data)

    def answers(self) -> list[Command]:
        """Return the answers since the last call."""
        data, self.writes = b"".join(self.writes), []
        return [
            decode_header(kind, header, body) for kind, header, body in self._decoder.feed(data)
        ]

    def set_write_buffer_limits(self, high: int) -> None:
        """Do nothing."""

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        """Return the address of both ends."""
        return "127.0.0.1", self._port

    def get_write_buffer_size(self) -> int:
        """Return 0: everything is read."""
        return 0

    def is_closing(self) -> bool:
        """Return whether the server has closed it."""
        return self.closing

    def pause_reading(self) -> None:
        """Stop reading."""
        self.reading = False

    def resume_reading(self) -> None:
        """Resume reading."""
        self.reading = True

    def write(self, data: bytes) -> None:
        """Receive answers."""
        assert not self.closing
        self.writes.append(data)

    def writelines(self, parts: Sequence[bytes]) -> None:
        """Receive answers in parts."""
        self.write(b"".join(parts))

    def close(self) -> None:
        """Record that the server closes it."""
        self.closing = True

    def abort(self) -> None:
        """Record that the server aborts it."""
        self.closing = self.aborted = True
