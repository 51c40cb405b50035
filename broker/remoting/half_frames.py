"""What frames that are not complete yet may hold of memory: each, and all of a server together.

Where users are required, a peer that has not proved to be one may begin a larger frame than
UNKNOWN_FRAME_BYTES_MAX only if the header names a user: the first request on a connection may be a
send of some MiB, and its signature covers the body. All of these peers together have a budget of
their own. Beyond a budget the connections that hold most are closed.
"""

from collections.abc import Iterable
from typing import Protocol

from rockhopper.broker.access.access import Access
from rockhopper.broker.access.guard import Guard
from rockhopper.broker.access.peer import USERS
from rockhopper.protocol.errors import MalformedFrameError
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.signing import ACCESS_KEY

UNKNOWN_FRAME_BYTES_MAX = 512 << 10
"""More than the largest header, which is complete by then."""
UNKNOWN_BYTES_MAX_ALL = 32 << 20
BYTES_MAX_ALL = 512 << 20
STEP_BYTES = 1 << 20
"""So many more come before all are added up again."""


class Holder(Protocol):
    """A connection, as far as it is looked at here."""

    decoder: FrameDecoder
    attributes: dict[str, object]

    def abort(self, reason: str) -> None:
        """Close at once."""


class HalfFrames:
    """The unfinished frames of one server's connections."""

    def __init__(self, access: Access | None) -> None:
        self._guard = access if isinstance(access, Guard) and not access.is_open else None
        self._bytes_since_look = 0

    def find_problem(self, connection: Holder) -> MalformedFrameError | None:
        """Why *connection* may not continue the frame that it has begun, if it may not."""
        decoder = connection.decoder
        if (
            self._guard is None
            or decoder.pending_bytes <= UNKNOWN_FRAME_BYTES_MAX
            or self._guard.unsigned_codes
            or connection.attributes.get(USERS)
            or ACCESS_KEY.encode() in decoder.pending_header()
        ):
            return None
        return MalformedFrameError(
            f"a frame of more than {UNKNOWN_FRAME_BYTES_MAX} bytes of a peer that names no user"
        )

    def count(self, size_bytes: int, connections: Iterable[Holder]) -> None:
        """Note that so much more is kept, and close those of *connections* that hold too much."""
        self._bytes_since_look += size_bytes
        if self._bytes_since_look < STEP_BYTES:
            return
        self._bytes_since_look = 0
        holders = [each for each in connections if each.decoder.pending_bytes]
        if self._guard is not None:
            unknown = [each for each in holders if not each.attributes.get(USERS)]
            _close_largest(unknown, UNKNOWN_BYTES_MAX_ALL)
        _close_largest(holders, BYTES_MAX_ALL)


def _close_largest(holders: list[Holder], bytes_max: int) -> None:
    holders.sort(key=_held_bytes)
    held_bytes = sum(map(_held_bytes, holders))
    while held_bytes > bytes_max:
        largest = holders.pop()
        held_bytes -= _held_bytes(largest)
        largest.decoder.forget_pending()
        largest.abort("all peers together leave too many frames unfinished")


def _held_bytes(holder: Holder) -> int:
    return holder.decoder.pending_bytes
