"""Schedule: which faults a round makes, and when; all of it follows from the seed.

A step is one fault, or two at once. Who is meant by *master* or *follower* is seen when it begins.
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
"""What must be there -> which faults it takes; one that is named twice comes twice as often."""
ONCE = ("cut-power", "lose-disk")
"""What a second time may take more than a set promises to bear."""
ALONE = ("restore-engine",)
"""A replica that starts meanwhile has forgotten what the engine told it, and believes the past."""
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
    after_s: float = 0.0
    """From the beginning of its step."""

    def __str__(self) -> str:
        return f"{self.kind} {self.target} {self.lasting_s:.1f}"


@dataclass(frozen=True, slots=True)
class Step:
    """What is done at once, after a pause."""

    pause_s: float
    acts: tuple[Act, ...]


def schedule(dice: random.Random, duration_s: float, has: Collection[str]) -> Sequence[Step]:
    """Steps that take *duration_s* in all, or a little more, of faults that need what it *has*."""
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
    # Mostly short: what is over before anybody noticed is as likely to be mistaken.
    return Act(kind, dice.choice(TARGETS), 0.2 + longest_s * dice.random() ** 2)
