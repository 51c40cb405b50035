"""QueueLocks: one consumer per queue and group, for 60 s, or until its connection goes."""

import json

import pytest

from rockhopper.broker.kernel.members import queue_locks
from rockhopper.broker.kernel.members.queue_locks import (
    LEASE_MS,
    UNKNOWN_MS,
    LockState,
    QueueLocks,
)
from rockhopper.broker.kernel.state_channels import StateChannels
from tests.support.noting_writer import NotingWriter
from tests.support.peers import Clock, Peer

Q0, Q1 = ("orders", "broker-a", 0), ("orders", "broker-a", 1)


def new_locks(clock: Clock) -> QueueLocks:
    return QueueLocks(LockState(StateChannels(), clock), now_ms=clock)


def test_free_queues_are_granted_and_taken_ones_are_not() -> None:
    locks, first, second = new_locks(Clock()), Peer(), Peer()
    assert locks.lock("billing", "c1", first.connection, [Q0]) == [Q0]
    assert locks.lock("billing", "c2", second.connection, [Q0, Q1]) == [Q1]


def test_groups_do_not_lock_each_other_out() -> None:
    locks, peer = new_locks(Clock()), Peer()
    assert locks.lock("billing", "c1", peer.connection, [Q0]) == [Q0]
    assert locks.lock("audit", "c2", peer.connection, [Q0]) == [Q0]


def test_holder_renews_and_a_renewed_lock_lives_on() -> None:
    clock = Clock()
    locks, first, second = new_locks(clock), Peer(), Peer()
    locks.lock("billing", "c1", first.connection, [Q0])
    clock.advance(LEASE_MS)
    assert locks.lock("billing", "c1", first.connection, [Q0]) == [Q0]
    clock.advance(LEASE_MS)
    assert locks.lock("billing", "c2", second.connection, [Q0]) == []
    clock.advance(1)
    assert locks.lock("billing", "c2", second.connection, [Q0]) == [Q0]


def test_only_the_holder_unlocks() -> None:
    locks, first, second = new_locks(Clock()), Peer(), Peer()
    locks.lock("billing", "c1", first.connection, [Q0])
    locks.unlock("billing", "c2", second.connection, [Q0])
    assert locks.lock("billing", "c2", second.connection, [Q0]) == []
    locks.unlock("billing", "c1", first.connection, [Q0, Q1])
    assert locks.lock("billing", "c2", second.connection, [Q0]) == [Q0]


def test_closed_connection_frees_its_queues_at_once() -> None:
    locks, first, second = new_locks(Clock()), Peer(), Peer()
    locks.lock("billing", "c1", first.connection, [Q0, Q1])
    first.hang_up()
    assert locks.lock("billing", "c2", second.connection, [Q0, Q1]) == [Q0, Q1]


def test_lock_moves_to_the_connection_that_renewed_it() -> None:
    locks, old, new, other = new_locks(Clock()), Peer(), Peer(), Peer()
    locks.lock("billing", "c1", old.connection, [Q0])
    locks.lock("billing", "c1", new.connection, [Q0])
    old.hang_up()
    assert locks.lock("billing", "c2", other.connection, [Q0]) == []


def test_client_consumes_in_order_while_a_lock_of_its_own_lives() -> None:
    clock = Clock()
    locks, peer, other = new_locks(clock), Peer(), Peer()
    assert not locks.is_held_by("billing", peer.connection)
    locks.lock("billing", "c1", peer.connection, [Q0])
    assert locks.is_held_by("billing", peer.connection)
    assert not locks.is_held_by("billing", other.connection)
    clock.advance(LEASE_MS + 1)
    assert not locks.is_held_by("billing", peer.connection)


def test_lock_stays_while_its_client_has_another_connection() -> None:
    asking, beating, rival = Peer(), Peer(), Peer()
    locks = QueueLocks(
        LockState(StateChannels(), Clock()),
        now_ms=Clock(),
        other_connection=lambda group, client_id: (
            beating.connection if (group, client_id) == ("billing", "c1") else None
        ),
    )
    locks.lock("billing", "c1", asking.connection, [Q0])
    asking.hang_up()
    assert locks.lock("billing", "c2", rival.connection, [Q0]) == []
    beating.hang_up()
    assert locks.lock("billing", "c2", rival.connection, [Q0]) == [Q0]


