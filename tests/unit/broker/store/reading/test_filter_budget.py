"""FilterBudget: what is left of it."""

from rockhopper.broker.store.reading.property_stage import BUDGET_S, SHARE, FilterBudget


class Clock:
    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def spend(budget: FilterBudget, clock: Clock, time_s: float) -> None:
    with budget.pays():
        clock.now_s += time_s


def test_it_fills_by_its_share_of_the_time_that_others_have_had() -> None:
    clock = Clock()
    budget = FilterBudget(clock)
    spend(budget, clock, BUDGET_S / 2)
    assert budget.has_room()
    spend(budget, clock, BUDGET_S)
    assert not budget.has_room()
    clock.now_s += BUDGET_S / 2 / SHARE - 0.0001
    assert not budget.has_room(), "one that took too long is paid back"
    clock.now_s += 0.0002
    assert budget.has_room()
    clock.now_s += 1000
    spend(budget, clock, BUDGET_S)
    assert not budget.has_room(), "no more is saved than one budget"


def test_work_within_work_is_paid_for_once() -> None:
    clock = Clock()
    budget = FilterBudget(clock)
    with budget.pays():
        spend(budget, clock, BUDGET_S / 4)
        assert not budget.is_spent()
        spend(budget, clock, BUDGET_S / 4)
    assert budget.has_room()
    with budget.pays():
        clock.now_s += BUDGET_S / 2
        assert budget.is_spent()
    assert not budget.has_room()
