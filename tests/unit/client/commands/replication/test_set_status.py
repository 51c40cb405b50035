"""`rockhopper ha status` of a set: what it shows of a status as brokers give it."""

import json
from typing import Any

import pytest

from rockhopper.client.commands.replication import set_status
from rockhopper.client.errors import ClientError
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command


def a_status() -> dict[str, Any]:
    one = {
        "id": 1,
        "address": "b1:10911",
        "answers": True,
        "isRunning": True,
        "isMaster": True,
        "isInSync": True,
        "isClean": True,
        "logEnd": 1000,
        "role": "leading",
    }
    two = one | {"id": 2, "address": "b2:10911", "isMaster": False, "heldOffset": 900}
    two["role"] = "following"
    gone = {
        "id": 3,
        "address": "",
        "answers": False,
        "isRunning": False,
        "isMaster": False,
        "isInSync": False,
    }
    return {
        "id": 1,
        "epoch": 4,
        "masterId": 1,
        "leaderId": 1,
        "role": "leading",
        "minInSyncReplicas": 2,
        "logEnd": 1000,
        "asked": "b1:10911",
        "replicas": [one, two, gone],
        "alarms": ["the engine is away"],
        "history": [{"epoch": 4, "masterId": 1, "why": "first start"}],
    }


def test_who_leads_who_lags_and_who_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    set_status.show(a_status())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "epoch 4: replica 1 leads; 2 of 3 in sync, at least 2 required (reported by b1:10911)"
    )
    assert lines[2].split() == ["1", "b1:10911", "master", "yes", "yes", "1,000", "0"]
    assert lines[3].split() == ["2", "b2:10911", "follower", "yes", "yes", "1,000", "100"]
    assert lines[4].split() == ["3", "-", "away", "no", "-", "-", "-"]
    assert "ALARM  the engine is away" in lines
    assert "  epoch 4: replica 1, first start" in lines


def test_a_set_without_a_master(capsys: pytest.CaptureFixture[str]) -> None:
    set_status.show(a_status() | {"masterId": 0, "leaderId": 0, "history": [], "alarms": []})
    assert "no replica leads; 2 of 3" in capsys.readouterr().out
    set_status.show(a_status() | {"leaderId": 0})
    assert "no replica leads, replica 1 led last; 2 of 3" in capsys.readouterr().out


def test_one_that_does_not_answer_though_it_was_there(capsys: pytest.CaptureFixture[str]) -> None:
    status = a_status()
    status["replicas"][1]["answers"] = False
    set_status.show(status)
    assert "no answer" in capsys.readouterr().out.splitlines()[3]


async def test_what_may_pass_by_itself_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = a_status(), a_followers() | {"notes": ["another process is announced"]}
    set_status.show(await of_set({"b1:10911": one, "b2:10911": two}, "b1:10911"))
    assert "NOTE   replica 2: another process is announced" in capsys.readouterr().out


class Brokers:
    """Replicas by their addresses; one that is missing cannot be reached."""

    def __init__(self, answers: dict[str, dict[str, Any]]) -> None:
        self.answers = answers

    async def request(self, address: str, code: RequestCode, *, timeout_s: float) -> Command:
        assert (code, timeout_s) == (RequestCode.GET_REPLICA_SET, set_status.TIMEOUT_S)
        if address not in self.answers:
            raise ClientError(f"{address} refused the connection")
        return Command(code=0, opaque=1, ext={}, body=json.dumps(self.answers[address]).encode())


async def of_set(answers: dict[str, dict[str, Any]], address: str) -> dict[str, Any]:
    return await set_status.read_set_status(Brokers(answers), address)  # type: ignore[arg-type]


def a_followers() -> dict[str, Any]:
    own = {"id": 2, "role": "following", "logEnd": 950, "alarms": ["its log is another"]}
    return a_status() | own | {"minInSync": 0}


async def test_a_follower_that_is_asked_shows_what_the_master_knows_and_its_own_alarms() -> None:
    found = await of_set({"b1:10911": a_status(), "b2:10911": a_followers()}, "b2:10911")
    assert (found["id"], found["asked"]) == (1, "b1:10911")
    assert found["alarms"] == ["replica 1: the engine is away", "replica 2: its log is another"]
    assert [each["answers"] for each in found["replicas"]] == [True, True, False]
    assert [each.get("logEnd") for each in found["replicas"]] == [1000, 950, None]


async def test_without_the_master_a_follower_shows_what_it_knows() -> None:
    found = await of_set({"b2:10911": a_followers()}, "b2:10911")
    assert (found["id"], found["asked"]) == (2, "b2:10911")
    assert [each["answers"] for each in found["replicas"]] == [False, True, False]


async def test_who_cannot_be_reached_is_an_error() -> None:
    with pytest.raises(ClientError, match="b3:10911 refused"):
        await of_set({"b1:10911": a_status()}, "b3:10911")


def behind_one_address() -> dict[str, Any]:
    status = a_status()
    for number, each in enumerate(status["replicas"][:2], 1):
        each |= {"address": "vip:10911", "ownAddress": f"h{number}:10911"}
    return status


