"""One replica's roles; what must hold for all of them together is tests/simulation's."""

from dataclasses import replace

import pytest

from rockhopper.broker.replication.election import actions
from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.machine import Machine, ReplicaRole
from rockhopper.broker.replication.election.messages import Ack, Hello, Refused, Welcome
from rockhopper.broker.replication.election.replica_set import (
    STATE_WRITER,
    Announcement,
    Leader,
    Replica,
    SeenState,
    SetState,
    SetView,
    SwapOutcome,
)
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing

A, B = Replica(1, "s1"), Replica(2, "s2")
TIMING = Timing()


class Rig:
    """Replica 1 with a log of 100 bytes, which begins with epoch 1."""

    def __init__(
        self, *, is_clean: bool = True, epochs: tuple[Epoch, ...] = (Epoch(1, 0),)
    ) -> None:
        replica_state = ReplicaState(
            A, "i1", 1, epochs, is_clean, log_end=100, acknowledgeable_offset=100
        )
        self.machine = Machine(replica_state, TIMING, min_in_sync=1, now_ms=0, spread=lambda: -1)

    def taken(self) -> list[actions.Action]:
        """All but what is noted of the set's state, for which nothing waits."""
        taken, self.machine.actions[:] = list(self.machine.actions), []
        return [each for each in taken if not isinstance(each, actions.NoteSeenState)]

    def lead(self, in_sync: frozenset[Replica] = frozenset({A})) -> "Rig":
        """Lead epoch 2."""
        self.elected(in_sync).machine.entered(TIMING.silence_ms)
        return self

    def elected(self, in_sync: frozenset[Replica] = frozenset({A})) -> "Rig":
        """Be elected for epoch 2, which is not on disk yet."""
        machine = self.machine
        machine.saw(SetView(SetState(1, A, in_sync, 1), 5, None), 0)
        machine.tick(TIMING.silence_ms)
        assert actions.StoreVotedEpoch(2) in self.taken()
        machine.voted_epoch_stored(2, TIMING.silence_ms)
        (request,) = self.taken()
        assert isinstance(request, actions.Campaign)
        elected = SetView(request.state, 6, Leader(1, "i1", 2))
        machine.campaigned(SwapOutcome.DONE, elected, TIMING.silence_ms)
        assert self.taken() == [actions.EnterEpoch((Epoch(1, 0), Epoch(2, 100)))]
        assert machine.role is ReplicaRole.CANDIDATE
        return self

    def greet(self, link: int = 7, voted_epoch: int = 1, log_end: int = 100) -> None:
        hello = Hello(B, "i2", voted_epoch, True, 0, log_end, (Epoch(1, 0),))
        self.machine.received(link, hello, 1000)


def test_a_candidate_asks_when_its_voted_epoch_is_on_disk_and_leads_when_its_epoch_is() -> None:
    rig = Rig().lead()
    assert rig.taken() == [actions.Lead(2), actions.Confirm(100)]
    assert rig.machine.role is ReplicaRole.LEADING


def test_a_log_that_is_in_no_epoch_yet_is_in_its_first_from_its_beginning_on() -> None:
    rig = Rig(epochs=())
    state = SetState(2, A, frozenset({A}), 1)
    rig.machine.replica_state.voted_epoch, rig.machine.replica_state.log_start = 2, 30
    rig.machine.saw(SetView(state, 6, Leader(1, "i1", 2)), 0)
    assert rig.taken() == [actions.EnterEpoch((Epoch(2, 30),))]


def test_a_candidate_that_lost_follows() -> None:
    rig = Rig()
    rig.machine.saw(SetView(SetState(1, B, frozenset({A, B}), 1), 5, None), 0)
    rig.machine.tick(TIMING.silence_ms)
    rig.machine.voted_epoch_stored(2, 1000)
    rig.machine.campaigned(SwapOutcome.REFUSED, None, 1000)
    assert rig.machine.role is ReplicaRole.FOLLOWING


def test_a_candidate_that_is_overtaken_before_its_epoch_is_on_disk_follows() -> None:
    rig = Rig()
    machine = rig.machine
    machine.saw(SetView(SetState(1, A, frozenset({A, B}), 1), 5, None), 0)
    machine.tick(TIMING.silence_ms)
    machine.voted_epoch_stored(2, 1000)
    request = rig.taken()[-1]
    assert isinstance(request, actions.Campaign)
    machine.campaigned(SwapOutcome.DONE, SetView(request.state, 6, Leader(1, "i1", 2)), 1000)
    machine.saw(SetView(SetState(3, B, frozenset({A, B}), 1), 7, Leader(2, "i2", 3)), 1000)
    machine.entered(1000)
    assert machine.role is ReplicaRole.FOLLOWING


