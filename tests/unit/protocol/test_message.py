"""The producer's message: mistakes are noticed where they are made."""

from datetime import date
from typing import Any

import pytest

from rockhopper.protocol.message import Message, StoredMessage


def test_fields_become_properties() -> None:
    message = Message(
        "orders",
        b"hello",
        tags="new",
        keys=["o-1", "o-2"],
        properties={"region": "eu"},
        sharding_key="s",
        delay_level=3,
    )
    assert message.wire_properties("ID") == {
        "region": "eu",
        "KEYS": "o-1 o-2",
        "UNIQ_KEY": "ID",
        "__SHARDINGKEY": "s",
        "DELAY": "3",
        "WAIT": "true",
        "TAGS": "new",
    }


def test_plain_message_has_only_the_wait_property() -> None:
    assert Message("T").wire_properties() == {"WAIT": "true"}
    assert Message("T", wait_stored=False).wire_properties() == {"WAIT": "false"}


def test_time_of_delivery_is_a_property() -> None:
    assert (
        Message("T", deliver_at_ms=1_700_000_000_000).wire_properties()["TIMER_DELIVER_MS"]
        == "1700000000000"
    )


def test_a_message_carries_its_priority() -> None:
    assert Message("alarms", b"fire", priority=3).wire_properties()["_SYS_MSG_PRIORITY_"] == "3"
    with pytest.raises(ValueError, match="priority is -1"):
        Message("alarms", priority=-1)


def test_one_string_of_keys_is_split_at_blanks() -> None:
    assert Message("T", keys="a b").keys == ("a", "b")
    assert Message("T", keys="order-1").keys == ("order-1",)
    assert Message("T", keys=" a  b ").keys == ("a", "b")
    assert Message("T", keys="").keys == ()


def test_keys_that_are_set_later_are_taken_alike() -> None:
    message = Message("T")
    message.keys = "order-1"
    assert message.wire_properties()["KEYS"] == "order-1"
    message.keys = iter(["a", "b"])
    assert message.wire_properties()["KEYS"] == "a b"
    assert message == Message("T", keys="a b")


@pytest.mark.parametrize("keys", [1, None])
def test_keys_that_are_no_sequence_are_explained(keys: object) -> None:
    with pytest.raises(TypeError, match="keys must be a string or a sequence of strings, not"):
        Message("T", keys=keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("keys", [[1], b"order-1", [None]])
def test_a_key_that_is_no_string_is_explained(keys: object) -> None:
    with pytest.raises(TypeError, match=r"^(a key|keys) must be a string.*, not"):
        Message("T", keys=keys)  # type: ignore[arg-type]


def test_text_as_body_is_explained() -> None:
    with pytest.raises(TypeError, match=r"text\.encode\(\)"):
        Message("T", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"not dict: JSON\(\)\.encode\(value\) converts it"):
        Message("T", {"a": 1})  # type: ignore[arg-type]


def test_bytearray_is_copied() -> None:
    body = bytearray(b"abc")
    message = Message("T", body)
    body[0] = 0
    assert message.body == b"abc"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"properties": {"TAGS": "x"}}, "belongs to RocketMQ"),
        ({"properties": {"a": ""}}, "empty"),
        ({"properties": {"": "a"}}, "empty"),
        ({"properties": {"a\x01": "b"}}, "character 1 or 2"),
        ({"tags": "a\x02b"}, "character 1 or 2"),
        ({"keys": ["a b"]}, "blanks"),
        ({"keys": [""]}, "a key is empty"),
        ({"delay_level": 1, "deliver_at_ms": 5}, "mutually exclusive"),
        ({"delay_level": -1}, "must be 1 or above"),
        ({"delay_s": float("inf")}, "must be finite"),
    ],
)
def test_what_would_be_lost_or_misread_is_refused(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Message("T", b"", **arguments)  # type: ignore[arg-type]


def test_property_that_is_no_string_is_refused() -> None:
    with pytest.raises(TypeError, match="must be a string"):
        Message("T", properties={"a": 1})  # type: ignore[dict-item]


@pytest.mark.parametrize("wrong", [{"delay_level": "3"}, {"delay_level": True}, {"delay_s": "3"}])
def test_a_delay_that_is_no_number_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="must be a"):
        Message("T", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["tomorrow", 5, date(2026, 1, 1)])
def test_a_time_of_delivery_that_is_no_datetime_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"deliver_at is .*: it must be a datetime"):
        Message("T", deliver_at=wrong)


def test_a_level_that_only_other_tables_have_is_sent_and_warned_of() -> None:
    assert Message("T", delay_level=18).delay_level == 18
    with pytest.warns(UserWarning, match="messageDelayLevel says otherwise") as told:
        assert Message("T", delay_level=99).wire_properties()["DELAY"] == "99"
    assert told[0].filename == __file__


