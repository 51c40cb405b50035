"""What requests that are not complete yet may hold of memory, of all connections of a server.

Where users are required, peers that have not proved to be one have a budget of their own, all of
them together. Beyond a budget the connections that hold most are closed.
"""

from collections.abc import Iterable
from typing import Protocol

UNKNOWN_BYTES_MAX = 512 << 10
"""Of one request of a peer that names no user; more than the largest header."""
UNKNOWN_BYTES_MAX_ALL = 32 << 20
BYTES_MAX_ALL = 512 << 20
STEP_BYTES = 1 << 20
"""So many more come before all are added up again."""


class Holder(Protocol):
    """A connection, as far as it is looked at here."""

    @property
    def held_bytes(self) -> int:
        """What has come of requests that are not complete."""

    @property
    def is_known(self) -> bool:
        """Whether its peer has proved to be a user."""

    def drop_held(self, reason: str) -> None:
        """Let go of that, and close at once."""


class Unfinished:
    """The unfinished requests of one server's connections."""

    def __init__(self, *, has_users: bool) -> None:
        """*has_users*: whether a peer has to prove who it is."""
        self._has_users = has_users
        self._bytes_since_look = 0

    def count(self, size_bytes: int, holders: Iterable[Holder]) -> None:
        """Note that so much more is kept, and close those of *holders* that hold too much."""
        self._bytes_since_look += size_bytes
        if self._bytes_since_look < STEP_BYTES:
            return
        self._bytes_since_look = 0
        holding = [each for each in holders if each.held_bytes]
        if self._has_users:
            _close_largest([each for each in holding if not each.is_known], UNKNOWN_BYTES_MAX_ALL)
        _close_largest(holding, BYTES_MAX_ALL)


def _close_largest(holders: list[Holder], bytes_max: int) -> None:
    holders.sort(key=_held_bytes)
    held_bytes = sum(map(_held_bytes, holders))
    while held_bytes > bytes_max:
        largest = holders.pop()
        held_bytes -= largest.held_bytes
        largest.drop_held("all peers together leave too many requests unfinished")


def _held_bytes(holder: Holder) -> int:
    return holder.held_bytes
