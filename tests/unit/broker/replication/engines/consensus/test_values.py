"""What stands of a set, to the letter."""

import re
from dataclasses import replace
from itertools import count

import msgspec
import pytest

from rockhopper.broker.replication.election.replica_set import Leader, Replica
from rockhopper.broker.replication.engines.consensus.values import (
    StartCount,
    UnreadableValueError,
    decode_leader,
    decode_member,
    decode_start,
    decode_state,
    encode_leader,
    encode_member,
    encode_start,
    encode_state,
)
from tests.support.engine_contract import LEADER_A, MEMBER, STATE

STORED_STATE = (
    b'{"version":1,"epoch":1,"master":{"id":1,"store":"a1b2"},'
    b'"set":[{"id":1,"store":"a1b2"},{"id":2,"store":"c3d4"}],"minInSync":1,'
    b'"history":[{"epoch":1,"master":{"id":1,"store":"a1b2"},"why":"first start"}],'
    b'"trail":[{"changes":7,"mark":11}]}'
)
STORED_MEMBER = (
    b'{"version":1,"id":2,"store":"c3d4","incarnation":"second","address":"h2:10911",'
    b'"haAddress":"h2:10912","lastEpoch":4,"logEnd":1099511627776,"clean":false,"priority":-3,'
    b'"sight":{"changes":7,"mark":11},"missesMaster":false}'
)


def test_values_are_stored_so() -> None:
    assert encode_state(STATE) == STORED_STATE
    assert encode_member(MEMBER) == STORED_MEMBER
    assert encode_leader(LEADER_A) == b'{"version":1,"id":1,"incarnation":"first","epoch":1}'
    start = StartCount(count=3, counted_by="x")
    assert encode_start(start) == b'{"version":1,"count":3,"countedBy":"x"}'


def test_values_are_read_back() -> None:
    assert decode_state("k", STORED_STATE) == STATE
    assert decode_member("k", STORED_MEMBER) == MEMBER
    assert decode_leader("k", encode_leader(LEADER_A)) == LEADER_A
    start = StartCount(count=3, counted_by="x")
    assert decode_start("k", encode_start(start)) == start


def test_fields_that_came_later_are_passed_over() -> None:
    stored = b'{"version":1,"id":1,"incarnation":"i","epoch":2,"colour":"blue"}'
    assert decode_leader("k", stored) == Leader(1, "i", 2)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"version":2,"shape":"new"}', "its version is 2, but this broker reads 1"),
        (b'{"version":1,"id":1}', "missing required field"),
        (b'{"version":1,"id":"1","incarnation":"i","epoch":2}', r"Expected `int`, got `str`"),
        (b"\x00\x01", "JSON is malformed"),
        (b"", "Input data was truncated"),
    ],
)
def test_what_cannot_be_read_is_named(value: bytes, reason: str) -> None:
    with pytest.raises(
        UnreadableValueError, match=f"/r/leader in the engine cannot be read: .*{reason}"
    ):
        decode_leader("/r/leader", value)


def test_what_later_releases_tell_of_a_replica_is_stored_if_it_is_known() -> None:
    member = replace(MEMBER, settings=(("haMode", "sync"),), own_address="h2:10911")
    stored = encode_member(member)
    assert stored.endswith(b'"settings":{"haMode":"sync"},"ownAddress":"h2:10911"}')
    assert decode_member("kernel/members/2", stored) == member


def test_an_earlier_release_keeps_what_it_does_not_know_of_a_state() -> None:
    later = STORED_STATE[:-1] + b',"colour":{"a":[1, 2]},"shape":null}'
    state = decode_state("state", later)
    assert encode_state(state) == later
    changed = state.changed(leaving=Replica(2, "c3d4"))
    assert changed
    assert encode_state(changed).endswith(b',"colour":{"a":[1, 2]},"shape":null}')


def test_a_state_says_what_its_writers_have_to_know() -> None:
    later = STORED_STATE[:-1] + b',"writer":2}'
    state = decode_state("state", later)
    assert (state.writer, state.is_writable) == (2, False)
    assert encode_state(state) == later
    assert STATE.is_writable


LATER = re.compile(rb"(?<=[^{])}")
"""The end of an object with fields: there a later release has more."""


def test_an_earlier_release_keeps_what_it_does_not_know_anywhere_in_a_state() -> None:
    numbers = count()
    later = LATER.sub(lambda _: b',"later":{"n":[%d]}}' % next(numbers), STORED_STATE)
    assert next(numbers) == 7
    state = decode_state("state", later)
    assert encode_state(state) == later
    assert state.changed(leaving=Replica(1, "a1b2")) is None

    changed = state.changed(leaving=Replica(2, "c3d4"))
    assert changed
    stored = msgspec.json.decode(encode_state(changed))
    assert stored["set"] == [{"id": 1, "store": "a1b2", "later": {"n": [1]}}]
    assert [each.get("later") for each in stored["trail"]] == [{"n": [5]}, None]

    elected = state.elected(Replica(2, "c3d4"), 2, "gone", without_old=False)
    stored = msgspec.json.decode(encode_state(elected))
    assert [each.get("later") for each in stored["history"]] == [{"n": [4]}, None]
    assert [each["master"].get("later") for each in stored["history"]] == [{"n": [3]}, None]
    assert stored["master"] == {"id": 2, "store": "c3d4"}
    assert stored["later"] == {"n": [6]}
    assert decode_state("state", encode_state(elected)) == elected
