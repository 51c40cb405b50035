"""What a replica counts of its set."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import structlog

from rockhopper.broker.replication.election.campaigning import LEASE_OVER
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.replica_set import Replica, SetState, SetView, Term
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing
from rockhopper.broker.replication.roles.alarms import CLOCKS, DISK, DIVERGED, SECOND, STOPPED
from rockhopper.broker.replication.roles.set_watch import LOOK_INTERVAL_MS, SetWatch, floor_in_force
from rockhopper.broker.replication.shipping.engine_health import EngineHealth

ME = Replica(1, "a")


class Clock:
    now_ms = 5000

    def __call__(self) -> int:
        return self.now_ms


def a_machine(why: str) -> Machine:
    machine = Machine(ReplicaState(ME, "1-a"), Timing(), min_in_sync=1, now_ms=0, spread=lambda: 0)
    state = SetState(3, ME, frozenset({ME}), 1, (Term(3, ME, why),))
    machine.view = SetView(state, 1, None)
    return machine


def test_elections_are_counted_by_cause() -> None:
    watch = SetWatch(Clock())
    watch.elected(a_machine(LEASE_OVER))
    watch.elected(a_machine(LEASE_OVER))
    watch.elected(a_machine("as a later version says"))
    machine = a_machine("")
    assert machine.view is not None
    machine.view = replace(machine.view, state=None)
    watch.elected(machine)
    assert watch.elections == {"lease-over": 2, "other": 2}


def a_replica(clock: Clock, machine: Machine | None = None) -> Any:
    """What the watch reads of a running replica; its machine was elected once."""
    return SimpleNamespace(
        machine=machine or a_machine(""),
        has_started=True,
        engine_health=EngineHealth(clock),
        clock=SimpleNamespace(problem="", ahead_ms=-2500),
        second_because="",
        disk_problem="",
    )


def test_what_is_shown_is_what_was_counted() -> None:
    clock = Clock()
    watch = SetWatch(clock)
    watch.resigned()
    watch.cut(300)
    watch.cut(-1)
    watch.seeded()
    shown = watch.families(a_replica(clock), 900)
    found = {each.name.removeprefix("rockhopper_ha_"): dict(each.samples) for each in shown}
    assert found["resignations_total"] == {(): 1}
    assert (found["cuts_total"], found["cut_bytes_total"]) == ({(): 2}, {(): 300})
    assert (found["seeds_total"], found["confirmed_bytes"]) == ({(): 1}, {(): 900})
    assert found["alarm"][DIVERGED,] == 0
    assert found["clock_ahead_seconds"] == {(): -2.5}


def test_alarms_are_looked_after_once_a_second() -> None:
    clock = Clock()
    watch, replica = SetWatch(clock), a_replica(clock)
    watch.look(replica)
    watch.require_operator("another log")
    clock.now_ms += LOOK_INTERVAL_MS - 1
    watch.look(replica)
    assert watch.alarms.shown == {}
    clock.now_ms += 1
    watch.look(replica)
    assert watch.alarms.shown == {DIVERGED: "another log"}
    watch.operator_decided()
    clock.now_ms += LOOK_INTERVAL_MS
    watch.look(replica)
    assert watch.alarms.shown == {}


def test_each_problem_of_a_replica_is_an_alarm_of_its_own() -> None:
    clock = Clock()
    watch, replica = SetWatch(clock), a_replica(clock)
    watch.replication_stopped("a bug")
    replica.disk_problem, replica.second_because = "No space left", "another process"
    replica.clock.problem = "the clock is wrong"
    for _ in range(2):
        watch.look(replica)
        clock.now_ms += 600_000
    shown = watch.alarms.shown
    assert {STOPPED, DISK, SECOND, CLOCKS} <= set(shown)
    assert (shown[STOPPED], shown[SECOND]) == ("a bug", "another process")
    assert "cannot save its state (No space left)" in shown[DISK]


def test_a_replica_is_out_for_the_gravest_reason() -> None:
    clock = Clock()
    watch, replica = SetWatch(clock), a_replica(clock)
    assert watch.why_out(None) == watch.why_out(replica) == ""
    replica.second_because = "another process"
    assert watch.why_out(replica) == "another process"
    watch.replication_stopped("a bug")
    assert watch.why_out(replica) == "a bug"
    watch.require_operator("another log")
    assert watch.why_out(replica) == watch.why_out(None) == "another log"


def test_a_replica_that_left_its_set_is_out_unless_the_set_is_new() -> None:
    clock = Clock()
    watch, machine = SetWatch(clock), a_machine("")
    machine.replica_state.has_left = True
    replica = a_replica(clock, machine)
    assert "--leave-set" in watch.why_out(replica)
    assert machine.view is not None
    machine.view = replace(machine.view, state=None)
    assert watch.why_out(replica) == ""


def test_a_changed_floor_is_logged_once() -> None:
    clock = Clock()
    watch, replica = SetWatch(clock, floor_setting=2), a_replica(clock)
    view = replica.machine.view
    with structlog.testing.capture_logs() as logs:
        watch.look(replica)
        watch.look(replica)
        replica.machine.view = replace(view, state=replace(view.state, min_in_sync=2))
        assert floor_in_force(replica.machine) == 2
        watch.look(replica)
        replica.machine.view = None
        watch.look(replica)
    assert floor_in_force(replica.machine) == 0
    floors = [each for each in logs if each["event"] == "effective minInSyncReplicas"]
    assert [(each["floor"], each["setting"]) for each in floors] == [(1, 2), (2, 2)]