def test_an_unknown_outcome_is_asked_for_again_and_found_out_by_reading() -> None:
    rig = Rig()
    rig.machine.saw(SetView(SetState(1, B, frozenset({A, B}), 1), 5, None), 0)
    rig.machine.tick(TIMING.silence_ms)
    rig.machine.voted_epoch_stored(2, 1000)
    request = rig.taken()[-1]
    assert isinstance(request, actions.Campaign)
    rig.machine.campaigned(SwapOutcome.UNKNOWN, None, 1000)
    assert rig.taken() == [actions.Read()]
    rig.machine.tick(1300)
    assert request in rig.taken()
    rig.machine.saw(SetView(request.state, 6, Leader(1, "i1", 2)), 1400)
    assert isinstance(rig.taken()[-1], actions.EnterEpoch)


def test_a_follower_is_welcomed_and_gets_the_log_from_what_it_holds() -> None:
    rig = Rig().lead()
    rig.taken()
    rig.greet(log_end=90)
    (welcome,) = rig.taken()
    assert isinstance(welcome, actions.SendMessage)
    assert isinstance(welcome.message, Welcome)
    assert (welcome.message.common_end, welcome.message.seed) == (90, False)
    rig.machine.received(7, Ack(2, 90, True), 1000)
    assert rig.taken() == [actions.StreamLog(7, 90, 2)]


def test_an_acknowledgement_beyond_the_log_closes_the_connection() -> None:
    rig = Rig().lead()
    rig.greet()
    rig.taken()
    rig.machine.received(7, Ack(2, 101, True), 1000)
    assert rig.taken() == [actions.Close(7)]


def test_a_master_steps_down_at_a_larger_voted_epoch_and_asks_for_a_larger_one_yet() -> None:
    rig = Rig().lead()
    rig.taken()
    rig.greet(voted_epoch=8)
    resign, *_, refused, closed = rig.taken()
    assert resign == actions.Resign(2, "a replica voted for epoch 8")
    assert isinstance(refused, actions.SendMessage)
    assert isinstance(refused.message, Refused)
    assert closed == actions.Close(7)
    rig.machine.tick(1100)
    assert actions.StoreVotedEpoch(9) in rig.taken()


def test_a_master_steps_down_when_another_is_elected() -> None:
    rig = Rig().lead()
    rig.taken()
    rig.machine.saw(SetView(SetState(3, B, frozenset({A, B}), 1), 9, Leader(2, "i2", 3)), 1500)
    assert actions.Resign(2, "replica 2 leads epoch 3") in rig.taken()
    assert rig.machine.role is ReplicaRole.FOLLOWING


def test_an_older_view_is_no_news() -> None:
    rig = Rig().lead()
    rig.taken()
    rig.machine.saw(SetView(SetState(1, B, frozenset({A, B}), 1), 5, None), 1500)
    assert rig.machine.role is ReplicaRole.LEADING


def test_a_master_without_a_lease_goes_on_while_all_others_answer() -> None:
    rig = Rig().lead(frozenset({A, B}))
    over_ms = TIMING.silence_ms + TIMING.lease_usable_ms
    rig.greet()
    rig.machine.tick(over_ms)
    rig.machine.tick(over_ms)
    rig.machine.received(7, Ack(2, 100, True), over_ms)
    assert rig.machine.takes_sends(over_ms + TIMING.silence_ms)
    assert not rig.machine.takes_sends(over_ms + TIMING.silence_ms + 1)
    rig.machine.renewed(SwapOutcome.DONE, over_ms + 2000)
    assert rig.machine.takes_sends(over_ms + 2000 + TIMING.lease_usable_ms - 1)


def test_a_master_that_stood_still_believes_no_acknowledgement_that_may_have_waited() -> None:
    rig = Rig().lead(frozenset({A, B}))
    rig.greet()
    rig.machine.tick(1050)
    awake_ms = 11_000
    rig.machine.received(7, Ack(2, 100, True), awake_ms)
    assert not rig.machine.leads_alone(awake_ms)
    rig.machine.tick(awake_ms)
    rig.machine.received(7, Ack(2, 100, True), awake_ms)
    assert not rig.machine.leads_alone(awake_ms)
    rig.machine.tick(awake_ms + 50)
    rig.machine.received(7, Ack(2, 100, True), awake_ms + 60)
    assert rig.machine.leads_alone(awake_ms + 60)


