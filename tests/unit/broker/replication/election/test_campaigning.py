"""When a replica asks for the mastership."""

from dataclasses import replace

import pytest

from rockhopper.broker.replication.election.campaigning import (
    FIRST_START,
    LEASE_OVER,
    POWER_CUT,
    PROCESS_GONE,
    STARTED_ANEW,
    Campaigning,
)
from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.replica_set import (
    Announcement,
    Leader,
    Replica,
    SeenState,
    SetState,
    SetView,
)
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing

A, B, C = (Replica(number, f"s{number}") for number in (1, 2, 3))
STATE = SetState(3, A, frozenset({A, B, C}), 1)
LEADER = Leader(1, "i1", 3)
TIMING = Timing()


def campaigning(me: Replica = B, *, is_clean: bool = True) -> Campaigning:
    replica_state = ReplicaState(me, f"i{me.id}", 3, (Epoch(3, 0),), is_clean=is_clean, log_end=100)
    return Campaigning(replica_state, TIMING, 1, 0, lambda: -1)


def test_a_silent_master_without_a_lease_is_replaced() -> None:
    view = SetView(STATE, 5, None)
    assert not campaigning().is_due(view, 0, 0, TIMING.silence_ms - 1)
    assert campaigning().is_due(view, 0, 0, TIMING.silence_ms)


def test_a_master_with_a_lease_is_let_be() -> None:
    assert not campaigning().is_due(SetView(STATE, 5, LEADER), 0, 1, 100_000)


def test_a_process_that_is_gone_is_displaced() -> None:
    found = campaigning()
    view = SetView(STATE, 5, LEADER)
    assert found.is_due(view, 0, 2, 10)
    request = found.request(view, 4)
    assert (request.version, request.displaced) == (5, LEADER)
    assert request.state.in_sync == {B, C}


def test_a_replica_displaces_its_own_former_process() -> None:
    assert campaigning(A).is_due(SetView(STATE, 5, LEADER), 0, 0, 10)


def test_who_is_not_in_sync_or_lost_its_memory_is_not_electable() -> None:
    assert campaigning().is_electable(STATE)
    assert not campaigning(Replica(2, "another disk")).is_electable(STATE)
    assert not campaigning(is_clean=False).is_electable(STATE)


def test_nobody_asks_by_a_state_that_is_older_than_what_a_running_replica_knows() -> None:
    state = replace(STATE, trail=(SeenState(4, 40), SeenState(5, 50)))
    for member, is_due in (
        (Announcement(C, "i3", last_epoch=3, seen_state=SeenState(4, 40)), True),
        (Announcement(C, "i3", last_epoch=4, seen_state=SeenState(4, 40)), False),
        (Announcement(C, "i3", last_epoch=3, seen_state=SeenState(6, 60)), False),
        (Announcement(C, "i3", last_epoch=3, seen_state=SeenState(5, 55)), False),
    ):
        view = SetView(state, 5, None, {3: member})
        assert campaigning().is_due(view, 0, 0, 100_000) is is_due
        assert campaigning().may_ask(view, 4) is is_due


def test_better_candidates_go_first() -> None:
    members = {3: Announcement(C, "i3", last_epoch=3, log_end=101)}
    found = campaigning()
    view = SetView(STATE, 5, None, members)
    assert not found.is_due(view, 0, 0, 1000)
    assert not found.is_due(view, 0, 0, 1000 + TIMING.rank_ms - 1)
    assert found.is_due(view, 0, 0, 1000 + TIMING.rank_ms)


def test_of_equally_long_logs_the_own_priority_counts_as_well() -> None:
    other = Announcement(C, "i3", last_epoch=3, log_end=100, priority=1)
    view = SetView(STATE, 5, None, {3: other})
    mine = campaigning()
    assert not mine.is_due(view, 0, 0, TIMING.silence_ms)
    preferred = campaigning()
    preferred.replica_state.priority = 2
    assert preferred.is_due(view, 0, 0, TIMING.silence_ms)


