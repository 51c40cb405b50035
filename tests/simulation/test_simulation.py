"""Some lives of a replica set; `make simulate` lives through thousands."""

from collections import Counter
from contextlib import ExitStack

import pytest

from tests.simulation import faults
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.rules import Violation
from tests.simulation.scenarios import SCENARIOS

LIVES = 150
SCENES = 20
LIVES_OF_A_MUTANT = 400
LIVES_THAT_FIND = (875, 1768)
"""What the others do not."""


@pytest.mark.parametrize("first", range(0, LIVES, 50))
def test_no_life_breaks_a_rule(first: int) -> None:
    lives = [faults.run(seed) for seed in range(first, first + 50)]
    assert not any(world.done["put back"] for world in lives)
    acknowledged = sum(world.rules.acknowledged for world in lives)
    assert acknowledged > 50 * 100


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_scenario_breaks_a_rule(scenario: object) -> None:
    assert callable(scenario)
    for seed in range(SCENES):
        scenario(seed)


def test_a_life_is_the_same_each_time() -> None:
    first, second = faults.run(7), faults.run(7)
    assert first.rules.truths[-1].entries == second.rules.truths[-1].entries
    assert first.engine.state == second.engine.state


def test_an_operator_achieves_something_and_at_times_loses_something() -> None:
    done, lost = Counter[str](), 0
    for seed in range(1, LIVES, 2):
        world = faults.run(seed)
        done += world.done
        lost += world.rules.lost
    assert {"switch", "elect", "reseed", "forget"} <= set(done)
    assert lost


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_rule_that_is_switched_off_is_missed(mutant: Mutant) -> None:
    with ExitStack() as stack:
        mutant(stack)
        with pytest.raises(Violation):
            _live()


def _live() -> None:
    for seed in (*range(LIVES_OF_A_MUTANT), *LIVES_THAT_FIND):
        if seed < SCENES:
            for scenario in SCENARIOS:
                scenario(seed)
        faults.run(seed)
