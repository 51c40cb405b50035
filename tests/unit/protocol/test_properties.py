r"""The properties string: separators only, with or without the last one."""

import pytest

from rockhopper.protocol.properties import (
    PROPERTIES_SIZE_BYTES_MAX,
    SYSTEM_PROPERTIES,
    decode_properties,
    encode_properties,
    fit_properties,
    join_properties,
)


def test_writes_the_last_separator() -> None:
    assert encode_properties({"KEYS": "k1", "WAIT": "true"}) == "KEYS\x01k1\x02WAIT\x01true\x02"


def test_nothing_is_the_empty_string() -> None:
    assert encode_properties({}) == ""
    assert decode_properties("") == {}


@pytest.mark.parametrize("text", ["a\x011\x02b\x012\x02", "a\x011\x02b\x012"])
def test_reads_with_and_without_the_last_separator(text: str) -> None:
    assert decode_properties(text) == {"a": "1", "b": "2"}
    assert decode_properties(text.encode()) == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    "text", ["\x02", "\x02\x02", "a", "a\x01", "\x011", "a\x02", "\x01", "ab\x02", "\x01\x02"]
)
def test_what_is_not_a_name_and_a_value_is_dropped(text: str) -> None:
    assert decode_properties(text) == {}
    assert decode_properties(f"x\x01y\x02{text}\x02z\x011") == {"x": "y", "z": "1"}


def test_first_separator_ends_the_name() -> None:
    assert decode_properties("a\x01b\x01c\x02") == {"a": "b\x01c"}


def test_last_of_two_equal_names_counts() -> None:
    assert decode_properties("a\x011\x02a\x012\x02") == {"a": "2"}


def test_bytes_that_are_not_utf8_are_replaced_as_in_java() -> None:
    assert decode_properties(b"a\x01\xff\x02") == {"a": "\ufffd"}


@pytest.mark.parametrize("bad", [{"a\x01": "b"}, {"a": "b\x02c"}, {"x": "y", "a": "\x01"}])
def test_separators_inside_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="the character 1 or 2"):
        encode_properties(bad)


def test_system_properties_are_those_of_rocketmq() -> None:
    assert {"KEYS", "TAGS", "UNIQ_KEY", "__SHARDINGKEY", "__CRC32#", "PGROUP"} <= SYSTEM_PROPERTIES
    assert all(len(name) > 1 for name in SYSTEM_PROPERTIES)


def test_properties_are_joined_as_they_came() -> None:
    assert join_properties({"a": "b\x01c", "d": "e"}) == "a\x01b\x01c\x02d\x01e\x02"
    assert join_properties({}) == ""


def test_optional_properties_without_room_are_left_out_in_their_order() -> None:
    user = {"x": "ü" * 16_000, "y": "z" * 700}
    assert len(join_properties(user).encode()) == PROPERTIES_SIZE_BYTES_MAX - 61
    added = {"1ST_POP_TIME": "1" * 13, "WAIT": "false", "ORIGIN_MESSAGE_ID": "A" * 32}
    assert fit_properties(user) == user
    both = {"1ST_POP_TIME": "1" * 13, "WAIT": "false"}
    assert fit_properties(user | both) == user | both
    assert fit_properties(user | added) == user | {"ORIGIN_MESSAGE_ID": "A" * 32}
    assert fit_properties(user | added, ["ORIGIN_MESSAGE_ID"]) == user | both
    assert fit_properties(user | added, size_bytes_max=1000) == user
