"""Slaves: the connected slaves, and what their reports confirm.

A machine counts once, however many connections it has. Otherwise a slave that reconnects before its
old connection is known to be dead would count as two copies. Each connection counts only with its
own reports.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Slave:
    """One slave's connection."""

    host: str
    port: int
    next_offset: int | None = None
    """The next offset to send; None before its first report."""
    acked_offset: int = 0
    """The offset up to which it reports to have the log."""

    @property
    def is_known(self) -> bool:
        """Whether it has reported where to begin."""
        return self.next_offset is not None


class Slaves:
    """The connected slaves."""

    def __init__(self) -> None:
        self._slaves: dict[Slave, None] = {}

    def __iter__(self) -> Iterator[Slave]:
        return iter(list(self._slaves))

    def __len__(self) -> int:
        return len(self._slaves)

    def register(self, slave: Slave) -> None:
        """Count this connection from now on."""
        self._slaves[slave] = None

    def remove(self, slave: Slave) -> None:
        """Stop counting this connection."""
        self._slaves.pop(slave, None)

    def compute_replicated_offset(self, count: int) -> int:
        """Return the offset that *count* machines (at least 1) have reached.

        Return 0 if there are fewer machines.
        """
        acked = sorted(self._list_acked_offsets_by_host().values(), reverse=True)
        return acked[count - 1] if count <= len(acked) else 0

    def count_in_sync(self, end_offset: int, gap_bytes_max: int) -> int:
        """Return how many machines are at most *gap_bytes_max* behind the end of the log."""
        acked = self._list_acked_offsets_by_host().values()
        return sum(end_offset - offset <= gap_bytes_max for offset in acked)

    def have(self, end_offset: int) -> bool:
        """Return whether all slaves have the log up to *end_offset*."""
        return all(slave.acked_offset >= end_offset for slave in self._slaves if slave.is_known)

    def _list_acked_offsets_by_host(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for slave in self._slaves:
            if slave.is_known:
                found[slave.host] = max(slave.acked_offset, found.get(slave.host, 0))
        return found
