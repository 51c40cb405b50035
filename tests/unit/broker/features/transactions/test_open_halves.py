"""OpenHalves: which half message is the first, which is due, and who waits for whom."""

import random

from rockhopper.broker.features.transactions.open_halves import (
    DEAD_ENTRIES_MAX,
    OpenHalf,
    OpenHalves,
)


def half(offset: int, group: str = "payers", copies: tuple[int, ...] = ()) -> OpenHalf:
    return OpenHalf(offset, 1000 * offset, group, 0, copies=copies)


def test_the_first_is_the_oldest_that_is_open() -> None:
    halves = OpenHalves()
    made = [half(offset) for offset in range(5)]
    for one in made:
        halves.register(one, 10)
    for gone in (0, 2, 1):
        halves.remove(made[gone])
    assert halves.first() is made[3]
    assert len(halves) == 2
    halves.remove(made[3])
    halves.remove(made[4])
    assert halves.first() is None
    assert halves.next_due_ms() is None


def test_due_ones_come_in_the_order_of_their_times() -> None:
    halves = OpenHalves()
    first, second = half(0), half(1)
    halves.register(first, 200)
    halves.register(second, 100)
    assert halves.next_due_ms() == 100
    assert halves.take_due(99) is None
    assert halves.take_due(300) is second
    halves.schedule(second, 400)
    assert halves.take_due(300) is first
    halves.schedule(first, 500)
    halves.schedule(first, 350)
    assert halves.take_due(450) is first
    assert halves.take_due(450) is second


def test_a_copy_is_found_by_all_its_offsets() -> None:
    halves = OpenHalves()
    one = half(9, copies=(4, 6))
    halves.register(one, 0)
    assert {halves.get(offset) for offset in (4, 6, 9)} == {one}
    halves.remove(one)
    assert {halves.get(offset) for offset in (4, 6, 9)} == {None}


def test_who_waits_for_a_producer_is_due_when_one_comes() -> None:
    halves = OpenHalves()
    mine, other = half(0), half(1, "others")
    halves.register(mine, 1000)
    halves.register(other, 1000)
    for one in (mine, other):
        halves.await_producer(one)
    assert halves.waiting_count() == 2
    assert not halves.producer_came("strangers")
    assert halves.producer_came("payers")
    assert halves.next_due_ms() == 0
    assert halves.take_due(5) is mine
    assert halves.next_due_ms() == 1000
    halves.remove(other)
    assert halves.waiting_count() == 0
    assert not halves.producer_came("others")


def test_nothing_is_done_for_each_of_those_that_wait_when_a_producer_comes() -> None:
    halves = OpenHalves()
    for offset in range(100):
        one = half(offset)
        halves.register(one, 1000)
        halves.await_producer(one)
    before = list(halves.dues)
    assert halves.producer_came("payers")
    assert halves.dues == before
    assert [halves.take_due(5) for _ in range(100)] == list(halves)


def test_those_of_several_producers_are_due_together_and_once() -> None:
    halves = OpenHalves()
    made = [half(0), half(1, "others"), half(2, "others")]
    for one in made:
        halves.register(one, 1000)
        halves.await_producer(one)
    assert halves.producer_came("payers")
    assert halves.producer_came("others")
    halves.remove(made[2])
    halves.stop_waiting(made[1])
    assert halves.take_due(5) is made[0]
    assert halves.take_due(5) is None


def test_what_is_finished_takes_no_room() -> None:
    """Behind one that stays open, and with times far in the future."""
    halves = OpenHalves()
    stuck = half(0)
    halves.register(stuck, 10**12)
    random.seed(1)
    window: list[OpenHalf] = []
    for offset in range(1, 20_000):
        window.append(half(offset))
        halves.register(window[-1], 10**12 + offset)
        if len(window) > 50:
            halves.remove(window.pop(random.randrange(50)))
    assert halves.first() is stuck
    assert len(halves.order) <= 2 * len(halves) + DEAD_ENTRIES_MAX + 1
    assert len(halves.dues) <= 2 * len(halves) + DEAD_ENTRIES_MAX + 1
