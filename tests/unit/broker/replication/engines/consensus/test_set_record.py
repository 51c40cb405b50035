"""A set as one value, to the letter."""

import json
from dataclasses import replace

import pytest

from rockhopper.broker.replication.engines.consensus.set_record import (
    MemberRecord,
    SetRecord,
    decode_member_record,
    decode_record,
    encode_member_record,
    encode_record,
)
from rockhopper.broker.replication.engines.consensus.values import StartCount, UnreadableValueError
from tests.support.engine_contract import LEADER_A, MEMBER, STATE, A, B

START = StartCount(count=3, counted_by="x")
FULL = SetRecord(STATE, 5 << 32, LEADER_A, 7, 1, {"1.a1b2": START})


@pytest.mark.parametrize("record", [SetRecord(), FULL, replace(FULL, designated=None, leader=None)])
def test_a_record_is_read_as_it_was_written(record: SetRecord) -> None:
    assert decode_record("there", encode_record(record)) == record


def test_a_record_is_plain_json() -> None:
    shown = json.loads(encode_record(FULL))
    assert shown["version"] == 1
    assert (shown["stateVersion"], shown["beat"], shown["designated"]) == (5 << 32, 7, 1)
    assert shown["state"]["epoch"] == 1
    assert shown["leader"] == {"version": 1, "id": 1, "incarnation": "first", "epoch": 1}
    assert shown["starts"] == {"1.a1b2": {"version": 1, "count": 3, "countedBy": "x"}}


def test_a_member_is_read_as_it_was_written() -> None:
    member = MemberRecord(MEMBER, 9)
    assert decode_member_record("there", encode_member_record(member)) == member


def test_versions_grow_and_are_never_the_same_after_a_restore() -> None:
    first = SetRecord().with_state(STATE)
    assert 0 < first.version < first.with_state(STATE).version
    assert len({SetRecord().with_state(STATE).version for _ in range(100)}) > 90


def test_a_lease_that_is_renewed_has_another_beat() -> None:
    assert SetRecord().grant_lease(LEADER_A) == SetRecord(leader=LEADER_A, beat=1)
    assert SetRecord().with_start(A, START).starts == {"1.a1b2": START}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (b"{}", "stateVersion"),
        (b'{"version":2,"stateVersion":0,"beat":0}', "its version is 2"),
        (b'{"version":1,"stateVersion":1,"beat":0,"state":{"version":1}}', "epoch"),
    ],
)
def test_what_cannot_be_read_names_its_place(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableValueError, match=f"^there .*{reason}"):
        decode_record("there", data)


def test_a_member_that_cannot_be_read_names_its_place() -> None:
    for data in (b"{}", b'{"version":2,"beat":1,"member":{}}', b'{"beat":1,"member":{}}'):
        with pytest.raises(UnreadableValueError, match=r"^there "):
            decode_member_record("there", data)


def test_fields_of_a_later_release_stay_where_they_were() -> None:
    later = json.loads(encode_record(FULL))
    for each in (later, later["state"], later["leader"], later["starts"]["1.a1b2"]):
        each["colour"] = {"of": ["later"]}
    read = decode_record("there", json.dumps(later).encode())
    counted = read.with_start(B, replace(START, counted_by="another"))
    written = json.loads(encode_record(counted))
    del written["starts"][f"2.{B.store}"]
    assert written == later


def test_another_lease_has_nothing_of_the_last_one() -> None:
    later = json.loads(encode_record(FULL))
    later["leader"]["colour"] = "blue"
    read = decode_record("there", json.dumps(later).encode())
    assert read.leader == LEADER_A
    led = json.loads(encode_record(read.grant_lease(replace(LEADER_A, epoch=9))))
    assert "colour" not in led["leader"]
