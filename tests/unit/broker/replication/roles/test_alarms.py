"""What a person must see of a set, when it begins and when it is over."""

from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from rockhopper.broker.replication.election.leading import Follower, MasterTerm
from rockhopper.broker.replication.election.machine import Machine
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
from rockhopper.broker.replication.engines.engine import (
    ENDED_AFTER_MS,
    MEMBER_LEASE_MS,
    EngineError,
)
from rockhopper.broker.replication.roles import alarms as of_set
from rockhopper.broker.replication.roles.alarms import Alarms
from rockhopper.broker.replication.shipping.engine_health import (
    UNWRITABLE_PATIENCE_MS,
    EngineHealth,
)

ME, OTHER = Replica(1, "a"), Replica(2, "b")


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def alarms(clock: Clock) -> Alarms:
    return Alarms(clock)


def silent(for_ms: int) -> EngineHealth:
    clock = Clock()
    health = EngineHealth(clock)
    clock.now_ms = for_ms
    return health


def healthy() -> EngineHealth:
    return silent(0)


def a_machine(in_sync: set[Replica], log_end: int = 1000, floor: int = 1) -> Machine:
    replica_state = ReplicaState(
        ME,
        "1-a",
        voted_epoch=1,
        epochs=(),
        is_clean=True,
        log_start=0,
        log_end=log_end,
        acknowledgeable_offset=log_end,
        replicated_offset=0,
    )
    machine = Machine(replica_state, Timing(), min_in_sync=1, now_ms=0, spread=lambda: 0)
    machine.view = SetView(SetState(1, ME, frozenset(in_sync), floor), 1, None)
    return machine


def lead(machine: Machine, acknowledgeable_offset: int = 0) -> None:
    assert machine.view is not None
    assert machine.view.state is not None
    end = machine.replica_state.log_end
    machine.term = MasterTerm(ME, machine.view.state, 1, end, end, 0, 0, Timing())
    machine.term.followers[OTHER] = Follower(
        5, True, 0, 0, acknowledgeable_offset=acknowledgeable_offset
    )


def follower_of(machine: Machine) -> Follower:
    assert machine.term is not None
    return machine.term.followers[OTHER]


def test_nothing_is_wrong(alarms: Alarms) -> None:
    machine = a_machine({ME, OTHER})
    lead(machine, 1000)
    alarms.look(machine, {}, healthy())
    assert alarms.shown == {}


def test_one_that_diverged_is_shown_at_once_and_logged_once(alarms: Alarms) -> None:
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            alarms.look(a_machine({OTHER}), {of_set.DIVERGED: "its log is another"}, healthy())
        assert alarms.shown == {of_set.DIVERGED: "its log is another"}
        alarms.look(a_machine({OTHER}), {}, healthy())
    assert [each["event"] for each in logs] == [
        "the replica set needs an operator",
        "alarm cleared",
    ]


def test_an_earlier_process_that_was_killed_with_its_machine_is_no_alarm(
    alarms: Alarms, clock: Clock
) -> None:
    machine, own = a_machine({OTHER}), {of_set.SECOND: "another process is announced"}
    for clock.now_ms in (0, MEMBER_LEASE_MS):
        alarms.look(machine, own, healthy())
        assert alarms.shown == {}
    clock.now_ms = ENDED_AFTER_MS
    alarms.look(machine, own, healthy())
    assert alarms.shown == own


def test_unclean_alone_names_the_way_out(alarms: Alarms) -> None:
    machine = a_machine({ME})
    machine.replica_state.is_clean = False
    alarms.look(machine, {}, healthy())
    assert "elect --unclean" in alarms.shown[of_set.UNCLEAN]


def test_an_engine_from_a_backup_names_the_way_out_once_it_stays_so(
    alarms: Alarms, clock: Clock
) -> None:
    machine = a_machine({ME})
    machine.replica_state.seen_state = SeenState(6, 60)
    alarms.look(machine, {}, healthy())
    assert alarms.shown == {}
    clock.now_ms = of_set.PUT_BACK_PATIENCE_MS
    alarms.look(machine, {}, healthy())
    assert "elect --unclean" in alarms.shown[of_set.PUT_BACK]


def test_at_the_floor_is_an_alarm_after_a_minute(alarms: Alarms, clock: Clock) -> None:
    machine = a_machine({ME})
    lead(machine)
    alarms.look(machine, {}, healthy())
    assert alarms.shown == {}
    clock.now_ms = of_set.PATIENCE_MS
    alarms.look(machine, {}, healthy())
    assert "minInSyncReplicas=1" in alarms.shown[of_set.FLOOR]