def test_the_old_form_of_a_delay_works_and_is_warned_of() -> None:
    with pytest.warns(DeprecationWarning, match="delay_s, in seconds") as told:
        message = Message("T", delay_ms=1500)
    assert told[0].filename == __file__
    assert message == Message("T", delay_s=1.5)
    with pytest.warns(DeprecationWarning, match="delay_s"):
        assert message.delay_ms == 1500
    with pytest.warns(DeprecationWarning, match="delay_s"):
        message.delay_ms = 250
    assert message.delay_s == 0.25
    with (
        pytest.warns(DeprecationWarning, match="delay_s"),
        pytest.raises(ValueError, match="mutually exclusive"),
    ):
        Message("T", delay_s=1, delay_ms=1)


def test_messages_compare_by_value() -> None:
    assert Message("T", b"a", tags="x") == Message("T", b"a", tags="x")
    assert Message("T", b"a") != Message("T", b"b")
    assert Message("T", b"a") != "T"
    assert "1 bytes" in repr(Message("T", b"a"))


def stored(**properties: str) -> StoredMessage:
    return StoredMessage(
        "T",
        0,
        0,
        1024,
        b"body",
        store_host="127.0.0.1",
        store_port=10911,
        properties=properties,
    )


def test_message_id_is_the_producers_and_else_the_place() -> None:
    assert stored(UNIQ_KEY="U").message_id == "U"
    assert stored().message_id == "7F00000100002A9F0000000000000400"
    assert stored(UNIQ_KEY="U").offset_message_id == "7F00000100002A9F0000000000000400"


def test_tags_and_keys_come_from_the_properties() -> None:
    message = stored(TAGS="a", KEYS="k1  k2 ")
    assert message.tags == "a"
    assert message.keys == ["k1", "k2"]
    assert stored().tags is None
    assert stored().keys == []


def test_body_that_is_not_compressed_is_itself() -> None:
    assert stored().decompressed_body() == b"body"


@pytest.mark.parametrize(
    ("moment", "said"),
    [(1_795_945_779, "seconds"), (1_795_945_779_000_000, "microseconds")],
)
def test_a_time_of_delivery_in_another_unit_is_refused(moment: int, said: str) -> None:
    with pytest.raises(ValueError, match=f"deliver_at_ms: {moment} looks like {said}"):
        Message("orders", deliver_at_ms=moment)


@pytest.mark.parametrize(
    "fields", [{"tags": "\ud800"}, {"keys": ["\ud800"]}, {"properties": {"\ud800": "a"}}]
)
def test_half_a_character_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="half of a character"):
        Message("orders", **fields)


@pytest.mark.parametrize(
    ("fields", "error", "told"),
    [
        ({"topic": None}, TypeError, "a topic must be a string, not NoneType: None"),
        ({"topic": b"T"}, TypeError, "a topic must be a string, not bytes: b'T'"),
        ({"topic": ["T"]}, TypeError, "a topic must be a string, not list: ['T']"),
        ({"body": "text"}, TypeError, "a body must be bytes, not str: text.encode() converts it"),
        ({"tags": 5}, TypeError, "tags is int: it must be a string"),
        ({"tags": "\x01"}, ValueError, "tags holds the character 1 or 2, which separate"),
        ({"keys": b"k"}, TypeError, "keys must be a string or a sequence of strings, not b'k'"),
        ({"keys": None}, TypeError, "keys must be a string or a sequence of strings, not None"),
        ({"properties": 5}, TypeError, "properties is int: it must be a mapping of strings, as in"),
        ({"properties": "ab"}, TypeError, "properties is str: it must be a mapping of strings"),
        ({"properties": {5: "a"}}, TypeError, "the name of property 5 must be a string"),
        ({"properties": {"a": 5}}, TypeError, "property 'a' is int: it must be a string"),
        ({"sharding_key": 5}, TypeError, "sharding_key is int: it must be a string"),
        (
            {"sharding_key": ""},
            ValueError,
            "sharding_key is '': an empty name or value would be lost in transit",
        ),
        ({"priority": "1"}, TypeError, "priority is '1': it must be a whole number"),
        ({"priority": -1}, ValueError, "priority is -1: it must be 0 or above"),
        ({"delay_level": "1"}, TypeError, "delay_level is '1': it must be a whole number"),
        ({"delay_s": "1"}, TypeError, "delay_s is '1': it must be a number of seconds"),
        ({"deliver_at_ms": "1"}, TypeError, "deliver_at_ms is '1': it must be a whole number"),
        ({"deliver_at": 1}, TypeError, "deliver_at is 1: it must be a datetime with a time zone"),
    ],
)
def test_a_wrong_argument_is_told_by_its_name(
    fields: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error) as caught:
        Message(**{"topic": "T"} | fields)
    assert str(caught.value).startswith(told)


def test_an_old_delay_of_another_type_is_told_by_its_name() -> None:
    text: Any = "1"
    with pytest.warns(match="delay_s"), pytest.raises(TypeError, match="delay_ms is '1'"):
        Message("T", delay_ms=text)
