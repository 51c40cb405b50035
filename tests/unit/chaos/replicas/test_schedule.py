"""A seed makes a schedule, and the same one again."""

import random

from tests.chaos.replicas.schedule import ANYWHERE, WITH_CUTS, schedule


def test_a_seed_brings_its_schedule_again() -> None:
    made = [schedule(random.Random(seed), 20, can_cut=True) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_every_fault_comes_and_none_that_cannot_be_made() -> None:
    def kinds(*, can_cut: bool) -> set[str]:
        steps = schedule(random.Random(1), 2000, can_cut=can_cut)
        return {act.kind for step in steps for act in step.acts}

    assert kinds(can_cut=True) == {*ANYWHERE, *WITH_CUTS}
    assert kinds(can_cut=False) == set(ANYWHERE)


def test_steps_fill_the_time_and_not_much_more() -> None:
    steps = schedule(random.Random(3), 30, can_cut=True)
    taken_s = [step.pause_s + max(act.lasting_s for act in step.acts) for step in steps]
    assert sum(taken_s[:-1]) < 30 <= sum(taken_s)
    assert {len(step.acts) for step in steps} == {1, 2}
