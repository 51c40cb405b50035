"""A seed makes a schedule, and the same one again."""

import random

import pytest

from tests.chaos.replicas.nemesis.schedule import ALONE, KINDS, ONCE, schedule

EVERYTHING = tuple(KINDS)


def test_a_seed_brings_its_schedule_again() -> None:
    made = [schedule(random.Random(seed), 20, EVERYTHING) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize("has", [(), ("cuts",), ("power", "losses"), EVERYTHING])
def test_every_fault_comes_and_none_that_cannot_be_made(has: tuple[str, ...]) -> None:
    steps = schedule(random.Random(1), 2000, has)
    made = {act.kind for step in steps for act in step.acts}
    assert made == {kind for need in ("", *has) for kind in KINDS[need]}


def test_what_a_set_bears_once_comes_once() -> None:
    steps = schedule(random.Random(2), 2000, EVERYTHING)
    kinds = [act.kind for step in steps for act in step.acts]
    assert [kinds.count(kind) for kind in ONCE] == [1, 1]


def test_what_must_be_alone_is() -> None:
    steps = schedule(random.Random(2), 5000, EVERYTHING)
    together = [len(step.acts) for step in steps for act in step.acts if act.kind in ALONE]
    assert set(together) == {1}


def test_steps_fill_the_time_and_not_much_more() -> None:
    steps = schedule(random.Random(3), 30, EVERYTHING)
    taken_s = [step.pause_s + max(act.lasting_s for act in step.acts) for step in steps]
    assert sum(taken_s[:-1]) < 30 <= sum(taken_s)
    assert {len(step.acts) for step in steps} == {1, 2}
