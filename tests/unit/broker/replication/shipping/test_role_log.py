"""One line for each change of role."""

from typing import Any

import pytest
import structlog

from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.replica_set import Replica, SetState, SetView, Term
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing
from rockhopper.broker.replication.shipping.role_log import RoleLog

ME, OTHER = Replica(1, "a"), Replica(2, "b")
HISTORY = (Term(4, OTHER, "first start"), Term(5, ME, "the lease expired"))


@pytest.fixture
def machine() -> Machine:
    replica_state = ReplicaState(
        ME, "1-a", voted_epoch=5, log_start=10, log_end=900, acknowledgeable_offset=800
    )
    replica_state.replicated_offset = 700
    machine = Machine(replica_state, Timing(), min_in_sync=1, now_ms=0, spread=lambda: 0)
    machine.view = SetView(SetState(5, ME, frozenset({ME, OTHER}), 1, HISTORY), 7, None)
    return machine


def follow(machine: Machine, master: Replica, epoch: int) -> None:
    machine.following.master, machine.following.link = master, 3
    machine.following.epoch = epoch


def lines(logs: list[Any]) -> list[tuple[object, ...]]:
    return [(each["event"], each["why"], each["epoch"]) for each in logs]


def test_an_election_is_told_with_its_reason_and_all_offsets(machine: Machine) -> None:
    with structlog.testing.capture_logs() as logs:
        RoleLog(machine).elected(5)
    assert logs == [
        {
            "event": "this replica leads",
            "log_level": "info",
            "why": "the lease expired",
            "epoch": 5,
            "before": 2,
            "id": 1,
            "in_sync": [1, 2],
            "log_start": 10,
            "log_end": 900,
            "held_offset": 800,
            "confirmed_offset": 700,
            "promise": 5,
            "is_clean": True,
        }
    ]


def test_a_master_is_told_once_and_so_is_the_next(machine: Machine) -> None:
    role_log = RoleLog(machine)
    with structlog.testing.capture_logs() as logs:
        role_log.look()
        follow(machine, OTHER, 0)
        role_log.look()
        for epoch in (4, 4, 6):
            follow(machine, OTHER, epoch)
            role_log.look()
    assert lines(logs) == [
        ("following", "this replica found the set's master", 4),
        ("following", "another master was elected", 6),
    ]


def test_who_follows_again_after_its_term_says_so(machine: Machine) -> None:
    role_log = RoleLog(machine)
    follow(machine, OTHER, 4)
    with structlog.testing.capture_logs() as logs:
        role_log.look()
        role_log.elected(5)
        role_log.resigned(5, "a planned switch")
        follow(machine, OTHER, 6)
        role_log.look()
    assert [line[0] for line in lines(logs)] == [
        "following",
        "this replica leads",
        "this replica stopped leading",
        "following",
    ]
