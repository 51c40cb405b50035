"""The numbers of a replica, as families of metrics."""

from collections.abc import Iterable

from rockhopper.broker.kernel.families import Family
from rockhopper.broker.replication.election.campaigning import CAUSES
from rockhopper.broker.replication.election.leading import Follower, MasterTerm
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.replica_set import (
    Replica,
    SetState,
    SetView,
    SwapOutcome,
)
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing
from rockhopper.broker.replication.roles import set_metrics
from rockhopper.broker.replication.roles.alarms import ENGINE, REASONS
from rockhopper.broker.replication.shipping.engine_health import EngineHealth

ME, OTHER, GONE = Replica(1, "a"), Replica(2, "b"), Replica(3, "c")


def a_machine(*, leads: bool) -> Machine:
    replica_state = ReplicaState(
        ME, "1-a", voted_epoch=4, log_start=100, log_end=1000, acknowledgeable_offset=1000
    )
    machine = Machine(replica_state, Timing(), min_in_sync=1, now_ms=0, spread=lambda: 0)
    if leads:
        state = SetState(4, ME, frozenset({ME, OTHER}), 1)
        machine.view = SetView(state, 1, None)
        machine.term = MasterTerm(ME, state, 1, 1000, 1000, 0, 0, Timing())
        machine.term.followers[OTHER] = Follower(5, True, 0, 0, acknowledgeable_offset=900)
        machine.term.followers[GONE] = Follower(None, True, 0, 0, acknowledgeable_offset=500)
    return machine


def shown(families: Iterable[Family]) -> dict[str, dict[tuple[str, ...], float]]:
    return {each.name.removeprefix("rockhopper_ha_"): dict(each.samples) for each in families}


def test_a_master_shows_its_set() -> None:
    found = shown(set_metrics.of_set(a_machine(leads=True), 900))
    assert (found["epoch"][()], found["in_sync"][()], found["is_in_sync"][()]) == (4, 2, 1)
    assert (found["log_start_bytes"][()], found["log_end_bytes"][()]) == (100, 1000)
    assert found["confirmed_bytes"][()] == 900


def test_a_master_shows_how_far_those_are_that_are_connected() -> None:
    found = shown(set_metrics.of_followers(a_machine(leads=True), lambda held: held / 100))
    assert found == {"lag_bytes": {("2",): 100}, "lag_seconds": {("2",): 9}}


def test_one_that_knows_of_no_set_shows_zeros() -> None:
    found = shown(set_metrics.of_set(a_machine(leads=False), 0))
    assert (found["epoch"][()], found["in_sync"][()]) == (0, 0)
    assert found["role"]["joining",] == 1
    lags = shown(set_metrics.of_followers(a_machine(leads=False), lambda _: 0))
    assert lags == {"lag_bytes": {}, "lag_seconds": {}}


def test_a_master_compares_its_clock_with_nobodys() -> None:
    assert dict(set_metrics.of_clock(None).samples) == {}
    assert dict(set_metrics.of_clock(600_000).samples) == {(): 600}


def test_how_the_engine_answers() -> None:
    times = iter((0, 30, 30, 1500))
    health = EngineHealth(lambda: next(times))
    health.renewed(SwapOutcome.DONE, 0)
    health.unknown_count = 2
    found = shown(set_metrics.of_engine(health))
    assert found["engine_silent_seconds"][()] == 1.47
    assert (found["engine_renewal_seconds"][()], found["engine_unknown_total"][()]) == (0.03, 2)


def test_each_cause_and_each_count_is_there_from_the_start() -> None:
    found = shown(set_metrics.of_past({"lease-over": 2}, {"cuts": 1}))
    assert found["elections_total"] == dict.fromkeys(
        [(cause,) for cause in (*CAUSES.values(), "other")], 0
    ) | {("lease-over",): 2}
    assert (found["cuts_total"][()], found["seeds_total"][()]) == (1, 0)


def test_each_alarm_is_a_number() -> None:
    found = dict(set_metrics.of_alarms({ENGINE: "away"}).samples)
    assert found == {(reason,): float(reason == ENGINE) for reason in REASONS}
