"""Light queues: which names can be one, and which a stored message is in."""

import pytest

from rockhopper.protocol.store.light_queues import (
    dispatches,
    is_light,
    light_name_of,
    light_places,
    light_queue_error,
)

NAMES = "INNER_MULTI_DISPATCH"
OFFSETS = "INNER_MULTI_QUEUE_OFFSET"


def test_a_light_queue_is_known_by_its_prefix() -> None:
    assert is_light("%LMQ%a")
    assert not is_light("LMQ%a")


@pytest.mark.parametrize("name", ["%LMQ%a", "%LMQ%a b", "%LMQ%sensor:7+x", "%LMQ%" + "é" * 125])
def test_more_characters_are_fine_than_in_a_topic(name: str) -> None:
    assert light_queue_error(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("orders", "does not start with"),
        ("%LMQ%", "does not start with"),
        ("%LMQ%../x", "contains one of"),
        ("%LMQ%a\\b", "contains one of"),
        ("%LMQ%a@b", "contains one of"),
        ("%LMQ%a\n", "contains one of"),
        ("%LMQ%" + "é" * 126, "longer than 255 bytes"),
    ],
)
def test_what_cannot_be_a_directory_is_refused(name: str, why: str) -> None:
    assert why in (light_queue_error(name) or "")


def test_a_part_of_a_lite_topic_has_a_queue_of_its_own() -> None:
    assert light_name_of("T", "p") == "%LMQ%$T$p"
    assert light_queue_error(light_name_of("T", "p")) is None


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "%RETRY%g", "rmq_sys_wheel_timer"])
def test_what_waits_or_works_is_in_no_light_queue(topic: str) -> None:
    assert not dispatches(topic)
    assert light_places(topic, {NAMES: "%LMQ%a", OFFSETS: "1"}) == []


def test_both_properties_tell_the_places() -> None:
    properties = {NAMES: "%LMQ%a,%LMQ%b", OFFSETS: "3,0"}
    assert light_places("T", properties) == [("%LMQ%a", 3), ("%LMQ%b", 0)]
    assert light_places("T", {NAMES: "%LMQ%a"}) == []


@pytest.mark.parametrize(
    ("names", "offsets"),
    [("%LMQ%a", "1,2"), ("%LMQ%a,%LMQ%b", "1"), ("%LMQ%a", "-1"), ("%LMQ%a", "1" * 19), ("a", "1")],
)
def test_properties_that_do_not_fit_name_no_place(names: str, offsets: str) -> None:
    assert light_places("T", {NAMES: names, OFFSETS: offsets}) == []


def test_a_queue_that_is_named_twice_has_the_message_once() -> None:
    properties = {NAMES: "%LMQ%a,%LMQ%a", OFFSETS: "3,4"}
    assert light_places("T", properties) == [("%LMQ%a", 3)]
