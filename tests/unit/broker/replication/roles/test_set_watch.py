"""What a replica counts of its set."""

from dataclasses import replace

from rockhopper.broker.replication.election.campaigning import LEASE_OVER
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.replica_set import Replica, SetState, SetView, Term
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing
from rockhopper.broker.replication.roles.alarms import DIVERGED
from rockhopper.broker.replication.roles.set_watch import LOOK_INTERVAL_MS, SetWatch
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


def test_what_is_shown_is_what_was_counted() -> None:
    clock = Clock()
    watch = SetWatch(clock)
    watch.resigned()
    watch.cut(300)
    watch.cut(-1)
    watch.seeded()
    shown = watch.families(a_machine(""), EngineHealth(clock), 900, -2500)
    found = {each.name.removeprefix("rockhopper_ha_"): dict(each.samples) for each in shown}
    assert found["resignations_total"] == {(): 1}
    assert (found["cuts_total"], found["cut_bytes_total"]) == ({(): 2}, {(): 300})
    assert (found["seeds_total"], found["confirmed_bytes"]) == ({(): 1}, {(): 900})
    assert found["alarm"][DIVERGED,] == 0
    assert found["clock_ahead_seconds"] == {(): -2.5}


def test_alarms_are_looked_after_once_a_second() -> None:
    clock = Clock()
    watch, machine, health = SetWatch(clock), a_machine(""), EngineHealth(clock)
    watch.look(machine, {}, health)
    clock.now_ms += LOOK_INTERVAL_MS - 1
    watch.look(machine, {DIVERGED: "another log"}, health)
    assert watch.alarms.shown == {}
    clock.now_ms += 1
    watch.look(machine, {DIVERGED: "another log"}, health)
    assert watch.alarms.shown == {DIVERGED: "another log"}
