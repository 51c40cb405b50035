"""Hashes, subscriptions, fastjson and settings, for any text."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from rockhopper.protocol.bodies import (
    HeartbeatData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicRouteData,
    decode_properties_text,
    encode_properties_text,
)
from rockhopper.protocol.errors import MalformedBodyError, SubscriptionError
from rockhopper.protocol.fastjson import MessageQueueKey, dumps, loads
from rockhopper.protocol.java_hash import index_key_hash, java_string_hash
from rockhopper.protocol.names import topic_error
from rockhopper.protocol.subscription import Subscription

ANY_TEXT = st.text(st.characters(), max_size=80)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WORDS = st.text("abcXYZ019_-%|.", min_size=1, max_size=8)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e9, 1e9) | TEXT
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
QUEUES = st.builds(MessageQueueKey, TEXT, TEXT, st.integers(0, 100))
KEYED = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXT, inner, max_size=3)
        | st.dictionaries(st.integers(-5, 2000), inner, max_size=3)
        | st.dictionaries(QUEUES, inner, max_size=3)
    ),
    max_leaves=12,
)


def java_hash(text: str) -> int:
    """What Java's specification says, one code unit after the other."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + high * 256 + low) % 2**32
    return value - 2**32 if value >= 2**31 else value


def with_text_keys(value: Any) -> Any:
    """The value as it reads back: keys are strings."""
    if isinstance(value, list):
        return [with_text_keys(item) for item in value]
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else dumps(key): with_text_keys(item)
            for key, item in value.items()
        }
    return value


@given(text=ANY_TEXT)
@example("a" * 300)
@example("\ud800")
def test_hash_is_javas_for_any_string(text: str) -> None:
    assert java_string_hash(text) == java_hash(text)


@given(topic=WORDS, key=ANY_TEXT | st.text("0123456789ABCDEF", min_size=20, max_size=60))
def test_index_hash_is_the_absolute_value(topic: str, key: str) -> None:
    expected = abs(java_hash(f"{topic}#{key}"))
    assert index_key_hash(topic, key) == (0 if expected == 2**31 else expected)


@given(expression=st.none() | ANY_TEXT | st.lists(WORDS).map(" || ".join), tag=st.none() | WORDS)
def test_subscription_lets_the_same_through_by_tag_and_by_hash(
    expression: str | None, tag: str | None
) -> None:
    try:
        subscription = Subscription("T", expression)
    except SubscriptionError:
        return
    if tag and subscription.matches_tag(tag):
        assert subscription.matches_hash(java_hash(tag))
    for wanted in subscription.tags:
        assert subscription.matches_tag(wanted)
        assert subscription.matches_hash(java_hash(wanted))


@given(value=JSON, pretty=st.booleans(), raw_keys=st.booleans())
def test_plain_values_survive_and_are_json(value: object, pretty: bool, raw_keys: bool) -> None:
    text = dumps(value, pretty=pretty, raw_keys=raw_keys)
    assert json.loads(text) == value
    assert loads(text) == value
    assert loads(text.encode()) == value


@given(value=KEYED, pretty=st.booleans())
def test_keys_of_any_kind_survive_as_text(value: object, pretty: bool) -> None:
    expected = with_text_keys(value)
    assert loads(dumps(value, pretty=pretty)) == expected
    assert loads(dumps(value, raw_keys=False)) == expected
    assert json.loads(dumps(value, raw_keys=False)) == expected


@given(data=st.binary(max_size=60) | st.text('{}[]:,"\\0a1$ref. ', max_size=40).map(str.encode))
def test_random_bytes_are_a_value_or_a_malformed_body(data: bytes) -> None:
    try:
        loads(data)
    except MalformedBodyError:
        return


@given(
    value=st.dictionaries(
        st.sampled_from(
            ["clientID", "consumerDataSet", "producerDataSet", "brokerDatas", "queueDatas"]
        ),
        JSON | st.lists(st.fixed_dictionaries({}, optional={"groupName": JSON, "perm": JSON})),
    )
)
def test_any_json_is_a_body_or_a_malformed_one(value: object) -> None:
    for cls in (HeartbeatData, TopicRouteData, RegisterBrokerBody):
        try:
            body = cls.from_json(loads(json.dumps(value)))
        except MalformedBodyError:
            continue
        assert cls.decode(body.encode()) == body


@given(
    topics=st.dictionaries(
        WORDS,
        st.tuples(st.integers(0, 99), st.integers(0, 7), st.dictionaries(WORDS, TEXT, max_size=2)),
        max_size=4,
    ),
    servers=st.lists(TEXT, max_size=3),
)
def test_registration_survives_both_forms(
    topics: dict[str, tuple[int, int, dict[str, str]]], servers: list[str]
) -> None:
    table = TopicConfigTable(
        {
            name: TopicConfig(name, queues, queues, perm, attributes=attributes)
            for name, (queues, perm, attributes) in topics.items()
        }
    )
    body = RegisterBrokerBody(table, servers)
    assert RegisterBrokerBody.decode(body.encode()) == body
    assert RegisterBrokerBody.decode_registration(body.encode_compressed(), compressed=True) == body


@given(data=st.binary(max_size=80))
def test_random_bytes_are_a_registration_or_a_malformed_body(data: bytes) -> None:
    for compressed in (False, True):
        try:
            RegisterBrokerBody.decode_registration(data, compressed=compressed)
        except MalformedBodyError:
            continue


@given(settings=st.dictionaries(WORDS.filter(lambda w: w[0] not in "#!"), WORDS))
def test_settings_survive(settings: dict[str, str]) -> None:
    assert decode_properties_text(encode_properties_text(settings)) == settings


@given(data=st.binary(max_size=80) | st.text("ab=:\\u0 \n\r\t#!é").map(str.encode))
def test_any_bytes_are_settings_or_a_malformed_body(data: bytes) -> None:
    try:
        decode_properties_text(data)
    except MalformedBodyError:
        return


@given(name=ANY_TEXT)
def test_name_that_passes_stays_in_its_directory(name: str) -> None:
    if topic_error(name) is None:
        assert 0 < len(name) <= 255
        assert not set(name) & set("/\\.\0:\n ")