def test_a_new_master_has_the_lease_that_came_with_its_election() -> None:
    rig = Rig().lead(frozenset({A, B}))
    over_ms = TIMING.silence_ms + TIMING.lease_usable_ms
    assert rig.machine.takes_sends(over_ms - 1)
    assert not rig.machine.takes_sends(over_ms)


def test_a_master_below_its_floor_takes_no_sends_and_leads_alone_while_it_has_a_lease() -> None:
    machine = Rig().lead().machine
    machine.renewed(SwapOutcome.DONE, 2000)
    assert machine.term
    machine.term.state = replace(machine.term.state, in_sync=frozenset({A, B}), min_in_sync=3)
    assert not machine.takes_sends(2000)
    assert machine.leads_alone(2000 + TIMING.lease_usable_ms - 1)
    assert not machine.leads_alone(2000 + TIMING.lease_usable_ms)


def test_a_replica_that_is_not_the_master_says_so() -> None:
    rig = Rig()
    rig.greet()
    assert rig.taken() == [
        actions.SendMessage(7, Refused(1, "this replica is not the master")),
        actions.Close(7),
    ]


def test_the_store_that_is_connected_takes_over_of_two_that_have_one_id() -> None:
    rig = Rig().lead(frozenset({A, B, Replica(2, "s0"), Replica(2, "s3")}))
    rig.greet()
    machine = rig.machine
    machine.received(7, Ack(2, 100, True), 1000)
    assert machine.best_successor() == 2
    assert machine.successor(2).link == 7


def test_a_replica_connects_as_soon_as_it_sees_who_leads() -> None:
    rig = Rig()
    rig.machine.saw(SetView(SetState(2, B, frozenset({B}), 1), 5, None), 0)
    assert rig.taken() == [actions.Open(B.id)]


def test_a_replica_whose_store_is_being_opened_is_not_counted_on() -> None:
    rig = Rig()
    rig.machine.replica_state.is_away = True
    rig.machine.saw(SetView(SetState(2, B, frozenset({B}), 1), 5, None), 0)
    rig.machine.tick(0)
    assert rig.taken() == []
    rig.machine.replica_state.is_away = False
    rig.machine.tick(50)
    assert rig.taken() == [actions.Open(B.id)]


def test_a_replica_that_is_waited_for_in_any_case_gives_its_word_while_its_store_is_opened() -> (
    None
):
    rig = Rig()
    rig.machine.replica_state.is_away = True
    rig.machine.saw(SetView(SetState(2, B, frozenset({A, B}), 2), 5, None), 0)
    assert rig.taken() == [actions.Open(B.id)]


def test_who_greets_before_the_epoch_is_on_disk_is_welcomed_when_it_is() -> None:
    rig = Rig().elected()
    rig.greet()
    assert rig.taken() == []
    rig.machine.entered(1000)
    kinds = [type(each.message) for each in rig.taken() if isinstance(each, actions.SendMessage)]
    assert kinds == [Welcome]


def test_who_greets_a_candidate_is_refused_when_it_stands_back() -> None:
    rig = Rig()
    rig.machine.saw(SetView(SetState(1, A, frozenset({A, B}), 1), 5, None), 0)
    rig.machine.tick(TIMING.silence_ms)
    rig.greet()
    rig.greet(link=8)
    rig.machine.closed(8, 1000)
    rig.taken()
    rig.machine.voted_epoch_stored(2, 1000)
    rig.machine.campaigned(SwapOutcome.REFUSED, None, 1000)
    refused = [each for each in rig.taken() if isinstance(each, actions.SendMessage)]
    assert refused == [actions.SendMessage(7, Refused(2, "this replica is not the master"))]


NOBODY = SetView(SetState(1, B, frozenset({B}), 1), 5, None)


def asked_to_lead() -> Rig:
    """A replica that is not clean, and not in sync."""
    rig = Rig(is_clean=False)
    rig.machine.saw(NOBODY, 0)
    rig.taken()
    rig.machine.lead_by_operator(TIMING.silence_ms)
    assert rig.taken() == [actions.StoreVotedEpoch(2)]
    return rig


