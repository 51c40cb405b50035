"""Arrival: an accepted connection, until its first bytes show which protocol it speaks.

The bytes are peeked (MSG_PEEK) and stay in the socket, so that the protocol reads all of them.
While more bytes are needed, SO_RCVLOWAT sets how many wake the broker, so that a peer that sends
byte by byte does not wake up the loop.

TLS is detected by the first bytes. A handshake begins only once its first record is complete: a
peer that sends half of it costs a socket, but neither the memory of a handshake nor one of the
limited places.

    0  type, 0x16: handshake        3  length, two bytes, big-endian, at most 2^14
    1  version, 0x03 and minor      5  the record
"""

import asyncio
import contextlib
import socket
from typing import Protocol

from rockhopper.broker.server.listening.proxy_protocol import (
    HEADER_SIZE_BYTES_MAX,
    ProxyHeaderError,
    read_header,
)

SILENCE_TIMEOUT_S = 10.0
# The pause before the next look if the kernel reports fewer bytes than needed.
LOOK_AGAIN_S = 0.25
RECORD_HEAD_SIZE_BYTES = 5
RECORD_SIZE_BYTES_MAX = 1 << 14
_PEEK_SIZE_BYTES = RECORD_HEAD_SIZE_BYTES + RECORD_SIZE_BYTES_MAX
_HANDSHAKE = 0x16
_VERSION_MAJOR = 0x03


def is_tls(data: bytes) -> bool:
    """Return whether *data*, one byte or more, may begin a TLS handshake."""
    if data[0] != _HANDSHAKE or (len(data) > 1 and data[1] != _VERSION_MAJOR):
        return False
    return len(data) < RECORD_HEAD_SIZE_BYTES or _record_size_bytes(data) <= RECORD_SIZE_BYTES_MAX


def hello_size_bytes(data: bytes) -> int:
    """Return how many bytes are needed to answer the handshake that *data* begins."""
    if len(data) < RECORD_HEAD_SIZE_BYTES:
        return RECORD_HEAD_SIZE_BYTES
    return RECORD_HEAD_SIZE_BYTES + _record_size_bytes(data)


def _record_size_bytes(data: bytes) -> int:
    return int.from_bytes(data[3:RECORD_HEAD_SIZE_BYTES], "big")


class ArrivalOwner(Protocol):
    """Waits for arriving connections."""

    def peer_known(self, arrival: "Arrival", *, speaks_tls: bool) -> None:
        """Hand over a connection whose first bytes have arrived."""

    def peer_gone(self, arrival: "Arrival", reason: str) -> None:
        """Forget a connection that was closed; the reason is blank if the peer closed it."""


class Arrival:
    """One arriving connection; its owner learns how it ends."""

    __slots__ = (
        "_is_watched",
        "_loop",
        "_may_be_announced",
        "_needed_bytes",
        "_owner",
        "_timeout",
        "address",
        "connected",
        "peer",
    )

    def __init__(
        self,
        connected: socket.socket,
        peer: str,
        owner: ArrivalOwner,
        *,
        may_be_announced: bool = False,
    ) -> None:
        self.connected = connected
        self.peer = peer
        self.address: tuple[str, int] | None = None
        """The address that a proxy announced."""
        self._owner = owner
        self._may_be_announced = may_be_announced
        self._needed_bytes = 1
        self._is_watched = False
        self._loop = asyncio.get_running_loop()
        self._timeout = self._loop.call_later(
            SILENCE_TIMEOUT_S, self.close, f"it sent nothing for {SILENCE_TIMEOUT_S:.0f} s"
        )

    def look(self) -> None:
        """Check whether enough bytes have arrived to decide, else wait for them."""
        try:
            data = self.connected.recv(_PEEK_SIZE_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            self._watch()
            return
        except OSError as error:
            self.close(str(error))
            return
        if not data:
            self.close("")
        elif len(data) < self._needed_bytes:
            self._watch_later()
        else:
            self._judge(data)

    def _judge(self, data: bytes) -> None:
        if self._may_be_announced:
            try:
                header = read_header(data[:HEADER_SIZE_BYTES_MAX])
            except ProxyHeaderError as error:
                self.close(str(error))
                return
            if isinstance(header, int):
                self._wait_for(header)
                return
            self._may_be_announced = False
            if header.size_bytes:
                self.address = header.address
                self.connected.recv(header.size_bytes)
                self._wait_for(1)
                return
        if not is_tls(data):
            self._hand_over(speaks_tls=False)
        elif len(data) >= (needed_bytes := hello_size_bytes(data)):
            self._hand_over(speaks_tls=True)
        else:
            self._wait_for(needed_bytes)

    def _wait_for(self, size_bytes: int) -> None:
        if size_bytes != self._needed_bytes:
            self._needed_bytes = size_bytes
            self._ask_kernel_for(size_bytes)
        self.look()

    def _ask_kernel_for(self, size_bytes: int) -> None:
        # If that cannot be set, the peer is checked again and again.
        with contextlib.suppress(OSError):
            self.connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._loop.add_reader(self.connected.fileno(), self.look)

    def _watch_later(self) -> None:
        was_watched = self._is_watched
        self._watch()
        if was_watched:
            self._unwatch()
            self._loop.call_later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        if self.connected.fileno() >= 0:
            self._watch()

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self.connected.fileno())

    def _hand_over(self, *, speaks_tls: bool) -> None:
        self._timeout.cancel()
        self._unwatch()
        if self._needed_bytes != 1:
            self._ask_kernel_for(1)
        self._owner.peer_known(self, speaks_tls=speaks_tls)

    def close(self, reason: str) -> None:
        """Close it, and report why; the reason is blank if the peer closed it."""
        if self.connected.fileno() < 0:
            return
        self._timeout.cancel()
        self._unwatch()
        self.connected.close()
        self._owner.peer_gone(self, reason)
