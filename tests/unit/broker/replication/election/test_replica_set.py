"""The changes of a set's state that are allowed."""

import pytest

from rockhopper.broker.replication.election.replica_set import (
    HISTORY_MAX,
    TRAIL_MAX,
    Announcement,
    Replica,
    SeenState,
    SetState,
)

A, B, C = (Replica(number, f"s{number}") for number in (1, 2, 3))


def a_state(*members: Replica, floor: int = 1) -> SetState:
    return SetState(epoch=4, master=A, in_sync=frozenset(members), min_in_sync=floor)


def test_a_new_master_has_a_larger_epoch_and_the_old_one_leaves() -> None:
    state = a_state(A, B, C).elected(B, 5, "displaced", without_old=True)
    assert (state.epoch, state.master, state.in_sync) == (5, B, frozenset({B, C}))
    assert state.history[-1].why == "displaced"


def test_the_old_master_stays_at_the_floor() -> None:
    state = a_state(A, B, floor=2).elected(B, 5, "displaced", without_old=True)
    assert state.in_sync == {A, B}


def test_the_history_is_bounded() -> None:
    state = a_state(A)
    for epoch in range(5, 30):
        state = state.elected(A, epoch, "again", without_old=False)
    assert [term.epoch for term in state.history] == list(range(30 - HISTORY_MAX, 30))


def test_nobody_leaves_at_the_floor_but_for_another() -> None:
    state = a_state(A, B, floor=2)
    assert state.changed(leaving=B) is None
    exchanged = state.changed(leaving=B, joining=C)
    assert exchanged is not None
    assert exchanged.in_sync == {A, C}


def test_a_set_below_its_floor_may_grow() -> None:
    grown = a_state(A, floor=3).changed(joining=B)
    assert grown is not None
    assert not grown.is_complete


@pytest.mark.parametrize("change", [{"joining": B}, {"leaving": C}, {"leaving": A}])
def test_no_change_is_none(change: dict[str, Replica]) -> None:
    assert a_state(A, B).changed(**change) is None


def test_the_better_candidate_has_the_larger_rank() -> None:
    ranks = [
        Announcement(A, "i", last_epoch=2, log_end=10).rank,
        Announcement(C, "i", last_epoch=3, log_end=5).rank,
        Announcement(B, "i", last_epoch=3, log_end=5).rank,
        Announcement(C, "i", last_epoch=3, log_end=5, priority=1).rank,
        Announcement(A, "i", last_epoch=3, log_end=6).rank,
    ]
    assert ranks == sorted(ranks)


def later(state: SetState, changes: int) -> SetState:
    for epoch in range(5, 5 + changes):
        state = state.elected(A, epoch, "again", without_old=False)
    return state


def test_a_state_knows_those_before_it() -> None:
    state = later(a_state(A, B, C), 3)
    assert not later(state, 3).contradicts(state.seen_state)
    assert not later(state, TRAIL_MAX + 3).contradicts(state.seen_state)
    assert not state.contradicts(SeenState())


def test_a_state_from_before_contradicts_what_came_later() -> None:
    state = later(a_state(A, B, C), 3)
    assert state.contradicts(later(state, 1).seen_state)
    assert a_state(A).contradicts(state.seen_state)


def test_a_state_that_has_gone_on_from_an_old_one_contradicts_what_came_in_between() -> None:
    backup = later(a_state(A, B, C), 3)
    left = backup.changed(leaving=B)
    assert left
    elected = backup.elected(B, 9, "from a backup", without_old=True)
    assert elected.seen_state.changes == left.seen_state.changes
    assert elected.contradicts(left.seen_state)
    assert later(elected, 3).contradicts(left.seen_state)
