"""Names: nothing that could leave its directory, nothing of the system's by accident."""

import pytest

from rockhopper.protocol import names
from rockhopper.protocol.names import (
    dlq_topic,
    group_error,
    group_of_retry_topic,
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
    reply_topic,
    retry_topic,
    topic_error,
)

BAD_CHARACTERS = ["../../etc/x", "a/b", ".", "..", "a\0b", "Тема", "a b", "a\n", "a.b", "a\\b", "ä"]


@pytest.mark.parametrize("name", ["T", "TopicTest", "a_b-c%d|e", "0", "x" * 127, "%RETRY%g"])
def test_good_topics_pass(name: str) -> None:
    assert topic_error(name) is None


@pytest.mark.parametrize("name", BAD_CHARACTERS)
def test_other_characters_are_refused(name: str) -> None:
    assert "characters other than" in str(topic_error(name))
    assert "characters other than" in str(group_error(name))


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
def test_blank_names_are_refused(name: str) -> None:
    assert "is blank" in str(topic_error(name))
    assert "is blank" in str(group_error(name))


def test_topics_have_127_characters_and_derived_ones_255() -> None:
    assert "has 128 characters; 127 are allowed" in str(topic_error("x" * 128))
    assert topic_error("%RETRY%" + "x" * 248) is None
    assert "has 256 characters; 255 are allowed" in str(topic_error("%DLQ%" + "x" * 251))
    assert len(str(topic_error("x" * 10_000))) < 200


def test_groups_have_120_characters() -> None:
    assert group_error("x" * 120) is None
    assert "has 121 characters; 120 are allowed" in str(group_error("x" * 121))


def test_derived_topics() -> None:
    assert retry_topic("g") == "%RETRY%g"
    assert dlq_topic("g") == "%DLQ%g"
    assert reply_topic("C") == "C_REPLY_TOPIC"
    assert is_retry_topic("%RETRY%g")
    assert not is_retry_topic("%DLQ%g")
    assert is_dlq_topic("%DLQ%g")


def test_system_names() -> None:
    assert is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert is_system_topic("rmq_sys_wheel_timer")
    assert not is_system_topic("orders")
    assert is_system_group("TOOLS_CONSUMER")
    assert is_system_group("CID_RMQ_SYS_x")
    assert not is_system_group("billing")
    assert "TBW102" not in names.NOT_SENDABLE_TOPICS
    others = {names.TIMER_TOPIC, names.STATE_TOPIC}
    assert names.NOT_SENDABLE_TOPICS.issubset(names.SYSTEM_TOPICS | others)
    assert "CLIENT_INNER_PRODUCER" in names.PREDEFINED_GROUPS


def test_a_retry_topic_of_one_topic_names_its_group() -> None:
    assert topic_error("%RETRY%group_a+topic_b") is None
    assert group_of_retry_topic("%RETRY%group_a+topic_b") == "group_a"
    assert group_of_retry_topic("%RETRY%group_a") == "group_a"
    for name in ("%RETRY%g+", "%RETRY%g+a+b", "g+t"):
        assert topic_error(name) is not None


@pytest.mark.parametrize("tag", [" new", "new ", "\tnew"])
def test_a_tag_that_begins_or_ends_with_a_blank_is_refused(tag: str) -> None:
    assert "use 'new'" in (names.tag_error(tag) or "")