def test_an_unclean_replica_is_clean_once_it_was_elected_and_enters_its_epoch_then() -> None:
    rig = asked_to_lead()
    rig.machine.voted_epoch_stored(2, 1000)
    (request,) = rig.taken()
    assert isinstance(request, actions.Campaign)
    assert request.state.in_sync == {A}
    assert request.displaced is None
    rig.machine.campaigned(SwapOutcome.DONE, SetView(request.state, 6, Leader(1, "i1", 2)), 1000)
    assert rig.taken() == [actions.NoteClean()]
    assert not rig.machine.replica_state.is_clean
    rig.machine.noted_clean()
    assert rig.taken() == [actions.EnterEpoch((Epoch(1, 0), Epoch(2, 100)))]
    assert rig.machine.replica_state.is_clean


def test_an_unclean_replica_that_was_not_elected_stays_unclean() -> None:
    rig = asked_to_lead()
    rig.machine.voted_epoch_stored(2, 1000)
    rig.machine.campaigned(SwapOutcome.REFUSED, None, 1000)
    rig.machine.noted_clean()
    assert not rig.machine.replica_state.is_clean
    assert actions.NoteClean() not in rig.taken()


def test_a_replica_that_may_lose_displaces_nobody_who_was_elected_meanwhile() -> None:
    rig = asked_to_lead()
    assert NOBODY.state
    rig.machine.saw(SetView(NOBODY.state, 6, Leader(2, "i2", 1)), 1000)
    rig.machine.voted_epoch_stored(2, 1000)
    assert rig.taken() == [actions.Read()]
    assert rig.machine.role is ReplicaRole.FOLLOWING


def test_nobody_is_elected_by_an_operator_while_there_is_a_master() -> None:
    rig = Rig(is_clean=False)
    rig.machine.saw(replace(NOBODY, leader=Leader(2, "i2", 1)), 0)
    with pytest.raises(ValueError, match="replica 2 leads"):
        rig.machine.lead_by_operator(TIMING.silence_ms)
    assert not rig.machine.replica_state.is_clean


def test_a_log_that_is_given_up_is_unclean_and_in_no_epoch() -> None:
    rig = Rig()
    rig.machine.saw(SetView(SetState(1, B, frozenset({A, B}), 1), 5, None), 0)
    rig.taken()
    rig.machine.reseed()
    assert rig.taken() == [actions.GiveUp()]
    assert (rig.machine.replica_state.is_clean, rig.machine.replica_state.epochs) == (False, ())


def test_a_log_is_not_given_up_while_its_replica_asks_to_lead() -> None:
    rig = asked_to_lead()
    with pytest.raises(ValueError, match="leads, or no replica does"):
        rig.machine.reseed()


def test_who_is_connected_seldom_reads_what_the_watch_tells() -> None:
    rig = Rig()
    rig.machine.saw(SetView(SetState(2, B, frozenset({B}), 1), 5, None), 0)
    rig.machine.tick(TIMING.seek_interval_ms)
    assert actions.Read() in rig.taken()
    rig.machine.following.link = 7
    rig.machine.tick(2 * TIMING.seek_interval_ms)
    rig.machine.tick(TIMING.read_interval_ms)
    assert actions.Read() not in rig.taken()
    rig.machine.tick(TIMING.seek_interval_ms + TIMING.read_interval_ms)
    assert actions.Read() in rig.taken()


SEEN = SetState(1, B, frozenset({A, B}), 1, trail=(SeenState(4, 40), SeenState(5, 50)))


def test_what_was_seen_is_noted_once() -> None:
    machine = Rig().machine
    for _ in range(2):
        machine.saw(SetView(SEEN, 5, None), 0)
    assert machine.actions.count(actions.NoteSeenState(SeenState(5, 50))) == 1


def test_a_change_that_was_made_is_noted_before_it_is_seen() -> None:
    machine = Rig().lead().machine
    assert machine.term
    machine.term.ask(SEEN)
    machine.altered(SwapOutcome.DONE, 7, 1000)
    assert actions.NoteSeenState(SeenState(5, 50)) in machine.actions
    assert not machine.is_engine_behind


