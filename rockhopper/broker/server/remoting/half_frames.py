"""What frames that are not complete yet may hold of memory: each, and all of a server together.

Where users are required, a peer that has not proved to be one may begin a larger frame than
UNKNOWN_BYTES_MAX only if the header names a user: the first request on a connection may be a send
of some MiB, and its signature covers the body. For all together see server/listening/unfinished.py.
"""

from typing import Protocol

from rockhopper.broker.server.listening.unfinished import UNKNOWN_BYTES_MAX, Unfinished
from rockhopper.broker.users.access import Access
from rockhopper.broker.users.guard import guard_of
from rockhopper.broker.users.peer import USERS
from rockhopper.protocol.errors import MalformedFrameError
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.signing import ACCESS_KEY


class FrameHolder(Protocol):
    """A connection, as far as it is looked at here."""

    decoder: FrameDecoder
    attributes: dict[str, object]


class HalfFrames(Unfinished):
    """The unfinished frames of one server's connections."""

    def __init__(self, access: Access | None) -> None:
        self._guard = guard_of(access)
        super().__init__(has_users=self._guard is not None)

    def find_problem(self, connection: FrameHolder) -> MalformedFrameError | None:
        """Why *connection* may not continue the frame that it has begun, if it may not."""
        decoder = connection.decoder
        if (
            self._guard is None
            or decoder.pending_bytes <= UNKNOWN_BYTES_MAX
            or self._guard.unsigned_codes
            or connection.attributes.get(USERS)
            or ACCESS_KEY.encode() in decoder.pending_header()
        ):
            return None
        return MalformedFrameError(
            f"a frame of more than {UNKNOWN_BYTES_MAX} bytes of a peer that names no user"
        )
