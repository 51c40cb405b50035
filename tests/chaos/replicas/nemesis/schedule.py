"""Schedule: the faults of a round and their times, all determined by the seed.

A step is one fault, or two at the same time. The replicas that *master* and *follower* mean are
determined when the step begins.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

KINDS = {
    "": (
        *("kill", "end", "freeze", "flap", "kill-two", "kill-all", "switch", "switch-back"),
        *("kill-engine", "freeze-engine"),
    ),
    "cuts": (
        *("cut-off", "cut-away", "cut-off-and-on", "cut-off-with-engine", "cut-pair"),
        *("cut-one-way", "cut-engine", "cut-clients"),
    ),
    "disks": ("fill-disk", "fill-disk"),
    "power": ("cut-power",),
    "losses": ("lose-disk",),
    "strace": ("slow-disk",),
    "clocks": ("set-clock", "set-clock", "set-clock"),
    "backups": ("back-up-engine", "restore-engine"),
}
"""A required ability -> the faults that need it; a fault listed twice occurs twice as often."""
ONCE = ("cut-power", "lose-disk")
"""Faults that a set does not promise to survive a second time."""
ALONE = ("restore-engine",)
"""Faults that run alone.

A replica that starts during one has lost what the engine told it, and would trust the old data.
"""
TARGETS = ("master", "master", "follower")
PAUSE_S = (0.2, 2.5)
PAIRED = 0.3
"""How often two faults are made at the same time."""


@dataclass(frozen=True, slots=True)
class Act:
    """One fault."""

    kind: str
    target: str
    lasting_s: float
    """The time from its beginning until its effect is repaired."""
    after_s: float = 0.0
    """The delay after the beginning of its step."""

    def __str__(self) -> str:
        return f"{self.kind} {self.target} {self.lasting_s:.1f}"


@dataclass(frozen=True, slots=True)
class Step:
    """Simultaneous faults after a pause."""

    pause_s: float
    acts: tuple[Act, ...]


def schedule(dice: random.Random, duration_s: float, has: Collection[str]) -> Sequence[Step]:
    """Return steps of about *duration_s* in total, of faults whose needs are in *has*."""
    kinds = [kind for need, some in KINDS.items() if not need or need in has for kind in some]
    steps: list[Step] = []
    taken_s = 0.0
    while taken_s < duration_s:
        steps.append(_step(dice, kinds))
        taken_s += steps[-1].pause_s + max(act.lasting_s for act in steps[-1].acts)
    return steps


def _step(dice: random.Random, kinds: list[str]) -> Step:
    acts: list[Act] = []
    count = 2 if dice.random() < PAIRED else 1
    while len(acts) < count:
        kind = dice.choice(kinds)
        if kind in ALONE:
            acts, count = [], 1
        if kind in ONCE:
            kinds.remove(kind)
        acts.append(_act(dice, kind))
    return Step(dice.uniform(*PAUSE_S), tuple(acts))


def _act(dice: random.Random, kind: str) -> Act:
    if kind.endswith("-engine"):
        longest_s = 10.0
    elif kind in ("kill", "end", "kill-two", "kill-all"):
        longest_s = 4.0
    else:
        longest_s = 8.0
    # Mostly short: a fault that ends before any process notices it causes as many errors.
    return Act(kind, dice.choice(TARGETS), 0.2 + longest_s * dice.random() ** 2)
