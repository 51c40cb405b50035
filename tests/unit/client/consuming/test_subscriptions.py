"""Topics as applications give them: one, several, or with filters; anything else is named."""

import re
from typing import Any

import pytest

from rockhopper.client.consuming.subscriptions import make_subscriptions
from rockhopper.client.filters import Sql
from rockhopper.protocol.errors import SubscriptionError


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ("a", {"a": "*"}),
        (["a", "b"], {"a": "*", "b": "*"}),
        (("a", "a"), {"a": "*"}),
        (iter(["a"]), {"a": "*"}),
        ({"a": "x || y", "b": None, "c": Sql("p > 1")}, {"a": "x || y", "b": "*", "c": "p > 1"}),
    ],
)
def test_what_is_wanted_of_each_topic(topics: Any, expected: dict[str, str]) -> None:
    found, patterns = make_subscriptions(topics, 5)
    assert patterns == []
    assert {topic: each.expression for topic, each in found.items()} == expected
    assert {each.topic for each in found.values()} == set(expected)
    assert {each.version for each in found.values()} == {5}


def test_patterns_come_apart() -> None:
    named, patterns = make_subscriptions({"a": "*", "b.*": "x", re.compile("c|d"): None}, 5)
    assert list(named) == ["a"]
    assert [(each.expression.pattern, each.wanted) for each in patterns] == [
        ("b.*", "x"),
        ("c|d", None),
    ]


@pytest.mark.parametrize(
    ("topics", "kind", "says"),
    [
        ([], ValueError, "at least one topic"),
        ({}, ValueError, "at least one topic"),
        (7, TypeError, "topics are strings"),
        ([b"a"], TypeError, "topics are strings"),
        ("no topic!", ValueError, "no topic!"),
        ("", ValueError, "topic"),
        ({"a.*": "||"}, SubscriptionError, "||"),
        ({"a": 7}, TypeError, "the filter of topic 'a' is 7: use tags"),
        ({"a": ["x"]}, TypeError, "Sql('price > 5')"),
    ],
)
def test_a_mistake_is_named(topics: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=re.escape(says)):
        make_subscriptions(topics, 0)
