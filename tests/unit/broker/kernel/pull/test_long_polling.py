"""Parked pulls: who is woken when, what is kept of them, and how long that may take at a time."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from rockhopper.broker.kernel.pull import long_polling
from rockhopper.broker.kernel.pull.long_polling import TURN_BUDGET_S, LongPolling, ParkedPull
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.protocol.subscription import Subscription
from tests.support.peers import Peer
from tests.support.stepped_loop import SteppedLoop

TAG_A = Subscription("orders", "TagA")
(HASH_A,) = TAG_A.tag_hashes


class Pulls:
    """A long polling whose work costs *cost_s* per pull woken, and who was woken."""

    def __init__(self, loop: SteppedLoop, cost_s: float = 0.0) -> None:
        self.loop = loop
        self.now_s = 0.0
        self.cost_s = cost_s
        self.polling = LongPolling(clock=lambda: self.now_s)
        self.tail = QueueTail("orders", 0, 0, is_batch=False)
        self.woken: list[int] = []

    def park(
        self,
        number: int = 0,
        *,
        peer: Peer,
        suspend_s: float = 15.0,
        subscription: Subscription | None = None,
        offset: int = 0,
    ) -> bool:
        async def park() -> bool:
            parked = Parked(self, number, peer.connection, offset, subscription)
            return self.polling.park(parked, suspend_s)

        return self.loop.run_until_complete(park())

    def arrive(self, *codes: int, end: int = 1) -> list[int]:
        """Let messages arrive; return who was woken by then, in the same turn of the loop."""

        async def arrive() -> list[int]:
            self.polling.arrived(self.tail, end, set(codes))
            return list(self.woken)

        return self.loop.run_until_complete(arrive())


class Parked(ParkedPull):
    """A pull that is recorded when it is woken."""

    def __init__(
        self,
        pulls: Pulls,
        number: int,
        connection: RemotingConnection | None = None,
        offset: int = 0,
        subscription: Subscription | None = None,
    ) -> None:
        super().__init__(connection, pulls.tail, offset, subscription)
        self._pulls, self._number = pulls, number

    def rerun(self) -> None:
        self._pulls.woken.append(self._number)
        self._pulls.now_s += self._pulls.cost_s


@pytest.fixture
def loop() -> Iterator[SteppedLoop]:
    made = SteppedLoop()
    yield made
    made.close()


def test_an_arrival_wakes_who_waits_longest_first(loop: SteppedLoop) -> None:
    pulls, peer = Pulls(loop), Peer()
    for number in range(3):
        assert pulls.park(number, peer=peer)
    pulls.arrive(5)
    assert pulls.woken == [0, 1, 2]
    assert len(pulls.polling) == 0
    pulls.arrive(5)
    assert pulls.woken == [0, 1, 2]


def test_a_pull_beyond_the_arrival_goes_on_waiting(loop: SteppedLoop) -> None:
    pulls = Pulls(loop)
    pulls.park(1, peer=Peer(), offset=7)
    pulls.arrive(5, end=7)
    assert pulls.woken == []
    pulls.arrive(5, end=8)
    assert pulls.woken == [1]


def test_a_pull_is_woken_when_its_time_is_over(loop: SteppedLoop) -> None:
    pulls, peer = Pulls(loop), Peer()
    pulls.park(2, peer=peer, suspend_s=20)
    pulls.park(1, peer=peer, suspend_s=10)
    loop.advance(9.9)
    assert pulls.woken == []
    loop.advance(0.2)
    assert pulls.woken == [1]
    loop.advance(9.7)
    assert pulls.woken == [1]
    loop.advance(0.3)
    assert pulls.woken == [1, 2]


@pytest.mark.parametrize("suspend_s", [-5.0, 0.0])
def test_no_time_at_all_is_a_turn_of_the_loop(loop: SteppedLoop, suspend_s: float) -> None:
    pulls = Pulls(loop)
    pulls.park(1, peer=Peer(), suspend_s=suspend_s)
    assert pulls.woken == []
    loop.advance(0.02)
    assert pulls.woken == [1]


def test_nobody_waits_longer_than_five_minutes(loop: SteppedLoop) -> None:
    pulls = Pulls(loop)
    pulls.park(1, peer=Peer(), suspend_s=1e12)
    loop.advance(300.1)
    assert pulls.woken == [1]


def test_a_filtered_message_brings_the_deadline_down_to_five_seconds(loop: SteppedLoop) -> None:
    pulls = Pulls(loop)
    pulls.park(1, peer=Peer(), subscription=TAG_A)
    pulls.arrive(HASH_A + 1)
    loop.advance(2.5)
    pulls.arrive(HASH_A + 1)  # does not push it back
    loop.advance(2.4)
    assert pulls.woken == []
    loop.advance(0.2)
    assert pulls.woken == [1]


def test_one_matching_message_among_many_is_enough(loop: SteppedLoop) -> None:
    pulls = Pulls(loop)
    pulls.park(1, peer=Peer(), subscription=TAG_A)
    pulls.arrive(HASH_A + 1, HASH_A + 2, HASH_A)
    assert pulls.woken == [1]


def test_waking_many_leaves_the_loop_to_others_in_between(loop: SteppedLoop) -> None:
    pulls, peer = Pulls(loop, cost_s=TURN_BUDGET_S / 4), Peer()
    for number in range(10):
        pulls.park(number, peer=peer)
    assert pulls.arrive(5) == [0, 1, 2, 3]
    pulls.arrive(6, end=2)  # while that goes on
    loop.advance(0)
    assert pulls.woken == list(range(10))


def test_expiry_of_many_leaves_the_loop_to_others_in_between(loop: SteppedLoop) -> None:
    pulls, peer = Pulls(loop, cost_s=TURN_BUDGET_S), Peer()
    turns: list[int] = []

    def count() -> None:
        turns.append(len(pulls.woken))
        if len(pulls.woken) < 5:
            loop.call_soon(count)

    for number in range(5):
        pulls.park(number, peer=peer, suspend_s=1)
    loop.call_later(1.02, count)
    loop.advance(1.03)
    assert sorted(pulls.woken) == list(range(5))
    assert all(after - before <= 1 for before, after in pairwise(turns))
    assert len(turns) >= 4


def test_a_queue_that_gets_messages_all_the_time_keeps_no_other_waiting(loop: SteppedLoop) -> None:
    pulls = Pulls(loop, cost_s=TURN_BUDGET_S)
    other = QueueTail("bills", 0, 0, is_batch=False)
    peer = Peer()
    for number in range(3):
        pulls.park(number, peer=peer)
    first, pulls.tail = pulls.tail, other
    pulls.park(99, peer=peer)
    pulls.tail = first
    pulls.arrive(5)
    pulls.tail = other
    pulls.arrive(5)
    loop.advance(0)
    assert 99 in pulls.woken


def test_the_only_pull_of_a_queue_waits_while_those_of_another_are_woken(
    loop: SteppedLoop,
) -> None:
    pulls = Pulls(loop, cost_s=TURN_BUDGET_S)
    first, other = pulls.tail, QueueTail("bills", 0, 0, is_batch=False)
    peer = Peer()
    for number in range(2):
        pulls.park(number, peer=peer)
    pulls.tail = other
    pulls.park(99, peer=peer)

    async def arrive() -> list[int]:
        pulls.polling.arrived(first, 1, {5})
        pulls.polling.arrived(other, 1, {5})
        return list(pulls.woken)

    assert loop.run_until_complete(arrive()) == [0]
    loop.advance(0)
    assert pulls.woken == [0, 1, 99]


def test_a_connection_has_a_most_of_parked_pulls(
    loop: SteppedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polling, "PARKED_PER_CONNECTION_MAX", 2)
    monkeypatch.setattr(long_polling, "PARKED_MAX", 3)
    pulls, peer, other, third = Pulls(loop), Peer(), Peer(), Peer()
    assert [pulls.park(peer=peer) for _ in range(3)] == [True, True, False]
    assert [pulls.park(peer=other) for _ in range(2)] == [True, False]
    peer.hang_up()
    assert len(pulls.polling) == 1
    assert pulls.park(peer=third)


def test_a_connection_that_goes_takes_its_pulls_with_it(loop: SteppedLoop) -> None:
    pulls, peer, other = Pulls(loop), Peer(), Peer()
    pulls.park(1, peer=peer)
    pulls.park(2, peer=other)
    peer.hang_up()
    pulls.arrive(5)
    assert pulls.woken == [2]
    assert pulls.tail.waiters is None


def test_a_pull_whose_connection_is_closing_is_not_run_again(loop: SteppedLoop) -> None:
    pulls, peer = Pulls(loop), Peer()
    pulls.park(1, peer=peer)
    peer.closed = True  # its connection_lost has not been called yet
    pulls.arrive(5)
    assert pulls.woken == []
    assert len(pulls.polling) == 0


def test_nothing_is_kept_of_pulls_that_were_answered(loop: SteppedLoop) -> None:
    pulls, peer = Pulls(loop), Peer()
    for number in range(1000):
        pulls.park(number, peer=peer)
        pulls.arrive(5)
    polling = pulls.polling
    assert pulls.woken == list(range(1000))
    assert sum(map(len, polling.slots.values())) == 0
    assert len(polling.slots) == len(polling.slot_heap) < 10
    loop.advance(16)
    assert polling.slots == {}


def test_closing_answers_everybody_and_parks_no_more(loop: SteppedLoop) -> None:
    pulls, peer = Pulls(loop), Peer()
    for number in range(3):
        pulls.park(number, peer=peer)

    async def close() -> None:
        pulls.polling.stop()
        await asyncio.sleep(0)

    loop.run_until_complete(close())
    assert sorted(pulls.woken) == [0, 1, 2]
    assert not pulls.park(4, peer=peer)


def test_a_part_of_the_broker_is_woken_once_and_is_no_client_that_waits(loop: SteppedLoop) -> None:
    pulls = Pulls(loop)

    async def watch() -> bool:
        return pulls.polling.watch(Parked(pulls, 7))

    assert loop.run_until_complete(watch())
    assert len(pulls.polling) == 0
    assert pulls.arrive(1) == [7]
    assert pulls.arrive(1, end=2) == [7]
    assert pulls.tail.waiters is None


def test_a_part_of_the_broker_is_woken_at_the_end(loop: SteppedLoop) -> None:
    pulls = Pulls(loop)

    async def watch_and_stop() -> bool:
        pulls.polling.watch(Parked(pulls, 7))
        pulls.polling.stop()
        return pulls.polling.watch(Parked(pulls, 8))

    assert not loop.run_until_complete(watch_and_stop())
    assert pulls.woken == [7]