@pytest.mark.parametrize("seen_state", [SeenState(6, 60), SeenState(5, 51)])
def test_by_a_state_from_before_nobody_leads_and_nobody_is_followed(seen_state: SeenState) -> None:
    rig = Rig()
    rig.machine.replica_state.seen_state = seen_state
    rig.machine.saw(SetView(SEEN, 5, None), 0)
    rig.machine.tick(100_000)
    assert rig.taken() == [actions.Read()]
    assert rig.machine.is_engine_behind
    assert rig.machine.replica_state.seen_state == seen_state


def test_whoever_is_being_connected_to_is_left_when_the_state_turns_out_to_be_old() -> None:
    rig = Rig()
    rig.machine.saw(SetView(SEEN, 5, None), 0)
    rig.machine.replica_state.seen_state = SeenState(6, 60)
    rig.machine.saw(SetView(SEEN, 5, None), 0)
    rig.taken()
    rig.machine.following.opened(7, B.id, 0)
    assert rig.taken() == [actions.Close(7)]


def test_an_operator_has_the_set_go_on_from_an_old_state_with_a_larger_epoch() -> None:
    rig = Rig()
    rig.machine.replica_state.seen_state = SeenState(6, 60)
    other = Announcement(B, "i2", last_epoch=8, seen_state=SeenState(9, 90))
    rig.machine.saw(SetView(SEEN, 5, None, {B.id: other}), 0)
    rig.taken()
    rig.machine.lead_by_operator(TIMING.silence_ms)
    rig.machine.voted_epoch_stored(9, TIMING.silence_ms)
    request = rig.taken()[-1]
    assert isinstance(request, actions.Campaign)
    assert (request.state.epoch, request.state.seen_state.changes) == (9, 10)
    assert not any(request.state.contradicts(each) for each in (SeenState(6, 60), SeenState(9, 90)))


def test_who_is_seeded_forgets_what_it_saw() -> None:
    rig = Rig()
    rig.machine.replica_state.seen_state = SeenState(6, 60)
    rig.machine.saw(SetView(replace(SEEN, in_sync=frozenset({B})), 5, None), 0)
    rig.machine.reseed()
    rig.taken()
    rig.machine.tick(0)
    assert rig.taken() == [actions.Open(B.id)]


def cut_off_master(in_sync: frozenset[Replica] = frozenset({A, B})) -> Rig:
    """One that the engine renews the lease of, and that nobody follows; replica 2 runs."""
    rig = Rig().lead(in_sync)
    machine = rig.machine
    assert machine.view
    running = Announcement(B, "i2", log_end=100, misses_master=True)
    machine.view = replace(machine.view, members={2: running})
    return rig


def tick_and_renew(rig: Rig, start_ms: int, end_ms: int) -> list[actions.Action]:
    done: list[actions.Action] = []
    for now_ms in range(start_ms, end_ms, 50):
        rig.machine.tick(now_ms)
        taken = rig.taken()
        done += taken
        if any(isinstance(each, actions.Renew) for each in taken):
            rig.machine.renewed(SwapOutcome.DONE, now_ms)
    return done


def gives_up(done: list[actions.Action]) -> bool:
    return actions.Release(2) in done


def test_a_master_that_no_follower_reaches_gives_up_its_lease_if_one_runs() -> None:
    rig = cut_off_master()
    begin_ms = TIMING.silence_ms
    assert rig.machine.term
    rig.machine.term.state = replace(rig.machine.term.state, min_in_sync=2)
    assert not gives_up(tick_and_renew(rig, begin_ms, begin_ms + TIMING.give_up_ms))
    done = tick_and_renew(rig, begin_ms + TIMING.give_up_ms, begin_ms + TIMING.give_up_ms + 200)
    assert gives_up(done)
    assert rig.machine.role is ReplicaRole.FOLLOWING
    resigned = next(each for each in done if isinstance(each, actions.Resign))
    assert "cannot reach the replicas" in resigned.why


def test_a_master_goes_on_if_nobody_runs_who_could_take_over() -> None:
    rig = cut_off_master()
    machine = rig.machine
    assert machine.term
    assert machine.view
    machine.term.state = replace(machine.term.state, min_in_sync=2)
    unclean = Announcement(B, "i2", log_end=100, is_clean=False, misses_master=True)
    machine.view = replace(machine.view, members={2: unclean})
    assert not gives_up(tick_and_renew(rig, 1000, 1000 + 3 * TIMING.give_up_ms))
    dead = Announcement(B, "i2", log_end=100)
    machine.view = replace(machine.view, members={2: dead})
    assert not gives_up(tick_and_renew(rig, 40_000, 40_000 + 3 * TIMING.give_up_ms))
    machine.view = replace(machine.view, members={})
    assert not gives_up(tick_and_renew(rig, 20_000, 20_000 + 3 * TIMING.give_up_ms))