async def test_each_replica_is_asked_at_an_address_of_its_own() -> None:
    status = behind_one_address()
    two = behind_one_address() | {"id": 2, "logEnd": 950, "alarms": ["its log is another"]}
    found = await of_set({"vip:10911": status, "h1:10911": status, "h2:10911": two}, "vip:10911")
    assert found["alarms"] == ["replica 1: the engine is away", "replica 2: its log is another"]
    assert [each["answers"] for each in found["replicas"]] == [True, True, False]


async def test_an_answer_of_the_master_is_none_of_a_replica_that_is_dead(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = behind_one_address()
    found = await of_set({"vip:10911": status, "h1:10911": status}, "vip:10911")
    set_status.show(found)
    assert capsys.readouterr().out.splitlines()[3].split()[:4] == ["2", "h2:10911", "no", "answer"]
    for each in status["replicas"]:
        each.pop("ownAddress", None)
    found = await of_set({"vip:10911": status}, "vip:10911")
    assert [each["answers"] for each in found["replicas"]] == [True, False, False]


def a_second_process() -> dict[str, Any]:
    """What a process over a copy of replica 2's disk tells, while that one runs."""
    own = {"id": 2, "holdsId": False, "role": "joining", "logEnd": 40}
    return (
        a_status()
        | own
        | {
            "alarms": ["another process is announced as replica 2"],
            "alarmNames": ["second-process"],
            "notes": ["the master refuses this one"],
        }
    )


SECOND = "replica 2 (a second process, at copy:10911)"


async def test_a_second_process_is_not_the_replica_whose_id_it_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    brokers = {"b1:10911": a_status(), "b2:10911": a_followers(), "copy:10911": a_second_process()}
    found = await of_set(brokers, "copy:10911")
    assert [each.get("logEnd") for each in found["replicas"]] == [1000, 950, None]
    assert (found["id"], found["asked"], found["logEnd"]) == (1, "b1:10911", 1000)
    set_status.show(found)
    lines = capsys.readouterr().out.splitlines()
    assert f"ALARM  {SECOND}: second-process: another process is announced as replica 2" in lines
    assert f"NOTE   {SECOND}: the master refuses this one" in lines


async def test_where_only_a_second_process_answers_the_replica_does_not() -> None:
    found = await of_set({"copy:10911": a_second_process()}, "copy:10911")
    assert [each["answers"] for each in found["replicas"]] == [False] * 3
    assert found["replicas"][1]["logEnd"] == 1000, "as it is announced"
    assert found["asked"] == "copy:10911"
    # At the address of a replica that it has taken over.
    found = await of_set({"b1:10911": a_status(), "b2:10911": a_second_process()}, "b1:10911")
    assert [each["answers"] for each in found["replicas"]] == [True, False, False]


async def test_who_led_last_is_no_master_while_nobody_leads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = a_status() | {"leaderId": 0, "role": "following"}
    set_status.show(await of_set({"b1:10911": alone}, "b1:10911"))
    lines = capsys.readouterr().out.splitlines()
    assert "no replica leads, replica 1 led last" in lines[0]
    assert lines[2].split()[2:] == ["follower", "yes", "yes", "1,000", "-"]


@pytest.mark.parametrize("role", ["joining", "candidate"])
async def test_one_that_takes_no_role_yet_is_shown_so(
    capsys: pytest.CaptureFixture[str], role: str
) -> None:
    alone = a_status() | {"leaderId": 0, "role": role}
    alone["replicas"][0] |= {"isRunning": False}
    set_status.show(await of_set({"b1:10911": alone}, "b1:10911"))
    assert capsys.readouterr().out.splitlines()[2].split()[2] == role


async def test_a_lease_that_outlives_its_process_makes_nobody_a_master() -> None:
    again = a_status() | {"leaderId": 0, "role": "following"}
    found = await of_set({"b1:10911": again, "b2:10911": a_followers()}, "b2:10911")
    assert found["leaderId"] == 0
    assert not any(each["isMaster"] for each in found["replicas"])


async def test_a_master_that_is_cut_off_is_none_where_a_later_one_is_known() -> None:
    later = a_followers() | {"epoch": 5, "masterId": 2, "leaderId": 2, "role": "leading"}
    one, two, _ = later["replicas"]
    one["isMaster"], two["isMaster"] = False, True
    found = await of_set({"b1:10911": a_status(), "b2:10911": later}, "b1:10911")
    assert (found["epoch"], found["leaderId"], found["asked"]) == (5, 2, "b2:10911")
    assert [each["isMaster"] for each in found["replicas"]] == [False, True, False]


async def test_an_alarm_is_shown_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    one = a_status() | {"alarmNames": ["engine-away"]}
    found = await of_set({"b1:10911": one, "b2:10911": a_followers()}, "b1:10911")
    assert [each["alarms"] for each in found["replicas"]] == [["engine-away"], [], []]
    assert "alarmNames" not in found, "these would be one replica's, beside alarms of all"
    set_status.show(found)
    lines = capsys.readouterr().out.splitlines()
    assert "ALARM  replica 1: engine-away: the engine is away" in lines
    assert "ALARM  replica 2: its log is another" in lines, "of an earlier release"


async def test_a_broker_of_an_earlier_release_does_not_say_who_leads() -> None:
    status = a_status()
    del status["leaderId"], status["role"]
    found = await of_set({"b1:10911": status}, "b1:10911")
    assert (found["leaderId"], found["replicas"][0]["isMaster"]) == (1, True)
