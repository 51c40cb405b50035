"""Schedule: which faults a round makes, and when; all of it follows from the seed.

A step is one fault, or two at once. Who is meant by *master* or *follower* is seen when it begins.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

ANYWHERE = (
    *("kill", "end", "freeze", "kill-two", "kill-all", "kill-engine", "freeze-engine"),
    *("switch", "switch-back"),
)
WITH_CUTS = ("cut-off", "cut-pair", "cut-one-way", "cut-engine", "cut-clients")
TARGETS = ("master", "master", "follower")
PAUSE_S = (0.2, 2.5)
PAIRED = 0.3
"""How often two faults are made at once."""


@dataclass(frozen=True, slots=True)
class Act:
    """One fault."""

    kind: str
    target: str
    lasting_s: float
    """From its beginning until what it broke is mended."""

    def __str__(self) -> str:
        return f"{self.kind} {self.target} {self.lasting_s:.1f}"


@dataclass(frozen=True, slots=True)
class Step:
    """What is done at once, after a pause."""

    pause_s: float
    acts: tuple[Act, ...]


def schedule(dice: random.Random, duration_s: float, *, can_cut: bool) -> Sequence[Step]:
    """Steps that take *duration_s* in all, or a little more."""
    kinds = ANYWHERE + WITH_CUTS if can_cut else ANYWHERE
    steps: list[Step] = []
    taken_s = 0.0
    while taken_s < duration_s:
        count = 2 if dice.random() < PAIRED else 1
        acts = tuple(_act(dice, dice.choice(kinds)) for _ in range(count))
        steps.append(Step(dice.uniform(*PAUSE_S), acts))
        taken_s += steps[-1].pause_s + max(act.lasting_s for act in acts)
    return steps


def _act(dice: random.Random, kind: str) -> Act:
    if kind.endswith("-engine"):
        longest_s = 10.0
    elif kind in ("kill", "end", "kill-two", "kill-all"):
        longest_s = 4.0
    else:
        longest_s = 8.0
    # Mostly short: what is over before anybody noticed is as likely to be mistaken.
    return Act(kind, dice.choice(TARGETS), 0.2 + longest_s * dice.random() ** 2)
