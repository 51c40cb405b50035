"""The fuzzer's targets hold for what they begin with; the fuzzing itself is ``make fuzz``."""

import pytest

from rockhopper.broker.hot.plain_sends import take_sends
from tests.fuzz.seeds import SEEDS

pytestmark = pytest.mark.skipif(take_sends is None, reason="it is not compiled")


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_a_seed_is_done_alike_by_both_twins(number: int) -> None:
    from tests.fuzz import targets

    targets.run(SEEDS[number])
    targets.run(SEEDS[number][:-1])


def test_the_seeds_reach_every_target() -> None:
    from tests.fuzz import targets

    assert {seed[0] for seed in SEEDS} == set(range(len(targets.TARGETS)))
