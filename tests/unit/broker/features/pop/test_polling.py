"""Waiting pops: who is asked, in which order and how long, and what ends the waiting."""

import asyncio
from collections.abc import Generator
from typing import cast

import pytest

from rockhopper.broker.features.pop import polling as module
from rockhopper.broker.features.pop.lanes import Lanes
from rockhopper.broker.features.pop.polling import PopPolling, Waiter
from rockhopper.broker.features.pop.sources import ANY_QUEUE, Queue
from rockhopper.broker.store.dispatch import Watcher
from rockhopper.broker.store.files.record_journal import RecordJournal
from rockhopper.broker.store.message_store import MessageStore
from tests.support.held_clock import HeldClock
from tests.support.peers import Peer

KEY = ("g", "orders")


class Watching:
    """What polling asks of a store."""

    def __init__(self) -> None:
        self.dispatch = self
        self.watchers: dict[str, Watcher] = {}


class Polled:
    """A polling, and waiters that note when they are asked; *found* says who is served."""

    def __init__(self) -> None:
        self.store = Watching()
        self.now_s = 0.0
        self.lanes = Lanes(cast(RecordJournal, None))
        store = cast(MessageStore, self.store)
        self.polling = PopPolling(store, self.lanes, clock=lambda: self.now_s)
        self.asked: list[str] = []
        self.near: list[Queue | None] = []
        self.found: set[str] = set()
        self.steps: dict[str, int] = {}

    def waiter(
        self,
        name: str,
        *,
        queue_id: int = -1,
        filter_key: object = None,
        key: tuple[str, str] = KEY,
        peer: Peer | None = None,
        attempt_id: str | None = None,
    ) -> Waiter:
        def attempt(waiter: Waiter, near: Queue | None) -> Generator[None, None, bool]:
            self.asked.append(name + ("!" if waiter.is_last else ""))
            self.near.append(near)
            for _ in range(self.steps.get(name, 0)):
                yield
                self.asked.append(f"{name}…")
            return name in self.found or waiter.is_last

        queue = ANY_QUEUE if queue_id < 0 else queue_id
        return Waiter(
            peer or Peer(),  # type: ignore[arg-type]
            key,
            queue_id,
            [(key[1], queue)],
            filter_key,
            attempt,
            attempt_id=attempt_id,
        )

    def park(self, name: str, wait_s: float = 10, **fields: object) -> Waiter:
        waiter = self.waiter(name, **fields)  # type: ignore[arg-type]
        assert self.polling.park(waiter, wait_s)
        return waiter

    async def turn(self) -> list[str]:
        """Let what is ready run; who was asked."""
        self.asked.clear()
        for _ in range(3):
            await asyncio.sleep(0)
        return list(self.asked)


@pytest.fixture
async def polled() -> Polled:
    return Polled()


async def test_a_message_rings_those_who_wait_for_its_queue_or_any(polled: Polled) -> None:
    polled.park("any", filter_key=0)
    polled.park("one", queue_id=1, filter_key=1, key=("h", "orders"))
    polled.park("two", queue_id=2, filter_key=2, key=("i", "orders"))
    polled.polling.arrived("orders", 1)
    assert sorted(await polled.turn()) == ["any", "one"]
    assert polled.near == [("orders", 1)] * 2
    assert len(polled.polling) == 3


async def test_who_is_served_waits_no_more_and_is_watched_no_more(polled: Polled) -> None:
    polled.found = {"a"}
    polled.park("a")
    assert polled.store.watchers
    polled.polling.ring(KEY)
    assert await polled.turn() == ["a"]
    assert len(polled.polling) == 0
    assert polled.store.watchers == {}
    polled.polling.ring(KEY)
    assert await polled.turn() == []


async def test_they_are_asked_in_order_until_one_finds_nothing(polled: Polled) -> None:
    polled.found = {"a", "b"}
    for name in ("a", "b", "c", "d"):
        polled.park(name)
    polled.park("other filter", filter_key="x")
    polled.polling.ring(KEY)
    assert await polled.turn() == ["a", "b", "c", "other filter"]


async def test_a_topic_rings_every_group_that_waits_for_it(polled: Polled) -> None:
    polled.park("a")
    polled.park("b", key=("h", "orders"))
    polled.park("c", key=("g", "others"))
    polled.polling.ring_topic("orders")
    assert await polled.turn() == ["a", "b"]
    assert polled.near == [None, None]


