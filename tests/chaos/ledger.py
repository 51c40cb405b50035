"""Ledger: what was asked of a broker, and when it acknowledged it.

A *fact* is one message that has to be found in a topic: its body names it, so that a body that is
found is either the body of a fact, whole, or one that nobody sent. Times are monotonic seconds of
this process; a cut of the power at time t asks for what was acknowledged before t and allows all
that was asked.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """How a message gets into the topic where it has to be found."""

    PLAIN = "plain"
    BATCH = "batch"
    ORDERED = "ordered"
    LEVEL = "delay level"
    TIMER = "timer"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    POPPED = "popped"
    SENT_BACK = "sent back"
    DEAD = "dead letter"
    SUNK = "sink"
    REQUEST = "request"


LATER = frozenset({Kind.LEVEL, Kind.TIMER, Kind.SENT_BACK})
"""What appears some time after its acknowledgement."""


@dataclass(slots=True)
class Fact:
    """One message, and what is known of it."""

    topic: str
    body: bytes
    kind: Kind
    order: tuple[str, int] | None = None
    """The key of an ordered message, and its number under that key."""
    batch: str | None = None
    """What appears whole or not at all; of a producer's batch that nobody answered, a part may."""
    was_refused: bool = False
    """Whether the broker answered, and refused it."""
    due_ms: int = 0
    """The earliest time at which it may be delivered, by the broker's wall clock."""
    asked_s: float | None = None
    delay_s: float = 0.0
    """When it was asked for and how much later it is wanted, whatever the wall clock does."""
    acknowledged_s: float | None = None
    settling_s: float | None = None
    """When its acknowledgement by a popping consumer was asked for."""
    settled_s: float | None = None
    """When the broker answered that."""

    def acknowledge(self, now_s: float) -> None:
        """The broker has said that it has it."""
        if self.acknowledged_s is None:
            self.acknowledged_s = now_s

    def is_owed(self, moment_s: float) -> bool:
        """Whether it was acknowledged before *moment_s*."""
        return self.acknowledged_s is not None and self.acknowledged_s < moment_s


@dataclass(slots=True)
class Commit:
    """An offset that a group committed."""

    queue_id: int
    offset: int
    asked_s: float
    acknowledged_s: float | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a broker said that it has put a message."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    asked_s: float
    acknowledged_s: float


@dataclass(slots=True)
class Publication:
    """A batch of the sink whose publication was acknowledged."""

    batch_id: int
    parts: dict[str, int]
    acknowledged_s: float


@dataclass
class Ledger:
    """All facts of one store, over any number of lives of its broker."""

    dice: random.Random = field(default_factory=random.Random)
    now_s: Callable[[], float] = time.monotonic
    facts: dict[tuple[str, bytes], Fact] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    published: list[Publication] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    seen: dict[tuple[str, int, int], bytes] = field(default_factory=dict)
    """Topic, queue id and queue offset -> the body that whoever looked first found there."""
    rewritten: list[str] = field(default_factory=list)
    """Where somebody found another body later."""
    popped_again: list[tuple[Fact, float, float]] = field(default_factory=list)
    """What was popped though its acknowledgement had been answered, when that was, and when the
    pop: whoever pops it acknowledges it again."""
    problems: list[str] = field(default_factory=list)
    """What was seen to be wrong while the broker was under load."""
    refusals: dict[str, int] = field(default_factory=dict)
    clock_set_s: float = float("-inf")
    """When the broker's wall clock was last set: what it had promised by it is over then."""
    about_to: Callable[[str], object] = lambda _: None
    """Called when somebody asks for what may take several steps: ``publish``, ``delivery``
    (when its time has come), ``transaction-end``."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def body(self, text: str) -> bytes:
        """A body that occurs once, of any length up to 2,000 bytes."""
        name = f"{text} {next(self._numbers)} ".encode()
        return name + self.dice.randbytes(self.dice.randrange(1000)).hex().encode()

    def expect(self, topic: str, kind: Kind, body: bytes | None = None, **known: object) -> Fact:
        """A message that is about to be sent."""
        fact = Fact(topic, self.body(kind) if body is None else body, kind, **known)  # type: ignore[arg-type]
        self.facts[topic, fact.body] = fact
        return fact

    def acknowledged(self, *facts: Fact) -> None:
        """The broker has answered."""
        for fact in facts:
            fact.acknowledge(self.now_s())

    def placed(self, fact: Fact, queue_id: int, queue_offset: int, asked_s: float) -> None:
        """The broker has answered that a message has this place."""
        self.placements.append(
            Placement(fact.topic, queue_id, queue_offset, fact.body, asked_s, self.now_s())
        )
        self.saw(fact.topic, queue_id, queue_offset, fact.body)

    def saw(self, topic: str, queue_id: int, queue_offset: int, body: bytes) -> None:
        """Somebody was shown a message."""
        first = self.seen.setdefault((topic, queue_id, queue_offset), body)
        if first != body:
            self.rewritten.append(
                f"{topic} queue {queue_id} offset {queue_offset} held {first[:24]!r} and later "
                f"{body[:24]!r}"
            )

    def refused(self, error: BaseException) -> None:
        """The broker has refused, or could not be reached: what was asked may be there or not."""
        name = type(error).__name__
        self.refusals[name] = self.refusals.get(name, 0) + 1

    def acknowledged_count(self, moment_s: float = float("inf")) -> int:
        """How many messages were acknowledged before *moment_s*."""
        return sum(fact.is_owed(moment_s) for fact in self.facts.values())