def test_a_master_that_never_came_back_leaves_its_set_at_the_floor(clock: Clock) -> None:
    alarms = Alarms(clock, replica_count=3)
    machine = a_machine({ME, OTHER}, floor=2)
    lead(machine, 1000)
    for clock.now_ms in (0, of_set.PATIENCE_MS):
        follower_of(machine).moved_at_ms = clock.now_ms
        alarms.look(machine, {}, healthy())
    assert alarms.shown[of_set.FLOOR] == (
        "2 of 3 replicas are in sync and minInSyncReplicas=2: if one more is lost, nothing is "
        "stored; find out why the other replicas are away"
    )


def test_below_the_floor_is_said_to_store_nothing(clock: Clock) -> None:
    alarms = Alarms(clock, replica_count=3)
    machine = a_machine({ME}, floor=2)
    lead(machine)
    clock.now_ms = Timing().catch_up_ms
    alarms.look(machine, {}, healthy())
    assert "=2: nothing is stored" in alarms.shown[of_set.BELOW]


def test_a_set_that_is_no_larger_than_its_floor_is_whole(clock: Clock) -> None:
    alarms = Alarms(clock, replica_count=2)
    machine = a_machine({ME, OTHER}, floor=2)
    lead(machine, 1000)
    for clock.now_ms in (0, of_set.PATIENCE_MS):
        follower_of(machine).moved_at_ms = clock.now_ms
        alarms.look(machine, {}, healthy())
    assert alarms.shown == {}


def test_an_engine_that_is_away_for_a_minute_is_an_alarm(alarms: Alarms) -> None:
    alarms.look(a_machine({ME}), {}, silent(of_set.PATIENCE_MS - 1))
    assert alarms.shown == {}
    alarms.look(a_machine({ME}), {}, silent(of_set.PATIENCE_MS))
    assert "60 s" in alarms.shown[of_set.ENGINE]


def announced(machine: Machine, replica: Replica, *, is_clean: bool) -> None:
    assert machine.view is not None
    member = Announcement(replica, f"i{replica.id}", is_clean=is_clean)
    machine.view = replace(machine.view, members={**machine.view.members, replica.id: member})


def test_when_all_have_lost_their_memory_an_operator_is_asked(alarms: Alarms) -> None:
    machine = a_machine({ME, OTHER})
    machine.replica_state.is_clean = False
    announced(machine, OTHER, is_clean=False)
    alarms.look(machine, {}, healthy())
    assert "the machines of all in-sync replicas, 1, 2," in alarms.shown[of_set.UNCLEAN]


def test_who_may_still_hold_all_is_to_be_started_first(alarms: Alarms) -> None:
    machine = a_machine({ME, OTHER})
    machine.replica_state.is_clean = False
    alarms.look(machine, {}, healthy())
    assert "in-sync replicas 2 are away: start them" in alarms.shown[of_set.UNCLEAN]


def test_one_that_lost_its_memory_waits_while_another_may_lead(alarms: Alarms) -> None:
    machine = a_machine({ME, OTHER})
    machine.replica_state.is_clean = False
    announced(machine, OTHER, is_clean=True)
    alarms.look(machine, {}, healthy())
    assert alarms.shown == {}


def test_who_falls_out_of_retention_is_named(alarms: Alarms, clock: Clock) -> None:
    machine = a_machine({ME}, log_end=1 << 30)
    lead(machine, 1 << 20)
    alarms.look(machine, {}, healthy())
    assert alarms.shown == {}
    clock.now_ms = of_set.PATIENCE_MS
    alarms.look(machine, {}, healthy())
    assert "replica 2 is 1072693248 bytes behind" in alarms.shown[of_set.RETENTION]
    follower_of(machine).acknowledgeable_offset = 1 << 29
    alarms.look(machine, {}, healthy())
    assert of_set.RETENTION not in alarms.shown


def test_who_is_far_behind_and_comes_nearer_is_let_be(alarms: Alarms, clock: Clock) -> None:
    machine = a_machine({ME}, log_end=1 << 30)
    lead(machine, 1 << 20)
    alarms.look(machine, {}, healthy())
    follower_of(machine).acknowledgeable_offset = 2 << 20
    clock.now_ms = of_set.PATIENCE_MS
    alarms.look(machine, {}, healthy())
    assert of_set.RETENTION not in alarms.shown


def test_a_set_without_state_has_no_alarm(alarms: Alarms) -> None:
    machine = a_machine(set())
    assert machine.view is not None
    machine.view = replace(machine.view, state=None)
    alarms.look(machine, {}, healthy())
    assert alarms.shown == {}


