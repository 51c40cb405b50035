"""The identity of one process of a replica: `<id>-<store>-<starts>-<place>-<random>`.

If a process was restarted on the same store in the same place, the earlier process has ended,
because the new one holds the lock of the store. A copy of the store is in another place. A process
that finds an incarnation from another place cannot know whether that one still runs.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The identity of one process."""

    id: int
    store: str
    starts: int
    place: str
    """ReplicaDisk explains the value."""
    token: str
    """Random, so that two copies in one place with equal start counts still differ."""

    def __str__(self) -> str:
        return f"{self.id}-{self.store}-{self.starts}-{self.place}-{self.token}"

    def comes_after(self, other: str) -> bool:
        """Return whether *other* is this process, or an earlier, ended one in the same place."""
        if other == str(self):
            return True
        parts = other.split("-")
        is_like_ours = len(parts) == 5 and parts[2].isdigit()
        if not is_like_ours or parts[:2] != [str(self.id), self.store]:
            return False
        return parts[3] == self.place and int(parts[2]) < self.starts