def test_a_master_without_an_engine_has_no_lease_to_give_up() -> None:
    rig = cut_off_master()
    machine = rig.machine
    assert machine.term
    machine.term.state = replace(machine.term.state, min_in_sync=2)
    for now_ms in range(1000, 1000 + 3 * TIMING.give_up_ms, 50):
        machine.tick(now_ms)
    assert not gives_up(rig.taken())


def test_an_operator_is_told_whom_to_stop_when_a_stale_replica_leads() -> None:
    rig = Rig()
    machine = rig.machine
    machine.replica_state.seen_state = SeenState(9, 1)
    stale = SetView(
        SetState(1, B, frozenset({A, B}), 1),
        5,
        Leader(2, "i2", 1),
        {2: Announcement(B, "i2", log_end=70)},
    )
    machine.saw(stale, 0)
    with pytest.raises(ValueError, match=r"ends at 70, this one's at 100.*stop replica 2, give"):
        machine.lead_by_operator(TIMING.silence_ms)
    machine.saw(replace(stale, leader=None, members={}), 5000)
    machine.lead_by_operator(5000 + TIMING.silence_ms)
    assert machine.role is ReplicaRole.CANDIDATE


def test_a_follower_misses_a_master_that_is_silent() -> None:
    rig = Rig()
    machine = rig.machine
    assert not machine.misses_master(10_000)
    machine.saw(SetView(SetState(1, B, frozenset({A, B}), 1), 5, Leader(2, "i2", 1)), 0)
    machine.following.heard_at_ms = 500
    assert not machine.misses_master(500 + TIMING.silence_ms - 1)
    assert machine.misses_master(500 + TIMING.silence_ms)


def test_a_follower_is_led_for_the_time_of_a_lease_after_its_master_spoke() -> None:
    rig = Rig()
    machine = rig.machine
    assert not machine.is_led(0)
    machine.saw(SetView(SetState(1, B, frozenset({A, B}), 1), 5, None), 0)
    machine.following.opened(3, B.id, 0)
    machine.received(3, Welcome(1, (Epoch(1, 0),), 0, 100, 100, 100), 1000)
    assert machine.is_led(1000 + TIMING.lease_ms)
    assert not machine.is_led(1001 + TIMING.lease_ms)


def test_a_master_is_led_and_whoever_resigned_is_so_for_a_lease() -> None:
    machine = Rig().lead().machine
    assert machine.is_led(1_000_000)
    machine.step_down("why", 1_000_000)
    assert machine.is_led(1_000_000 + TIMING.lease_ms)
    assert not machine.is_led(1_000_001 + TIMING.lease_ms)


def test_a_replica_whose_disk_fails_asks_for_nothing() -> None:
    rig = Rig()
    rig.machine.replica_state.is_failing = True
    rig.machine.saw(SetView(SetState(1, B, frozenset({A, B}), 1), 5, None), 0)
    rig.machine.tick(TIMING.silence_ms)
    assert actions.StoreVotedEpoch(2) not in rig.taken()
    rig.machine.replica_state.is_failing = False
    rig.machine.tick(TIMING.silence_ms + 1)
    assert actions.StoreVotedEpoch(2) in rig.taken()


def test_nobody_dials_itself_under_a_store_that_is_gone() -> None:
    rig = Rig()
    gone = Replica(A.id, "gone")
    rig.machine.saw(SetView(SetState(1, gone, frozenset({gone}), 1), 5, None), 0)
    rig.machine.tick(2 * TIMING.silence_ms)
    assert not [each for each in rig.taken() if isinstance(each, actions.Open)]


def test_a_state_that_asks_more_of_its_writers_is_followed_and_not_changed() -> None:
    rig = Rig()
    later = SetState(1, A, frozenset({A}), 1, writer=STATE_WRITER + 1)
    rig.machine.saw(SetView(later, 5, None), 0)
    rig.machine.tick(2 * TIMING.silence_ms)
    assert rig.taken() == [actions.Read()]
    with pytest.raises(ValueError, match="a later release must lead"):
        rig.machine.lead_by_operator(2 * TIMING.silence_ms)
