"""Which faults there are, what each needs, and how much of the time it gets."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from tests.chaos import kills, power_cuts
from tests.chaos.outcome import Outcome
from tests.chaos.workshop import Workshop

Rounds = Callable[[Workshop, int], AsyncGenerator[Outcome]]


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    rounds: Rounds
    share: float
    """Its part of the time."""
    long_rounds: int
    """How many rounds the long form makes."""
    needs: tuple[str, ...] = ()


FAULTS = (
    Fault("power-cut", power_cuts.rounds, 4, 1000, ("root", "loop", "xfs", "ext4")),
    Fault("kill", kills.rounds, 2, 1000),
)