def test_an_engine_that_answers_and_takes_no_writes_has_an_alarm_of_its_own(
    alarms: Alarms,
) -> None:
    clock = Clock()
    health = EngineHealth(clock)
    health.announced(EngineError("database space exceeded"))
    clock.now_ms = UNWRITABLE_PATIENCE_MS
    health.answered()
    alarms.look(a_machine({ME}), {}, health)
    assert list(alarms.shown) == [of_set.UNWRITABLE]
    assert "refuses writes (database space exceeded)" in alarms.shown[of_set.UNWRITABLE]
    health.announced(None)
    alarms.look(a_machine({ME}), {}, health)
    assert alarms.shown == {}


def exchanged(machine: Machine, *members: Replica) -> None:
    assert machine.view is not None
    found = {each.id: Announcement(each, f"i{each.id}") for each in members}
    machine.view = replace(machine.view, members=found)


def test_when_the_stores_of_all_in_sync_are_gone_nobody_may_lead(
    alarms: Alarms, clock: Clock
) -> None:
    machine = a_machine({Replica(1, "old"), Replica(2, "old")})
    exchanged(machine, ME, OTHER, Replica(3, "c"))
    alarms.look(machine, {}, healthy())
    assert alarms.shown == {}
    clock.now_ms = of_set.GONE_PATIENCE_MS
    alarms.look(machine, {}, healthy())
    text = alarms.shown[of_set.GONE]
    assert "the stores of all in-sync replicas, 1, 2, are missing" in text
    assert "elect --unclean" in text


def test_who_is_away_may_have_the_only_store_that_is_left(alarms: Alarms, clock: Clock) -> None:
    machine = a_machine({Replica(1, "old"), OTHER})
    exchanged(machine, ME)
    for clock.now_ms in (0, of_set.GONE_PATIENCE_MS):
        alarms.look(machine, {}, healthy())
    text = alarms.shown[of_set.GONE]
    assert "the stores of replicas 1 are missing, and the in-sync replicas 2 are away" in text


@pytest.mark.parametrize("is_led", [True, False])
def test_while_one_in_sync_has_its_store_nothing_is_gone(
    alarms: Alarms, clock: Clock, is_led: bool
) -> None:
    machine = a_machine({Replica(1, "old"), OTHER})
    exchanged(machine, ME, Replica(2, "new") if is_led else OTHER)
    assert machine.view is not None
    if is_led:
        machine.view = replace(machine.view, leader=Leader(2, "i2", 1))
    for clock.now_ms in (0, of_set.GONE_PATIENCE_MS):
        alarms.look(machine, {}, healthy())
    assert alarms.shown == {}


def test_below_the_floor_is_an_alarm_at_once(alarms: Alarms, clock: Clock) -> None:
    machine = a_machine({ME, OTHER}, floor=2)
    lead(machine, 1000)
    clock.now_ms = Timing().catch_up_ms - 1
    follower_of(machine).moved_at_ms = clock.now_ms
    alarms.look(machine, {}, healthy())
    assert alarms.shown == {}
    follower_of(machine).link = None
    clock.now_ms += 1
    alarms.look(machine, {}, healthy())
    assert list(alarms.shown) == [of_set.BELOW]
    assert "nothing is stored" in alarms.shown[of_set.BELOW]


def test_a_set_that_begins_is_below_its_floor_for_a_moment(alarms: Alarms, clock: Clock) -> None:
    machine = a_machine({ME}, floor=2)
    lead(machine)
    alarms.look(machine, {}, healthy())
    assert alarms.shown == {}
    clock.now_ms = Timing().catch_up_ms
    alarms.look(machine, {}, healthy())
    assert list(alarms.shown) == [of_set.BELOW]


def test_settings_that_differ_are_named_by_replica(alarms: Alarms) -> None:
    machine = a_machine({ME, OTHER})
    assert machine.view
    members = {
        1: Announcement(ME, "1", settings=(("minInSyncReplicas", "2"), ("haMode", "sync"))),
        2: Announcement(OTHER, "2", settings=(("minInSyncReplicas", "1"), ("haMode", "sync"))),
        3: Announcement(Replica(3, "c"), "3"),
    }
    machine.view = replace(machine.view, members=members)
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            alarms.look(machine, {}, healthy())
    assert len(logs) == 1
    assert alarms.shown == {
        of_set.SETTINGS: (
            "minInSyncReplicas is 2 at replica 1 and 1 at replica 2: set them to the same value"
        )
    }


def test_a_release_that_may_not_change_the_state_says_so(alarms: Alarms) -> None:
    machine = a_machine({ME, OTHER})
    assert machine.view
    assert machine.view.state
    machine.view = replace(machine.view, state=replace(machine.view.state, writer=7))
    alarms.look(machine, {}, healthy())
    assert "requires version 7" in alarms.shown[of_set.OLD]


def test_every_alarm_has_its_remedy_on_the_page() -> None:
    page = Path("docs/replication.md").read_text()
    assert [reason for reason in of_set.REASONS if f"\n| `{reason}` | " not in page] == []
