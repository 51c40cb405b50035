"""Some lives of a replica set; `make simulate` runs thousands."""

from collections import Counter
from contextlib import ExitStack
from functools import cache

import pytest

from tests.simulation import faults
from tests.simulation.mutants import MUTANTS, Broken
from tests.simulation.rules import Violation
from tests.simulation.scenarios import SCENARIOS

LIVES = 40
SCENES = 2
MORE_SCENES = 10


@cache
def _live(seed: int) -> tuple[Counter[str], int, int]:
    """Return what operators did in a life, and how many messages were acknowledged and lost."""
    world = faults.run(seed)
    return Counter(world.done), world.rules.acknowledged, world.rules.lost


def test_no_life_breaks_a_rule() -> None:
    lives = [_live(seed) for seed in range(LIVES)]
    assert not any(done["put back"] for done, _, _ in lives)
    assert sum(acknowledged for _, acknowledged, _ in lives) > LIVES * 100


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_scenario_breaks_a_rule(scenario: object) -> None:
    assert callable(scenario)
    for seed in range(SCENES):
        scenario(seed)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_scenario_breaks_a_rule_by_other_seeds(scenario: object) -> None:
    assert callable(scenario)
    for seed in range(SCENES, MORE_SCENES):
        scenario(seed)


def test_a_life_is_the_same_each_time() -> None:
    first, second = faults.run(7), faults.run(7)
    assert first.rules.truths[-1].entries == second.rules.truths[-1].entries
    assert first.engine.state == second.engine.state


def test_an_operator_achieves_something_and_at_times_loses_something() -> None:
    lives = [_live(seed) for seed in range(LIVES)]
    done = sum((done for done, _, _ in lives), Counter[str]())
    assert {"switch", "elect", "reseed", "forget"} <= set(done)
    assert any(lost for _, _, lost in lives)


@pytest.mark.parametrize("case", MUTANTS, ids=lambda case: case.mutant.__name__)
def test_a_rule_that_is_switched_off_breaks_the_life_that_is_kept(case: Broken) -> None:
    case.live(case.seed)
    name = case.mutant.__name__
    with ExitStack() as stack:
        case.mutant(stack)
        try:
            case.live(case.seed)
        except Violation:
            return
    pytest.fail(
        f"{name} no longer breaks {case.live.__name__}({case.seed}); "
        f"find another life: python -m tests.simulation.mutants {name}"
    )
