"""Connections between replicas: in order, slow, cut in one direction or in both, or broken."""

from collections import deque
from dataclasses import dataclass, field
from random import Random

CONNECTED_MS = 1.0


@dataclass(slots=True)
class Link:
    """One connection; what cannot pass a cut waits in ``held``, as TCP would have it."""

    number: int
    ends: tuple[int, int]
    incarnations: tuple[str, str]
    is_open: bool = True
    stream_offset: int | None = None
    stream_epoch: int = 0
    held: dict[int, deque[object]] = field(default_factory=dict)
    """What is on its way, by the id of the replica that it goes to."""
    due_ms: dict[int, float] = field(default_factory=dict)

    def other(self, replica_id: int) -> int:
        """The replica at the other end."""
        return self.ends[1] if self.ends[0] == replica_id else self.ends[0]


class Network:
    """Who can reach whom, and how slowly."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.cuts: set[tuple[int, int]] = set()
        self.without_engine: set[int] = set()
        self.slowness = 1.0

    def passes(self, sender: int, receiver: int) -> bool:
        """Whether anything gets from one to the other now."""
        return (sender, receiver) not in self.cuts

    def delay_ms(self) -> float:
        """How long a message takes."""
        return (0.2 + self._random.random() ** 4 * 20) * self.slowness
