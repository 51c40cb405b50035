"""How a set is shown: to operators, and to RocketMQ's tools."""

from dataclasses import replace

import pytest

from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.leading import Follower, MasterTerm
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.replica_set import (
    Announcement,
    Leader,
    Replica,
    SetState,
    SetView,
)
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing
from rockhopper.broker.replication.roles import set_status

ME, OTHER = Replica(1, "a"), Replica(2, "b")
STATE = SetState(3, ME, frozenset({ME, OTHER}), 2)
VIEW = SetView(
    STATE,
    7,
    None,
    {
        1: Announcement(ME, "1-a", address="b1:10911", ha_address="b1:10912", log_end=1000),
        2: Announcement(OTHER, "2-b", address="b2:10911", ha_address="b2:10912", log_end=900),
    },
)


@pytest.fixture
def machine() -> Machine:
    replica_state = ReplicaState(
        ME,
        "1-a",
        voted_epoch=3,
        epochs=(Epoch(1, 0), Epoch(3, 400)),
        is_clean=True,
        log_start=0,
        log_end=1000,
        acknowledgeable_offset=1000,
        replicated_offset=800,
    )
    return Machine(replica_state, Timing(), min_in_sync=2, now_ms=0, spread=lambda: 0)


def lead(machine: Machine) -> None:
    machine.term = MasterTerm(ME, STATE, 7, 1000, 1000, 800, 0, Timing())
    machine.term.followers[OTHER] = Follower(5, True, 0, 0, acknowledgeable_offset=800)


def test_of_each_replica_it_is_told_how_it_is(machine: Machine) -> None:
    lead(machine)
    status = set_status.status(machine, VIEW, replicated_offset=800)
    assert [(each["id"], each["isMaster"], each["heldOffset"]) for each in status["replicas"]] == [
        (1, True, None),
        (2, False, 800),
    ]
    assert [each["logEnd"] for each in status["replicas"]] == [1000, 900]
    assert (status["epoch"], status["minInSyncReplicas"], status["confirmedOffset"]) == (3, 2, 800)


def test_of_a_log_that_is_not_compared_yet_nothing_is_held(machine: Machine) -> None:
    lead(machine)
    assert machine.term
    machine.term.followers[OTHER].acknowledgeable_offset = -1
    status = set_status.status(machine, VIEW, replicated_offset=800)
    assert (status["replicas"][1]["heldOffset"], status["replicas"][1]["logEnd"]) == (None, 900)


def test_what_is_announced_of_a_log_is_older_than_what_is_known(machine: Machine) -> None:
    lead(machine)
    machine.replica_state.log_end = 2000
    assert machine.term
    machine.term.followers[OTHER].acknowledgeable_offset = 1900
    status = set_status.status(machine, VIEW, replicated_offset=800)
    assert [each["logEnd"] for each in status["replicas"]] == [2000, 1900]


def test_one_that_is_gone_is_shown_as_gone(machine: Machine) -> None:
    view = replace(VIEW, members={1: VIEW.members[1]})
    status = set_status.status(machine, view, replicated_offset=0)
    assert status["replicas"][1] == {
        "id": 2,
        "address": "",
        "haAddress": "",
        "ownAddress": "",
        "isRunning": False,
        "isMaster": False,
        "isInSync": True,
        "isClean": None,
        "logEnd": None,
        "heldOffset": None,
    }


def test_one_whose_store_was_exchanged_neither_leads_nor_is_in_sync(machine: Machine) -> None:
    members = {1: replace(VIEW.members[1], replica=Replica(1, "new"))}
    status = set_status.status(machine, replace(VIEW, members=members), replicated_offset=0)
    one = status["replicas"][0]
    assert (one["isMaster"], one["isInSync"], one["isRunning"]) == (False, False, True)
    assert (status["masterId"], status["leaderId"]) == (1, 0)


def test_who_has_the_lease_or_is_in_office_leads(machine: Machine) -> None:
    view = replace(VIEW, leader=Leader(2, "2-b", 3))
    assert set_status.status(machine, view, replicated_offset=0)["leaderId"] == 2
    lead(machine)
    assert set_status.status(machine, VIEW, replicated_offset=0)["leaderId"] == 1


def test_who_led_last_is_no_master_while_nobody_leads(machine: Machine) -> None:
    status = set_status.status(machine, VIEW, replicated_offset=0)
    assert (status["masterId"], status["leaderId"]) == (1, 0)
    assert [each["isMaster"] for each in status["replicas"]] == [False, False]


def test_the_lease_of_a_process_that_has_ended_makes_nobody_lead(machine: Machine) -> None:
    own = replace(VIEW, leader=Leader(1, "1-earlier", 3))
    assert set_status.status(machine, own, replicated_offset=0)["leaderId"] == 0
    others = replace(VIEW, leader=Leader(2, "2-earlier", 3))
    assert set_status.status(machine, others, replicated_offset=0)["leaderId"] == 0


def test_a_process_whose_id_another_has_shows_what_that_one_announces(machine: Machine) -> None:
    members = {**VIEW.members, 1: replace(VIEW.members[1], incarnation="1-live", log_end=5000)}
    view = replace(VIEW, leader=Leader(1, "1-live", 3), members=members)
    status = set_status.status(machine, view, replicated_offset=0, holds_id=False)
    assert (status["holdsId"], status["logEnd"], status["leaderId"]) == (False, 1000, 1)
    assert (status["replicas"][0]["logEnd"], status["replicas"][0]["isMaster"]) == (5000, True)


def test_an_alarm_has_its_name(machine: Machine) -> None:
    alarms = {"diverged": "look", "disk-fails": "make room"}
    status = set_status.status(machine, VIEW, replicated_offset=0, alarms=alarms)
    assert status["alarms"] == ["look", "make room"]
    assert status["alarmNames"] == ["diverged", "disk-fails"]


def test_nothing_is_known_yet(machine: Machine) -> None:
    status = set_status.status(machine, None, replicated_offset=0)
    assert (status["epoch"], status["masterId"], status["replicas"]) == (0, 0, [])


def test_a_master_names_its_slaves_to_rocketmq(machine: Machine) -> None:
    lead(machine)
    info = set_status.ha_runtime_info(machine, VIEW)
    assert (info["master"], info["inSyncSlaveNums"]) == (True, 1)
    (connection,) = info["haConnectionInfo"]
    assert connection["addr"] == "b2:10912"
    assert (connection["slaveAckOffset"], connection["diff"], connection["inSync"]) == (
        800,
        200,
        True,
    )


def test_a_slave_names_its_master_to_rocketmq(machine: Machine) -> None:
    view = replace(VIEW, state=replace(STATE, master=OTHER))
    info = set_status.ha_runtime_info(machine, view)
    assert (info["master"], info["masterCommitLogMaxOffset"]) == (False, 900)
    assert info["haClientRuntimeInfo"]["masterAddr"] == "b2:10912"


def test_each_epoch_ends_where_the_next_begins(machine: Machine) -> None:
    cache = set_status.epoch_cache(machine, "DefaultCluster", "broker-a", 0)
    assert cache["epochList"] == [
        {"epoch": 1, "startOffset": 0, "endOffset": 400},
        {"epoch": 3, "startOffset": 400, "endOffset": 1000},
    ]


def test_a_replica_that_is_absent_is_shown_though_it_is_not_in_sync(machine: Machine) -> None:
    status = set_status.status(machine, VIEW, replicated_offset=0, replica_count=4)
    assert [each["id"] for each in status["replicas"]] == [1, 2, 3, 4]
    assert (status["replicas"][3]["isRunning"], status["replicas"][3]["isInSync"]) == (False, False)