def test_the_first_start_waits_for_longer_logs() -> None:
    found = campaigning()
    longer = SetView(None, 0, None, {3: Announcement(C, "i3", last_epoch=3, log_end=101)})
    assert not found.is_due(SetView(None, 0, None), 0, 0, TIMING.first_start_ms - 1)
    assert not found.is_due(longer, 0, 0, TIMING.first_start_ms)
    assert found.is_due(SetView(None, 0, None), 0, 0, TIMING.first_start_ms)
    request = found.request(SetView(None, 0, None), 4)
    assert (request.version, request.state.in_sync) == (0, frozenset({B}))


def test_whom_an_operator_has_not_designated_does_not_ask() -> None:
    for designated, is_due in ((None, True), (B.id, True), (A.id, False), (0, False)):
        for view in (SetView(STATE, 5, None), SetView(None, 0, None)):
            view = replace(view, designated=designated)
            assert campaigning().is_due(view, 0, 0, 100_000) is is_due


def test_an_election_says_its_cause() -> None:
    def why(me: Replica, view: SetView) -> str:
        return campaigning(me).request(view, 4).state.history[-1].why

    assert why(B, SetView(None, 0, None)) == FIRST_START
    assert why(B, SetView(STATE, 5, None)) == LEASE_OVER
    assert why(B, SetView(STATE, 5, LEADER)) == PROCESS_GONE
    assert why(A, SetView(STATE, 5, LEADER)) == STARTED_ANEW


def unclean(me: Replica, *, last_epoch: int = 3, log_end: int = 100) -> Announcement:
    return Announcement(me, f"i{me.id}", last_epoch=last_epoch, log_end=log_end, is_clean=False)


ALL_UNCLEAN = {1: unclean(A, log_end=90), 2: unclean(B), 3: unclean(C, last_epoch=2, log_end=200)}
POWER_CUT_MS = TIMING.power_cut_ms


def after_power_cut(me: Replica = B, *, replicas: int = 3) -> Campaigning:
    replica_state = ReplicaState(me, f"i{me.id}", 3, (Epoch(3, 0),), is_clean=False, log_end=100)
    return Campaigning(replica_state, TIMING, 1, 0, lambda: -1, replicas_after_power_cut=replicas)


def goes_on(found: Campaigning, members: dict[int, Announcement]) -> bool:
    view = SetView(STATE, 5, None, members)
    assert not found.is_due(view, 0, 0, 0)
    assert not found.is_due(view, 0, 0, POWER_CUT_MS - 1)
    return found.is_due(view, 0, 0, POWER_CUT_MS)


def test_the_longest_log_leads_after_a_power_cut_of_all_where_that_is_allowed() -> None:
    found = after_power_cut()
    assert goes_on(found, ALL_UNCLEAN)
    request = found.request(SetView(STATE, 5, None, ALL_UNCLEAN), 4)
    assert request.state.in_sync == {B}
    assert request.state.history[-1].why == POWER_CUT
    assert not goes_on(after_power_cut(A), ALL_UNCLEAN)
    assert not goes_on(after_power_cut(C), ALL_UNCLEAN)


@pytest.mark.parametrize(
    "members",
    [
        {number: each for number, each in ALL_UNCLEAN.items() if number != 3},
        ALL_UNCLEAN | {3: replace(ALL_UNCLEAN[3], is_clean=True)},
        ALL_UNCLEAN | {3: replace(ALL_UNCLEAN[3], replica=Replica(3, "another disk"))},
        ALL_UNCLEAN | {1: replace(ALL_UNCLEAN[1], last_epoch=2)},
    ],
    ids=["one is away", "one is clean", "a disk was exchanged", "its master led later"],
)
def test_nobody_leads_after_a_power_cut_while(members: dict[int, Announcement]) -> None:
    assert not goes_on(after_power_cut(), members)


def test_an_operator_decides_after_a_power_cut_by_default() -> None:
    assert not goes_on(after_power_cut(replicas=0), ALL_UNCLEAN)


def test_a_replica_does_not_go_on_unclean_once_another_is_clean() -> None:
    found = after_power_cut()
    assert goes_on(found, ALL_UNCLEAN)
    members = ALL_UNCLEAN | {1: replace(ALL_UNCLEAN[1], is_clean=True)}
    assert found.may_ask(SetView(STATE, 5, None, ALL_UNCLEAN), 4)
    assert not found.may_ask(SetView(STATE, 5, None, members), 4)
