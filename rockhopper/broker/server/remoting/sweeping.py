"""PeerActivity: when a peer was last active; connections that are idle or stuck are closed.

Example: a peer sends half a frame at 5 s and nothing else. Bytes every second would not help: at
35 s its frame is still not complete, and the connection is closed.
"""

from collections.abc import Iterable
from typing import Protocol

FIRST_FRAME_TIMEOUT_S = 10.0
FRAME_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 120.0
WRITE_STALL_TIMEOUT_S = 30.0


class PeerActivity:
    """The times of one connection's last reads and writes; times are the loop's."""

    __slots__ = (
        "_connected_at_s",
        "_unread_bytes_seen",
        "frame_begun_at_s",
        "frames_received",
        "last_active_s",
        "stalled_at_s",
    )

    def __init__(self, now_s: float) -> None:
        self._connected_at_s = self.last_active_s = now_s
        self.frames_received = 0
        self.frame_begun_at_s: float | None = None
        """When the incomplete frame began to arrive; None: no frame is incomplete."""
        self.stalled_at_s: float | None = None
        """When the peer last read, while it does not read enough; None: it reads."""
        self._unread_bytes_seen = 0

    def receive(self, now_s: float, frame_count: int, pending_bytes: int) -> None:
        """Record a read: *frame_count* frames are complete, *pending_bytes* of another one left."""
        self.last_active_s = now_s
        self.frames_received += frame_count
        if not pending_bytes:
            self.frame_begun_at_s = None
        elif frame_count or self.frame_begun_at_s is None:
            self.frame_begun_at_s = now_s

    def restart_frame(self, now_s: float) -> None:
        """Give the peer its time for a frame again: nothing was read from it in between."""
        if self.frame_begun_at_s is not None:
            self.frame_begun_at_s = now_s

    def stall(self, now_s: float) -> None:
        """Record that the peer reads less than is written."""
        self.stalled_at_s = now_s
        self._unread_bytes_seen = 0

    def recover(self) -> None:
        """Record that the peer has read enough."""
        self.stalled_at_s = None

    def note_progress(self, now_s: float, unread_bytes: int) -> None:
        """Restart the stall timer if the peer has read anything since the last call."""
        if unread_bytes < self._unread_bytes_seen:
            self.stalled_at_s = now_s
        self._unread_bytes_seen = unread_bytes

    def find_timeout(self, now_s: float, *, is_waiting: bool) -> str | None:
        """Return why the connection is to be closed, or None.

        *is_waiting*: received frames wait for the broker, so nothing is read.
        """
        if self.frames_received == 0 and now_s - self._connected_at_s > FIRST_FRAME_TIMEOUT_S:
            return f"no request within {FIRST_FRAME_TIMEOUT_S:.0f} s"
        if self.stalled_at_s is not None:
            if now_s - self.stalled_at_s > WRITE_STALL_TIMEOUT_S:
                return f"the peer read no answer for {WRITE_STALL_TIMEOUT_S:.0f} s"
            return None
        if is_waiting:
            return None
        begun_at_s = self.frame_begun_at_s
        if begun_at_s is not None and now_s - begun_at_s > FRAME_TIMEOUT_S:
            return f"a frame was not completed within {FRAME_TIMEOUT_S:.0f} s"
        if now_s - self.last_active_s > IDLE_TIMEOUT_S:
            return f"idle for {IDLE_TIMEOUT_S:.0f} s"
        return None


class SweptConnection(Protocol):
    """The parts of a connection that are checked."""

    activity: PeerActivity
    is_waiting: bool

    @property
    def unread_bytes(self) -> int:
        """Bytes written that the peer has not read yet."""

    def abort(self, reason: str) -> None:
        """Close at once."""


def sweep_connections(connections: Iterable[SweptConnection], now_s: float) -> None:
    """Close those of *connections* that are idle or stuck as of *now_s*, the loop's time."""
    for connection in connections:
        activity = connection.activity
        if activity.stalled_at_s is not None:
            activity.note_progress(now_s, connection.unread_bytes)
        reason = activity.find_timeout(now_s, is_waiting=connection.is_waiting)
        if reason is not None:
            connection.abort(reason)
