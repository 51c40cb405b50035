"""Ledger: the requests to a broker, and when it acknowledged each.

A *fact* is one message that must be found in a topic. Its body is unique, so every body that is
found is either the complete body of a fact or one that no client sent. Times are monotonic seconds
of this process. After a power cut at time t, what was acknowledged before t must be there; anything
that was requested may be there.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """How a message gets into the topic where it must be found."""

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
"""The kinds of messages that appear some time after their acknowledgement."""


@dataclass(slots=True)
class Fact:
    """One message and what is known about it."""

    topic: str
    body: bytes
    kind: Kind
    order: tuple[str, int] | None = None
    """The key of an ordered message, and its number under that key."""
    batch: str | None = None
    """The batch of which all messages or none must appear.

    Part of a producer's unanswered batch may appear.
    """
    was_refused: bool = False
    """Whether the broker answered with a refusal."""
    due_ms: int = 0
    """The earliest permitted delivery time, by the broker's wall clock."""
    asked_s: float | None = None
    delay_s: float = 0.0
    """The request time and the requested delay, independent of the wall clock."""
    acknowledged_s: float | None = None
    settling_s: float | None = None
    """When a popping consumer sent the acknowledgement of the message."""
    settled_s: float | None = None
    """When the broker answered the consumer's acknowledgement."""

    def acknowledge(self, now_s: float) -> None:
        """Note that the broker has acknowledged the message."""
        if self.acknowledged_s is None:
            self.acknowledged_s = now_s

    def is_owed(self, moment_s: float) -> bool:
        """Return whether the message was acknowledged before *moment_s*."""
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
    """The place of a message, according to the broker."""

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
    """Topic, queue id and queue offset -> the body that the first reader found there."""
    rewritten: list[str] = field(default_factory=list)
    """Places where a later reader found a different body."""
    popped_again: list[tuple[Fact, float, float]] = field(default_factory=list)
    """Messages that were popped after their acknowledgement had been answered.

    Each has the time of that answer and of the pop. The consumer acknowledges such a message again.
    """
    problems: list[str] = field(default_factory=list)
    """Errors that clients observed while the broker was under load."""
    refusals: dict[str, int] = field(default_factory=dict)
    clock_set_s: float = float("-inf")
    """When the broker's wall clock was last set; earlier promises about times end then."""
    about_to: Callable[[str], object] = lambda _: None
    """Called before a client starts an operation of several steps.

    The operations are ``publish``, ``delivery`` (when it is due) and ``transaction-end``.
    """
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def body(self, text: str) -> bytes:
        """Return a unique body of up to 2,000 bytes."""
        name = f"{text} {next(self._numbers)} ".encode()
        return name + self.dice.randbytes(self.dice.randrange(1000)).hex().encode()

    def expect(self, topic: str, kind: Kind, body: bytes | None = None, **known: object) -> Fact:
        """Note a message that is about to be sent."""
        fact = Fact(topic, self.body(kind) if body is None else body, kind, **known)  # type: ignore[arg-type]
        self.facts[topic, fact.body] = fact
        return fact

    def acknowledged(self, *facts: Fact) -> None:
        """Note that the broker has acknowledged these messages."""
        for fact in facts:
            fact.acknowledge(self.now_s())

    def placed(self, fact: Fact, queue_id: int, queue_offset: int, asked_s: float) -> None:
        """Note the place of a message that the broker returned."""
        self.placements.append(
            Placement(fact.topic, queue_id, queue_offset, fact.body, asked_s, self.now_s())
        )
        self.saw(fact.topic, queue_id, queue_offset, fact.body)

    def saw(self, topic: str, queue_id: int, queue_offset: int, body: bytes) -> None:
        """Note that a client read a message at this place."""
        first = self.seen.setdefault((topic, queue_id, queue_offset), body)
        if first != body:
            self.rewritten.append(
                f"{topic} queue {queue_id} offset {queue_offset} held {first[:24]!r} and later "
                f"{body[:24]!r}"
            )

    def refused(self, error: BaseException) -> None:
        """Note that the broker refused or was unreachable; the request may have taken effect."""
        name = type(error).__name__
        self.refusals[name] = self.refusals.get(name, 0) + 1

    def acknowledged_count(self, moment_s: float = float("inf")) -> int:
        """Return how many messages were acknowledged before *moment_s*."""
        return sum(fact.is_owed(moment_s) for fact in self.facts.values())
