"""Extra info: RocketMQ's texts, there and back, and the topics that stand for another."""

import pytest

from rockhopper.broker.features.pop.extra_info import (
    ExtraInfo,
    format_extra_info,
    origin_topic,
    parse_extra_info,
    real_topic,
)
from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.names import pop_retry_topic


def test_what_is_written_is_read() -> None:
    text = format_extra_info(5, 1_700_000_000_000, 60_000, 3, "1", "broker-a", 2, 7)
    assert text == "5 1700000000000 60000 3 1 broker-a 2 7"
    assert parse_extra_info(text) == ExtraInfo(5, 1_700_000_000_000, 60_000, 3, "1")


def test_old_clients_send_fewer_parts() -> None:
    assert parse_extra_info("5 6 7 8") == ExtraInfo(5, 6, 7, 8, "0")


@pytest.mark.parametrize("text", ["", "5 6 7", "5 6 x 8 0", "5 6  8 0", "a b c d e"])
def test_nonsense_names_the_field(text: str) -> None:
    with pytest.raises(FieldError, match="extraInfo"):
        parse_extra_info(text)


def test_a_long_nonsense_is_not_repeated_at_length() -> None:
    with pytest.raises(FieldError) as error:
        parse_extra_info("x" * 10_000)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize(("revive_queue_id", "is_orderly"), [(999, True), (0, False), (7, False)])
def test_an_orderly_pop_is_known_by_its_revive_queue(
    revive_queue_id: int, is_orderly: bool
) -> None:
    assert parse_extra_info(f"5 6 7 {revive_queue_id} 0").is_orderly is is_orderly


@pytest.mark.parametrize(
    ("topic", "flag", "real"),
    [
        ("orders", "0", "orders"),
        ("orders", "1", "%RETRY%g_orders"),
        ("orders", "2", "%RETRY%g+orders"),
        ("orders", "9", "orders"),
        ("%RETRY%g", "1", "%RETRY%g"),
        ("%RETRY%g_orders", "1", "%RETRY%g_orders"),
    ],
)
def test_the_flag_says_which_topic_a_message_was_popped_from(
    topic: str, flag: str, real: str
) -> None:
    assert real_topic("g", topic, flag) == real


@pytest.mark.parametrize(
    ("topic", "origin"),
    [
        (pop_retry_topic("g", "orders"), "orders"),
        ("%RETRY%g_orders", "orders"),
        ("%RETRY%g", "%RETRY%g"),
        ("%RETRY%other_orders", "%RETRY%other_orders"),
        ("orders", "orders"),
    ],
)
def test_a_retry_topic_of_the_group_belongs_to_another(topic: str, origin: str) -> None:
    assert origin_topic("g", topic) == origin
