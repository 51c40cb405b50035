"""FilterTurns: who has the next turn, when, and what a failure of one costs the others."""

import asyncio

import pytest

from rockhopper.broker.server.loop.filter_turns import WAITING_PER_OWNER_MAX, FilterTurns
from rockhopper.broker.store.reading.property_stage import BUDGET_S, FilterBudget
from tests.support.held_clock import HeldClock
from tests.support.turns import until


class Clock:
    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def test_those_who_wait_have_their_turns_one_by_one_and_in_order() -> None:
    async def main() -> list[tuple[int, str]]:
        clock = Clock()
        turns = FilterTurns(FilterBudget(clock))
        order: list[tuple[int, str]] = []
        turn = 0

        def work(name: str) -> None:
            order.append((turn, name))

        for name in ("a1", "a2", "b1", "a3", "c1"):
            assert turns.wait(name[0], lambda name=name: work(name))  # type: ignore[misc]
            assert not turns.budget.has_room(), "nobody passes those who wait"
        while len(turns):
            turn += 1
            await asyncio.sleep(0)
        assert turns.budget.has_room()
        return order

    order = asyncio.run(main())
    assert [name for _, name in order] == ["a1", "b1", "c1", "a2", "a3"]
    assert len({turn for turn, _ in order}) == 5, "one in a turn of the loop"


def test_turns_of_the_loop_go_by_without_work_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        held = HeldClock(monkeypatch)
        clock = Clock()
        turns = FilterTurns(FilterBudget(clock))
        with turns.budget.pays():
            clock.now_s += 2 * BUDGET_S
        served: list[str] = []
        turns.wait("a", lambda: served.append("a"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not served
        clock.now_s += 10
        held.advance(10)
        await until(lambda: bool(served))

    asyncio.run(main())


def test_a_failure_of_one_does_not_keep_the_next_from_its_turn() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        turns = FilterTurns(FilterBudget(Clock()))
        served: list[str] = []

        def fail() -> None:
            raise ValueError

        turns.wait("a", fail)
        turns.wait("b", lambda: served.append("b"))
        await until(lambda: bool(served))

    asyncio.run(main())


def test_no_more_wait_than_there_is_room_for_and_nobody_after_the_end() -> None:
    async def main() -> None:
        turns = FilterTurns(FilterBudget(Clock()))
        served: list[int] = []
        for number in range(WAITING_PER_OWNER_MAX):
            assert turns.wait("a", lambda number=number: served.append(number))  # type: ignore[misc]
        assert not turns.wait("a", lambda: None)
        assert not await turns.turn("a")
        waiting = asyncio.ensure_future(turns.turn("b"))
        await asyncio.sleep(0)
        turns.stop()
        assert len(served) == WAITING_PER_OWNER_MAX
        assert await waiting
        assert len(turns) == 0
        assert not turns.wait("a", lambda: None)

    asyncio.run(main())
