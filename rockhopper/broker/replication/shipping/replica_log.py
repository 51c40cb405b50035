"""The log of a replica as replication needs it: offsets, and raw bytes of the files."""

from typing import Protocol

from rockhopper.broker.store.files.errors import StoreError


class AwayError(StoreError):
    """The log is being opened for another role, or belongs to a master: try again."""


class ReplicaLog(Protocol):
    """A commit log, which receives either this master's own records or another master's bytes.

    Belongs to the event loop's thread. While ``cut`` or ``begin_at`` runs, nothing is appended.
    """

    @property
    def start_offset(self) -> int:
        """The offset of the first byte."""

    @property
    def end_offset(self) -> int:
        """The offset behind the last complete record."""

    @property
    def next_offset(self) -> int:
        """The offset for the next bytes: behind ``end_offset`` if half a record has arrived."""

    @property
    def acknowledgeable_offset(self) -> int:
        """The offset this replica may acknowledge: written (async) or fsynced (sync)."""

    @property
    def is_away(self) -> bool:
        """Whether ``append`` would raise AwayError; true also for a master's own log."""

    def read(self, offset: int, size_bytes_max: int) -> bytes:
        """Return bytes from *offset* on, of one file of the log; empty at the end."""

    def append(self, offset: int, data: bytes) -> None:
        """Append a master's bytes at ``next_offset``, which is *offset*.

        Raises:
            StoreError: the bytes are not in the log, or only a part of them; see ``end_offset``.
        """

    def drop_torn(self) -> None:
        """Drop an incomplete record whose rest does not come."""

    async def cut(self, end_offset: int) -> None:
        """Truncate the log; move the rest aside, so that no start reads it as records."""

    async def begin_at(self, offset: int) -> None:
        """Replace the log by an empty one that begins at *offset*; the old one is moved aside."""
