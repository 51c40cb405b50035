"""The log of a replica, as replication needs it: offsets, and bytes as they stand in the files."""

from typing import Protocol

from rockhopper.broker.store.files.errors import StoreError


class AwayError(StoreError):
    """The log is being opened for another role, or is a master's own: ask again."""


class ReplicaLog(Protocol):
    """A commit log that is appended to by a master's own work, or by what its master sends.

    Belongs to the event loop's thread. While ``cut`` and ``begin_at`` run nobody appends.
    """

    @property
    def start_offset(self) -> int:
        """The first byte that there is."""

    @property
    def end_offset(self) -> int:
        """Behind the last byte that there is."""

    @property
    def next_offset(self) -> int:
        """Where the next bytes belong: behind ``end_offset``, if half a record has come."""

    @property
    def held_offset(self) -> int:
        """Up to where it is by this replica's kind of promise: written, or flushed."""

    @property
    def is_away(self) -> bool:
        """Whether ``append`` would raise AwayError: of a master's own log as well."""

    def read(self, offset: int, size_bytes_max: int) -> bytes:
        """What stands there, of one file of the log; nothing at the end."""

    def append(self, offset: int, data: bytes) -> None:
        """Append a master's bytes at ``next_offset``, which is *offset*.

        Raises:
            StoreError: they are not in the log, or not all of them; ``end_offset`` says.
        """

    def drop_torn(self) -> None:
        """Forget half a record whose rest does not come."""

    async def cut(self, end_offset: int) -> None:
        """Take away what is behind, aside, so that no start can take it for records again."""

    async def begin_at(self, offset: int) -> None:
        """Have nothing but a log that begins there; what there was goes aside."""
