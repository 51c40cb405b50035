"""Close connections that are idle or stuck."""

from collections.abc import Iterable
from typing import Protocol

FIRST_FRAME_TIMEOUT_S = 10.0
FRAME_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 120.0
WRITE_STALL_TIMEOUT_S = 30.0


class Watched(Protocol):
    """The parts of a connection that are checked; times are the loop's."""

    frames_received: int
    connected_at_s: float
    last_active_s: float
    frame_begun_at_s: float | None
    stalled_at_s: float | None
    writing_paused: bool
    is_waiting: bool

    def note_progress(self, now_s: float) -> None:
        """Restart the stall timer if the peer has read anything since the last call."""

    def abort(self, reason: str) -> None:
        """Close at once."""


def sweep_connections(connections: Iterable[Watched], now_s: float) -> None:
    """Close those of *connections* that are idle or stuck as of *now_s*, the loop's time."""
    for connection in connections:
        if connection.writing_paused:
            connection.note_progress(now_s)
        reason = _explain_close(connection, now_s)
        if reason is not None:
            connection.abort(reason)


def _explain_close(connection: Watched, now_s: float) -> str | None:
    if (
        connection.frames_received == 0
        and now_s - connection.connected_at_s > FIRST_FRAME_TIMEOUT_S
    ):
        return f"no request within {FIRST_FRAME_TIMEOUT_S:.0f} s"
    stalled_at_s = connection.stalled_at_s
    if stalled_at_s is not None:
        if now_s - stalled_at_s > WRITE_STALL_TIMEOUT_S:
            return f"the peer read no answer for {WRITE_STALL_TIMEOUT_S:.0f} s"
        return None
    if connection.is_waiting:
        return None
    begun_at_s = connection.frame_begun_at_s
    if begun_at_s is not None and now_s - begun_at_s > FRAME_TIMEOUT_S:
        return f"a frame was not completed within {FRAME_TIMEOUT_S:.0f} s"
    if now_s - connection.last_active_s > IDLE_TIMEOUT_S:
        return f"idle for {IDLE_TIMEOUT_S:.0f} s"
    return None
