"""The memory limit of incomplete requests, for all connections of a server together.

If users are required, all unauthenticated peers together have a budget of their own. Over a budget,
the connections that hold most are closed.
"""

from collections.abc import Iterable
from typing import Protocol

UNKNOWN_BYTES_MAX = 512 << 10
"""The limit for one request of an unauthenticated peer; more than the largest header."""
UNKNOWN_BYTES_MAX_ALL = 32 << 20
BYTES_MAX_ALL = 512 << 20
STEP_BYTES = 1 << 20
"""All connections are added up again after this many more bytes."""


class UnfinishedConnection(Protocol):
    """The methods of a connection that are needed here."""

    @property
    def held_bytes(self) -> int:
        """The received bytes of incomplete requests."""

    @property
    def is_known(self) -> bool:
        """Whether its peer is authenticated as a user."""

    def drop_held(self, reason: str) -> None:
        """Drop these bytes, and close at once."""


class Unfinished:
    """The incomplete requests of one server's connections."""

    def __init__(self, *, has_users: bool) -> None:
        """*has_users*: whether peers must authenticate."""
        self._has_users = has_users
        self._bytes_since_look = 0

    def count(self, size_bytes: int, holders: Iterable[UnfinishedConnection]) -> None:
        """Record that *size_bytes* more are held; close those of *holders* that hold too much."""
        self._bytes_since_look += size_bytes
        if self._bytes_since_look < STEP_BYTES:
            return
        self._bytes_since_look = 0
        holding = [each for each in holders if each.held_bytes]
        if self._has_users:
            _close_largest([each for each in holding if not each.is_known], UNKNOWN_BYTES_MAX_ALL)
        _close_largest(holding, BYTES_MAX_ALL)


def _close_largest(holders: list[UnfinishedConnection], bytes_max: int) -> None:
    holders.sort(key=_count_held_bytes)
    held_bytes = sum(map(_count_held_bytes, holders))
    while held_bytes > bytes_max:
        largest = holders.pop()
        held_bytes -= largest.held_bytes
        largest.drop_held("all peers together have too many unfinished requests")


def _count_held_bytes(holder: UnfinishedConnection) -> int:
    return holder.held_bytes