async def test_long_searches_of_two_groups_go_on_in_turns(polled: Polled) -> None:
    polled.steps = {"a": 2, "b": 2}
    polled.park("a")
    polled.park("b", key=("h", "orders"))
    polled.polling.ring_topic("orders")
    assert await polled.turn() == ["a", "b", "a…", "b…", "a…", "b…"]


async def test_a_turn_ends_when_its_time_is_over_and_the_rest_goes_on_in_the_next(
    polled: Polled,
) -> None:
    polled.steps = {"a": 2}
    polled.park("a")
    polled.polling.ring(KEY)
    polled.polling._clock = iter(range(100)).__next__
    asked = []
    for _ in range(4):
        polled.asked.clear()
        await asyncio.sleep(0)
        asked.append(list(polled.asked))
    assert asked[:3] == [["a"], ["a…"], ["a…"]]


async def test_whose_time_has_run_out_is_asked_once_more_and_answers(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HeldClock(monkeypatch)
    polled.park("late", wait_s=5)
    polled.park("early", wait_s=2)
    clock.advance(1.9)
    assert await polled.turn() == []
    clock.advance(0.2)
    assert await polled.turn() == ["early!"]
    clock.advance(3)
    assert await polled.turn() == ["late!"]
    assert len(polled.polling) == 0


async def test_a_deadline_during_a_search_lets_the_search_answer(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HeldClock(monkeypatch)
    polled.steps = {"a": 1}
    waiter = polled.park("a", wait_s=2)
    polled.polling.ring(KEY)
    clock.advance(2)
    await polled.turn()
    await polled.turn()
    assert waiter.done
    assert len(polled.polling) == 0


async def test_a_closed_connection_takes_its_waiters_along(polled: Polled) -> None:
    peer = Peer()
    polled.park("a", peer=peer)
    polled.park("b", peer=peer)
    polled.park("c")
    peer.hang_up()
    assert len(polled.polling) == 1
    polled.polling.ring(KEY)
    assert await polled.turn() == ["c"]


async def test_a_connection_that_is_closed_already_is_not_kept(polled: Polled) -> None:
    peer = Peer()
    peer.hang_up()
    assert polled.polling.park(polled.waiter("a", peer=peer), 10)
    assert len(polled.polling) == 0
    polled.polling.ring(KEY)
    assert await polled.turn() == []


@pytest.mark.parametrize("limit", ["WAITING_MAX", "WAITING_PER_KEY_MAX"])
async def test_too_many_are_refused(
    polled: Polled, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(module, limit, 2)
    polled.park("a")
    polled.park("b")
    assert not polled.polling.park(polled.waiter("c"), 10)
    other = polled.waiter("d", key=("h", "orders"))
    assert polled.polling.park(other, 10) is (limit == "WAITING_PER_KEY_MAX")


async def test_they_are_counted_by_the_queue_they_asked_for(polled: Polled) -> None:
    polled.park("a")
    polled.park("b", queue_id=3)
    polled.park("c", queue_id=3)
    assert polled.polling.count("g", "orders", -1) == 1
    assert polled.polling.count("g", "orders", 3) == 2
    assert polled.polling.count("g", "others", 3) == 0


async def test_closing_answers_everybody_and_takes_nobody_more(polled: Polled) -> None:
    polled.park("a")
    polled.park("b", key=("h", "orders"))
    polled.polling.close()
    assert sorted(polled.asked) == ["a!", "b!"]
    assert len(polled.polling) == 0
    assert not polled.polling.park(polled.waiter("c"), 10)
    assert await polled.turn() == []


async def test_of_orderly_pops_those_are_asked_beyond_the_first_whose_attempt_holds_a_queue(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, Queue | None]] = []

    def holding(group: str, near: Queue | None) -> set[str | None]:
        seen.append((group, near))
        return {"c"}

    monkeypatch.setattr(polled.lanes, "attempts_holding", holding)
    for attempt_id in ("a", "b", "c", "d"):
        polled.park(attempt_id, attempt_id=attempt_id)
    polled.polling.ring(KEY, ("orders", 1))
    assert await polled.turn() == ["a", "c"]
    assert seen == [(KEY[0], ("orders", 1))]