def test_expired_locks_are_dropped_and_live_ones_kept() -> None:
    clock = Clock()
    locks, peer, other = new_locks(clock), Peer(), Peer()
    locks.lock("billing", "c1", peer.connection, [Q0])
    clock.advance(LEASE_MS)
    locks.lock("billing", "c1", peer.connection, [Q1])
    clock.advance(1)
    locks.expire()
    assert locks.lock("billing", "c2", other.connection, [Q0, Q1]) == [Q0]


def test_nothing_is_granted_to_a_connection_that_has_gone() -> None:
    locks, gone, other = new_locks(Clock()), Peer(), Peer()
    gone.hang_up()
    assert locks.lock("billing", "c1", gone.connection, [Q0]) == []
    assert locks.lock("billing", "c2", other.connection, [Q0]) == [Q0]


def test_what_another_master_granted_is_kept_for_its_holder() -> None:
    clock = Clock()
    locks, first, second = new_locks(clock), Peer(), Peer()
    locks.lead({("billing", Q0): ("c1", clock() - 20_000)})
    assert locks.lock("billing", "c2", second.connection, [Q0]) == []
    clock.advance(LEASE_MS - 20_000)
    assert locks.lock("billing", "c2", second.connection, [Q0]) == []
    assert locks.lock("billing", "c1", first.connection, [Q0]) == [Q0]
    locks.unlock("billing", "c1", first.connection, [Q0])
    assert locks.lock("billing", "c2", second.connection, [Q0]) == [Q0]


def test_what_it_granted_ends_in_its_time() -> None:
    clock = Clock()
    locks, second = new_locks(clock), Peer()
    locks.lead({("billing", Q0): ("c1", clock() - 20_000)})
    clock.advance(LEASE_MS - 20_000 + 1)
    assert locks.lock("billing", "c2", second.connection, [Q0]) == [Q0]


def test_a_new_master_waits_before_it_grants_what_it_does_not_know() -> None:
    clock = Clock()
    locks, peer = new_locks(clock), Peer()
    locks.lead({})
    assert locks.lock("billing", "c1", peer.connection, [Q0]) == []
    clock.advance(UNKNOWN_MS + 1)
    assert locks.lock("billing", "c1", peer.connection, [Q0]) == [Q0]


def test_grants_and_their_ends_are_told() -> None:
    channels, peer, clock = StateChannels(), Peer(), Clock()
    state = LockState(channels, clock)
    locks = QueueLocks(state, now_ms=clock)
    channels.writer = NotingWriter()

    def told() -> list[tuple[object, str]]:
        return [
            ((topic, broker, queue_id), client_id)
            for _, payload in state.gathered()
            for _, topic, broker, queue_id, client_id in json.loads(payload)
        ]

    locks.lock("billing", "c1", peer.connection, [Q0, Q1])
    assert told() == [(Q0, "c1"), (Q1, "c1")]
    locks.unlock("billing", "c1", peer.connection, [Q0])
    peer.hang_up()
    assert told() == [(Q0, ""), (Q1, "")]
    assert told() == []


def test_a_lock_stays_until_the_last_connection_it_was_taken_over_is_gone() -> None:
    locks, old, new, other = new_locks(Clock()), Peer(), Peer(), Peer()
    locks.lock("billing", "c1", new.connection, [Q0])
    locks.lock("billing", "c1", old.connection, [Q0])
    old.hang_up()
    assert locks.lock("billing", "c2", other.connection, [Q0]) == []
    new.hang_up()
    assert locks.lock("billing", "c2", other.connection, [Q0]) == [Q0]


