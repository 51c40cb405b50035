"""When a replica asks for the mastership."""

from dataclasses import replace

from rockhopper.broker.ha.campaigning import (
    FIRST_START,
    LEASE_OVER,
    PROCESS_GONE,
    STARTED_ANEW,
    Campaigning,
)
from rockhopper.broker.ha.epochs import Epoch
from rockhopper.broker.ha.replica_set import Announcement, Leader, Replica, SetState, View
from rockhopper.broker.ha.standing import Standing
from rockhopper.broker.ha.timing import Timing

A, B, C = (Replica(number, f"s{number}") for number in (1, 2, 3))
STATE = SetState(3, A, frozenset({A, B, C}), 1)
LEADER = Leader(1, "i1", 3)
TIMING = Timing()


def campaigning(me: Replica = B, *, is_clean: bool = True) -> Campaigning:
    standing = Standing(me, f"i{me.id}", 3, (Epoch(3, 0),), is_clean=is_clean, log_end=100)
    return Campaigning(standing, TIMING, 1, 0, lambda: -1)


def test_a_silent_master_without_a_lease_is_replaced() -> None:
    view = View(STATE, 5, None)
    assert not campaigning().is_due(view, 0, 0, TIMING.silence_ms - 1)
    assert campaigning().is_due(view, 0, 0, TIMING.silence_ms)


def test_a_master_with_a_lease_is_let_be() -> None:
    assert not campaigning().is_due(View(STATE, 5, LEADER), 0, 1, 100_000)


def test_a_process_that_is_gone_is_displaced() -> None:
    found = campaigning()
    view = View(STATE, 5, LEADER)
    assert found.is_due(view, 0, 2, 10)
    request = found.request(view, 4)
    assert (request.version, request.displaced) == (5, LEADER)
    assert request.state.in_sync == {B, C}


def test_a_replica_displaces_its_own_former_process() -> None:
    assert campaigning(A).is_due(View(STATE, 5, LEADER), 0, 0, 10)


def test_who_is_not_in_sync_or_lost_its_memory_is_not_electable() -> None:
    assert campaigning().is_electable(STATE)
    assert not campaigning(Replica(2, "another disk")).is_electable(STATE)
    assert not campaigning(is_clean=False).is_electable(STATE)


def test_better_candidates_go_first() -> None:
    members = {3: Announcement(C, "i3", last_epoch=3, log_end=101)}
    found = campaigning()
    view = View(STATE, 5, None, members)
    assert not found.is_due(view, 0, 0, 1000)
    assert not found.is_due(view, 0, 0, 1000 + TIMING.rank_ms - 1)
    assert found.is_due(view, 0, 0, 1000 + TIMING.rank_ms)


def test_the_first_start_waits_for_longer_logs() -> None:
    found = campaigning()
    longer = View(None, 0, None, {3: Announcement(C, "i3", last_epoch=3, log_end=101)})
    assert not found.is_due(View(None, 0, None), 0, 0, TIMING.first_start_ms - 1)
    assert not found.is_due(longer, 0, 0, TIMING.first_start_ms)
    assert found.is_due(View(None, 0, None), 0, 0, TIMING.first_start_ms)
    request = found.request(View(None, 0, None), 4)
    assert (request.version, request.state.in_sync) == (0, frozenset({B}))


def test_whom_an_operator_has_not_designated_does_not_ask() -> None:
    for designated, is_due in ((None, True), (B.id, True), (A.id, False), (0, False)):
        for view in (View(STATE, 5, None), View(None, 0, None)):
            view = replace(view, designated=designated)
            assert campaigning().is_due(view, 0, 0, 100_000) is is_due


def test_an_election_says_its_cause() -> None:
    def why(me: Replica, view: View) -> str:
        return campaigning(me).request(view, 4).state.history[-1].why

    assert why(B, View(None, 0, None)) == FIRST_START
    assert why(B, View(STATE, 5, None)) == LEASE_OVER
    assert why(B, View(STATE, 5, LEADER)) == PROCESS_GONE
    assert why(A, View(STATE, 5, LEADER)) == STARTED_ANEW
