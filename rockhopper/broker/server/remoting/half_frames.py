"""The memory limit of incomplete frames: for each, and for all of a server together.

If users are required, an unauthenticated peer may begin a frame larger than UNKNOWN_BYTES_MAX only
if the header names a user: the first request on a connection may be a send of some MiB, and its
signature covers the body. server/listening/unfinished.py has the limit for all together.
"""

from typing import Protocol

from rockhopper.broker.server.listening.unfinished import UNKNOWN_BYTES_MAX, Unfinished
from rockhopper.broker.users.access import AccessRules
from rockhopper.broker.users.guard import guard_of
from rockhopper.broker.users.peer import USERS
from rockhopper.protocol.errors import MalformedFrameError
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.signing import ACCESS_KEY


class FrameHolder(Protocol):
    """A connection that may hold an incomplete frame."""

    decoder: FrameDecoder
    attributes: dict[str, object]


class HalfFrames(Unfinished):
    """The incomplete frames of one server's connections."""

    def __init__(self, access: AccessRules | None) -> None:
        self._guard = guard_of(access)
        super().__init__(has_users=self._guard is not None)

    def find_problem(self, connection: FrameHolder) -> MalformedFrameError | None:
        """Return why *connection* may not continue its incomplete frame, or None."""
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
            f"an unauthenticated frame of more than {UNKNOWN_BYTES_MAX} bytes"
        )
