"""Which process of a replica this is: `<id>-<store>-<starts>-<place>-<random>`.

A process that was started again on the store of an earlier one, in the same place, comes after it:
it holds the lock of the store, so that the earlier one has ended. A copy of the store is in another
place, and who finds the earlier process announced cannot know whether it still runs.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One process."""

    id: int
    store: str
    starts: int
    place: str
    """See Keeping."""
    token: str
    """Random, so that two copies with equal counts in one place still differ."""

    def __str__(self) -> str:
        return f"{self.id}-{self.store}-{self.starts}-{self.place}-{self.token}"

    def comes_after(self, other: str) -> bool:
        """Whether *other* is this process, or an earlier one in the same place, which has ended."""
        if other == str(self):
            return True
        parts = other.split("-")
        is_like_ours = len(parts) == 5 and parts[2].isdigit()
        if not is_like_ours or parts[:2] != [str(self.id), self.store]:
            return False
        return parts[3] == self.place and int(parts[2]) < self.starts
