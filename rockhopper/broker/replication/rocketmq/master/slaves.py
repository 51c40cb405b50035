"""Slaves: who follows, and what their reports confirm.

A machine counts once, however many connections it has: a slave that connects anew while its former
connection is not known to be dead would else be taken for two, and one copy for two copies. Each
connection counts with what it has reported itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Slave:
    """One connection."""

    host: str
    port: int
    next_offset: int | None = None
    """What is sent next; None before its first report."""
    acked_offset: int = 0
    """Up to where it says to have the log."""

    @property
    def is_known(self) -> bool:
        """Whether it has said where to begin."""
        return self.next_offset is not None


class Slaves:
    """Those that are connected."""

    def __init__(self) -> None:
        self._slaves: dict[Slave, None] = {}

    def __iter__(self) -> Iterator[Slave]:
        return iter(list(self._slaves))

    def __len__(self) -> int:
        return len(self._slaves)

    def add(self, slave: Slave) -> None:
        """Count it from now on."""
        self._slaves[slave] = None

    def remove(self, slave: Slave) -> None:
        """Count it no more."""
        self._slaves.pop(slave, None)

    def confirmed_offset(self, count: int) -> int:
        """Up to where *count* machines, at least 1, have the log; 0 if there are fewer."""
        acked = sorted(self._acked_by_host().values(), reverse=True)
        return acked[count - 1] if count <= len(acked) else 0

    def in_sync_count(self, end_offset: int, gap_bytes_max: int) -> int:
        """How many machines are at most so many bytes behind the end of the log."""
        acked = self._acked_by_host().values()
        return sum(end_offset - offset <= gap_bytes_max for offset in acked)

    def have(self, end_offset: int) -> bool:
        """Whether all have the log up to there."""
        return all(slave.acked_offset >= end_offset for slave in self._slaves if slave.is_known)

    def _acked_by_host(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for slave in self._slaves:
            if slave.is_known:
                found[slave.host] = max(slave.acked_offset, found.get(slave.host, 0))
        return found