def test_a_lock_that_was_taken_again_since_outlasts_an_unlock_that_comes_late() -> None:
    locks, old, new, other = new_locks(Clock()), Peer(), Peer(), Peer()
    locks.lock("billing", "c1", old.connection, [Q0])
    locks.lock("billing", "c1", new.connection, [Q0])
    locks.unlock("billing", "c1", old.connection, [Q0])
    assert locks.lock("billing", "c2", other.connection, [Q0]) == []
    locks.unlock("billing", "c1", new.connection, [Q0])
    locks.lock("billing", "c1", new.connection, [Q0])
    locks.unlock("billing", "c1", old.connection, [Q0])
    assert locks.lock("billing", "c2", other.connection, [Q0]) == []


def test_a_client_unlocks_over_a_new_connection_what_it_locked_over_the_old() -> None:
    locks, old, new, other = new_locks(Clock()), Peer(), Peer(), Peer()
    locks.lock("billing", "c1", old.connection, [Q0])
    locks.unlock("billing", "c1", new.connection, [Q0])
    assert locks.lock("billing", "c2", other.connection, [Q0]) == [Q0]


def test_nothing_is_granted_or_renewed_while_another_may_grant_it() -> None:
    channels, peer, clock, writer = StateChannels(), Peer(), Clock(), NotingWriter()
    locks = QueueLocks(LockState(channels, clock), now_ms=clock)
    locks.lock("billing", "c1", peer.connection, [Q0])
    channels.writer = writer
    writer.leads_alone = False
    assert locks.lock("billing", "c1", peer.connection, [Q0, Q1]) == []
    writer.leads_alone = True
    assert locks.lock("billing", "c1", peer.connection, [Q0, Q1]) == [Q0, Q1]


def test_locks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "LOCKS_MAX", 2)
    locks, peer, other = new_locks(Clock()), Peer(), Peer(port=2)
    assert locks.lock("billing", "c1", peer.connection, [Q0, Q1]) == [Q0, Q1]
    assert locks.lock("others", "c1", peer.connection, [Q0]) == []
    assert locks.lock("billing", "c1", peer.connection, [Q0, Q1]) == [Q0, Q1]
    locks.unlock("billing", "c1", peer.connection, [Q1])
    assert locks.lock("others", "c1", other.connection, [Q0]) == [Q0]
    peer.hang_up()
    locks.expire()
    assert locks.lock("billing", "c2", other.connection, [Q0]) == [Q0]


def test_a_lock_knows_a_few_connections_of_its_client() -> None:
    locks, other = new_locks(Clock()), Peer(port=2)
    peers = [Peer(port=100 + number) for number in range(20)]
    for peer in peers:
        locks.lock("billing", "c1", peer.connection, [Q0])
    for peer in peers[-8:]:
        assert locks.is_held_by("billing", peer.connection)
        assert locks.lock("billing", "c2", other.connection, [Q0]) == []
        peer.hang_up()
    assert locks.lock("billing", "c2", other.connection, [Q0]) == [Q0]


class CountedPeer(Peer):
    """A peer that counts how often it is compared with another."""

    compared = 0

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        CountedPeer.compared += 1
        return self is other


def test_a_closed_connection_costs_nothing_for_the_locks_of_others() -> None:
    locks, peer, other = new_locks(Clock()), Peer(port=1), CountedPeer(port=2)
    locks.lock("billing", "c2", other.connection, [("t", "b", n) for n in range(100)])
    locks.lock("billing", "c1", peer.connection, [Q0])
    CountedPeer.compared = 0
    assert locks.is_held_by("billing", peer.connection)
    peer.hang_up()
    assert CountedPeer.compared <= 2
    assert locks.lock("billing", "c3", other.connection, [Q0]) == [Q0]


def test_a_connection_is_known_by_no_lock_that_another_client_has_taken_over() -> None:
    clock = Clock()
    locks, old, new = new_locks(clock), Peer(port=1), Peer(port=2)
    locks.lock("billing", "c1", old.connection, [Q0, Q1])
    clock.advance(LEASE_MS + 1)
    locks.lock("billing", "c2", new.connection, [Q0])
    locks.expire()
    assert not locks.is_held_by("billing", old.connection)
    old.hang_up()
    assert locks.is_held_by("billing", new.connection)
    assert locks.lock("billing", "c3", Peer(port=3).connection, [Q0, Q1]) == [Q1]
