"""Connections between replicas: in order, slow, cut in one or both directions, or broken."""

from collections import deque
from dataclasses import dataclass, field
from random import Random

CONNECTED_MS = 1.0


@dataclass(slots=True)
class Link:
    """One connection; messages that cannot pass a cut wait in ``held``, as with TCP."""

    number: int
    ends: tuple[int, int]
    incarnations: tuple[str, str]
    is_open: bool = True
    stream_offset: int | None = None
    stream_epoch: int = 0
    held: dict[int, deque[object]] = field(default_factory=dict)
    """Messages in flight, by the id of the receiving replica."""
    due_ms: dict[int, float] = field(default_factory=dict)

    def other(self, replica_id: int) -> int:
        """Return the replica at the other end."""
        return self.ends[1] if self.ends[0] == replica_id else self.ends[0]


class Network:
    """Which replica can reach which, and how slowly."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.cuts: set[tuple[int, int]] = set()
        self.without_engine: set[int] = set()
        self.slowness = 1.0

    def passes(self, sender: int, receiver: int) -> bool:
        """Return whether messages of *sender* reach *receiver* now."""
        return (sender, receiver) not in self.cuts

    def delay_ms(self) -> float:
        """Return the delay of a message."""
        return (0.2 + self._random.random() ** 4 * 20) * self.slowness
