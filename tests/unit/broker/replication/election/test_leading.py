"""What a master may confirm, and whom it counts on."""

from rockhopper.broker.replication.election.leading import Follower, MasterTerm
from rockhopper.broker.replication.election.replica_set import Replica, SetState, SwapOutcome
from rockhopper.broker.replication.election.timing import Timing

A, B, C = (Replica(number, f"s{number}") for number in (1, 2, 3))
TIMING = Timing()


def a_term(*in_sync: Replica, floor: int = 1) -> MasterTerm:
    state = SetState(epoch=3, master=A, in_sync=frozenset(in_sync), min_in_sync=floor)
    return MasterTerm(A, state, 7, 100, 100, 60, 0, TIMING)


def follows(
    term: MasterTerm, replica: Replica, acknowledgeable_offset: int, *, link: int | None = 1
) -> None:
    term.followers[replica] = Follower(link, True, 0, 0, acknowledgeable_offset)


def test_a_master_alone_confirms_what_it_holds() -> None:
    term = a_term(A)
    assert term.confirm()
    assert term.replicated_offset == 100
    assert term.is_settled


def test_everybody_in_sync_is_waited_for() -> None:
    term = a_term(A, B, C)
    follows(term, B, 100)
    assert not term.confirm()
    follows(term, C, 80)
    assert term.confirm()
    assert term.replicated_offset == 80
    assert not term.is_settled


def test_nothing_is_confirmed_below_the_floor() -> None:
    term = a_term(A, floor=2)
    assert not term.confirm()
    assert term.replicated_offset == 60


def test_what_is_confirmed_never_falls() -> None:
    term = a_term(A, B)
    follows(term, B, 100)
    term.confirm()
    follows(term, B, -1)
    assert not term.confirm()
    assert term.replicated_offset == 100


def test_who_leaves_is_waited_for_until_the_engine_has_agreed() -> None:
    term = a_term(A, B)
    follows(term, B, 70, link=None)
    proposed = term.proposal(TIMING.gone_ms)
    assert proposed is not None
    assert proposed.in_sync == {A}
    term.ask(proposed)
    term.confirm()
    assert term.replicated_offset == 70
    term.answered(SwapOutcome.UNKNOWN, 0)
    term.confirm()
    assert term.replicated_offset == 70
    assert term.proposal(TIMING.gone_ms) == proposed
    term.answered(SwapOutcome.DONE, 8)
    term.confirm()
    assert term.replicated_offset == 100


def test_who_joins_is_waited_for_before_the_engine_is_asked() -> None:
    term = a_term(A)
    follows(term, B, 100)
    proposed = term.proposal(0)
    assert proposed is not None
    assert proposed.in_sync == {A, B}
    term.ask(proposed)
    term.acknowledgeable_offset = 150
    assert term.confirm()
    assert term.replicated_offset == 100


def test_a_newer_state_tells_what_became_of_all_that_was_asked() -> None:
    term = a_term(A)
    follows(term, B, 100)
    asked = term.proposal(0)
    assert asked is not None
    term.ask(asked)
    term.answered(SwapOutcome.REFUSED, 0)
    assert term.required == {A, B}
    term.saw(term.state, 7)
    assert term.required == {A, B}
    term.saw(term.state, 8)
    assert term.required == {A}


def test_who_lags_or_lost_its_memory_does_not_join() -> None:
    term = a_term(A)
    follows(term, B, 99)
    assert term.proposal(0) is None
    follows(term, B, 100)
    term.followers[B].is_clean = False
    assert term.proposal(0) is None


def test_who_makes_no_progress_leaves() -> None:
    term = a_term(A, B)
    follows(term, B, 70)
    assert term.proposal(TIMING.catch_up_ms - 1) is None
    proposed = term.proposal(TIMING.catch_up_ms)
    assert proposed is not None
    assert proposed.in_sync == {A}


def test_all_are_heard_only_if_each_spoke_lately() -> None:
    term = a_term(A, B)
    assert not term.all_vouch_within(1000, 0)
    follows(term, B, 70)
    assert term.all_vouch_within(1000, 1000)
    assert not term.all_vouch_within(1000, 1001)


def test_a_follower_that_hung_up_vouches_for_nothing() -> None:
    term = a_term(A, B)
    follows(term, B, 70)
    term.followers[B].link = None
    assert not term.all_vouch_within(1000, 0)


def test_a_changed_floor_is_applied_once_enough_are_in_sync() -> None:
    alone = a_term(A)
    alone.floor = 2
    assert alone.proposal(0) is None
    term = a_term(A, B)
    term.floor = 2
    raised = term.proposal(0)
    assert raised is not None
    assert (raised.min_in_sync, raised.in_sync) == (2, term.state.in_sync)
    assert raised.seen_state.changes == term.state.seen_state.changes + 1
    term.ask(raised)
    term.answered(SwapOutcome.DONE, 8)
    assert term.proposal(0) is None
    term.floor = 1
    assert term.proposal(0) == raised.with_floor(1)


def test_a_master_whose_replicas_are_gone_is_below_its_floor_though_they_count_as_in_sync() -> None:
    term = MasterTerm(A, SetState(2, A, frozenset({A, B}), 2), 7, 100, 100, 60, 0, TIMING)
    assert term.has_floor(0)
    gone_ms = 2 * TIMING.gone_ms
    assert not term.has_floor(gone_ms)
    term.followers[B] = Follower(5, True, gone_ms, gone_ms, acknowledgeable_offset=100)
    assert term.has_floor(gone_ms)
    one = MasterTerm(A, SetState(2, A, frozenset({A, B}), 1), 7, 100, 100, 60, 0, TIMING)
    assert one.has_floor(gone_ms)
