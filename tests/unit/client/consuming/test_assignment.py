"""The queues of a consumer: taken over where the group stands, given up finished, committed."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from rockhopper.client.consuming.assignment import Assignment
from rockhopper.client.consuming.face.pauses import Pauses
from rockhopper.client.consuming.process_queue import ProcessQueue, Room
from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.errors import BrokerUnreachableError
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.message import StoredMessage
from tests.support.held_clock import HeldClock
from tests.support.turns import until

A, B = MessageQueue("orders", "a", 0), MessageQueue("orders", "a", 1)


class Parts:
    """What an assignment works with: committed offsets, locks, and a fetcher that never fetches."""

    def __init__(self, **settings: Any) -> None:
        self.committed: dict[MessageQueue, int] = {}
        self.remembered: dict[MessageQueue, int] = {}
        self.unlocked: list[MessageQueue] = []
        self.fetching: list[MessageQueue] = []
        self.offered: list[MessageQueue] = []
        self.failure: Exception | None = None
        self.released_count = 0
        self.stored_count = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.failures: list[BaseException] = []
        self.pauses = Pauses(None)
        given = {"hand_over_s": 0.0} | settings
        self.assignment = Assignment(
            ConsumerSettings("g", {}, **given),
            cast(Any, self),
            cast(Any, self),
            cast(Any, self),
            cast(Any, self),
            Room(1000, 1 << 20),
            cast(Any, self),
            self,
        )

    def released(self) -> None:
        self.released_count += 1

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)

    # progress

    async def load(self, queue: MessageQueue) -> int | None:
        return self.committed.get(queue)

    async def store_first(self, queue: MessageQueue, offset: int) -> None:
        await self.store(queue, offset)

    async def store(self, queue: MessageQueue, offset: int) -> None:
        self.stored_count += 1
        await self.answers.wait()
        if self.failure is not None:
            raise self.failure
        self.committed[queue] = offset

    def remember(self, queue: MessageQueue, offset: int) -> None:
        self.remembered[queue] = offset

    # offsets

    async def min_offset(self, queue: MessageQueue) -> int:
        return 2

    async def max_offset(self, queue: MessageQueue) -> int:
        return 9

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        return time_ms // 1000

    # fetcher, handout, locks

    async def run(self, held: ProcessQueue) -> None:
        self.fetching.append(held.queue)
        try:
            await asyncio.Event().wait()
        finally:
            self.fetching.remove(held.queue)

    def offer(self, held: ProcessQueue) -> None:
        self.offered.append(held.queue)

    async def lock(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], bool]:
        return set(), False

    def holds(self, _queue: MessageQueue) -> bool:
        return False

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        self.unlocked += queues

    async def take_over(self, queue: MessageQueue = A, start: Any = "earliest") -> ProcessQueue:
        await self.assignment.take_over(queue, start, is_alone=True)
        await until(lambda: queue in self.fetching)
        return self.assignment.held[queue]


def fill(held: ProcessQueue, count: int) -> None:
    first = held.fetch_offset
    messages = [
        ReceivedMessage(held.queue, StoredMessage("orders", 0, offset, 0, b"x"))
        for offset in range(first, first + count)
    ]
    held.append_messages(messages, first + count)


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        ("earliest", 2),
        ("latest", 9),
        (5000, 5),
        (datetime.fromtimestamp(7, UTC), 7),
    ],
)
async def test_a_new_group_starts_where_it_was_asked_to_and_says_so(
    start: Any, offset: int
) -> None:
    parts = Parts()
    held = await parts.take_over(start=start)
    assert held.fetch_offset == offset
    assert parts.committed == {A: offset}
    await parts.assignment.close()


async def test_a_group_goes_on_where_it_stands() -> None:
    parts = Parts()
    parts.committed[A] = 0
    held = await parts.take_over(start="latest")
    assert (held.fetch_offset, held.committed) == (0, 0)
    await parts.assignment.close()


async def test_what_is_given_up_is_committed_and_unlocked_when_it_is_finished() -> None:
    parts = Parts(orderly=True)
    held = await parts.take_over()
    fill(held, 3)
    message = held.next_message()
    parts.assignment.give_up(A)
    await asyncio.sleep(0)
    assert held.is_dropped
    assert parts.assignment.is_releasing(A)
    assert parts.assignment.to_lock == {A}
    assert parts.unlocked == []
    held.finish(message)
    await until(lambda: parts.released_count == 1)
    assert parts.committed[A] == 3
    assert parts.unlocked == [A]
    assert parts.assignment.to_lock == set()
    assert parts.fetching == []


async def test_what_cannot_be_committed_is_remembered() -> None:
    parts = Parts()
    held = await parts.take_over()
    fill(held, 1)
    held.finish(held.next_message())
    parts.failure = BrokerUnreachableError("gone")
    parts.assignment.give_up(A)
    await until(lambda: parts.released_count == 1)
    assert parts.remembered == {A: 3}
    assert parts.unlocked == [A]


async def test_what_is_lost_is_neither_committed_nor_released() -> None:
    parts = Parts()
    held = await parts.take_over()
    fill(held, 2)
    held.finish(held.next_message())
    parts.assignment.lose(A)
    assert not held.waiting
    parts.assignment.lose(B)
    await asyncio.sleep(0)
    assert held.is_lost
    assert (parts.committed, parts.released_count, parts.assignment.held) == ({A: 2}, 0, {})


async def test_a_reset_goes_on_elsewhere_and_commits() -> None:
    parts = Parts()
    held = await parts.take_over()
    fill(held, 3)
    parts.assignment.reset(A, 50)
    parts.assignment.reset(B, 50)
    await until(lambda: parts.committed[A] == 50)
    assert held.fetch_offset == 50
    await parts.assignment.close()


async def test_commits_name_what_failed_and_go_on() -> None:
    parts = Parts()
    held = await parts.take_over()
    fill(held, 1)
    held.finish(held.next_message())
    parts.failure = BrokerUnreachableError("gone")
    (failure,) = await parts.assignment.commit()
    assert failure is parts.failure
    parts.failure = None
    assert await parts.assignment.commit() == []
    assert parts.committed == {A: 3}
    await parts.assignment.close()


async def test_a_commit_that_is_not_answered_yet_is_not_sent_again() -> None:
    parts = Parts()
    held = await parts.take_over()
    fill(held, 1)
    held.finish(held.next_message())
    parts.answers.clear()
    parts.stored_count = 0
    first = asyncio.create_task(parts.assignment.commit())
    await until(lambda: parts.stored_count == 1)
    second = asyncio.create_task(parts.assignment.commit())
    parts.assignment.commit_soon(held)
    await asyncio.sleep(0)
    parts.answers.set()
    assert await first == await second == []
    assert parts.stored_count == 1
    await parts.assignment.close()


async def test_closing_commits_unlocks_and_drops_everything() -> None:
    parts = Parts()
    first, second = await parts.take_over(A), await parts.take_over(B)
    for held in (first, second):
        fill(held, 2)
        held.finish(held.next_message())
    parts.assignment.offer_all()
    assert parts.offered == [A, B]
    parts.assignment.stop_fetching()
    await parts.assignment.close()
    assert parts.committed == {A: 3, B: 3}
    assert set(parts.unlocked) == {A, B}
    assert first.is_dropped
    assert second.is_dropped
    assert parts.assignment.held == {}


async def test_abandoning_reads_and_commits_nothing_more() -> None:
    parts = Parts()
    held, other = await parts.take_over(A), await parts.take_over(B)
    fill(held, 1)
    fill(other, 1)
    held.finish(held.next_message())
    parts.assignment.give_up(A)
    await parts.assignment.abandon()
    assert parts.committed == {A: 2, B: 2}
    assert parts.fetching == []
    assert not other.waiting


async def test_an_abandoned_assignment_forgets_the_commit_of_what_was_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts, clock = Parts(), HeldClock(monkeypatch)
    held = await parts.take_over()
    fill(held, 1)
    held.finish(held.next_message())
    parts.assignment.idle(held)
    await parts.assignment.abandon()
    clock.advance(1)
    for _ in range(3):
        await asyncio.sleep(0)
    assert parts.committed == {A: 2}
