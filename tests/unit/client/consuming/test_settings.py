"""A consumer's settings: RocketMQ's names for them, and each that makes no sense refused."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rockhopper.client.consuming.settings import ConsumerSettings


@pytest.mark.parametrize(
    ("start", "name"),
    [
        ("earliest", "CONSUME_FROM_FIRST_OFFSET"),
        ("latest", "CONSUME_FROM_LAST_OFFSET"),
        (0, "CONSUME_FROM_TIMESTAMP"),
        (datetime(2026, 1, 1, tzinfo=UTC), "CONSUME_FROM_TIMESTAMP"),
    ],
)
def test_where_to_start_has_rocketmqs_name(start: Any, name: str) -> None:
    assert ConsumerSettings("g", {}, start_from=start).consume_from_where == name


@pytest.mark.parametrize("start", ["first", -1, True, 1.5, None])
def test_a_start_that_is_none_is_refused(start: Any) -> None:
    with pytest.raises(ValueError, match='use "earliest", "latest", a datetime'):
        ConsumerSettings("g", {}, start_from=start)


@pytest.mark.parametrize(
    ("broadcast", "model", "retry"),
    [(False, "CLUSTERING", "%RETRY%g"), (True, "BROADCASTING", None)],
)
def test_only_a_cluster_asks_for_messages_again(
    broadcast: bool, model: str, retry: str | None
) -> None:
    settings = ConsumerSettings("g", {}, broadcast=broadcast)
    assert (settings.model, settings.retry_topic) == (model, retry)


@pytest.mark.parametrize(
    ("name", "least", "below"),
    [
        ("batch_size", 1, 0),
        ("queue_count_max", 1, 0),
        ("queue_bytes_max", 1, 0),
        ("consumer_count_max", 1, 0),
        ("commit_interval_s", 0.001, 0),
        ("request_timeout_s", 0.001, 0),
        ("poll_s", 0, -0.1),
        ("suspend_s", 0, -0.1),
        ("close_timeout_s", 0, -0.1),
        ("hand_over_s", 0, -0.1),
    ],
)
def test_a_number_below_its_least_is_refused_by_name(name: str, least: Any, below: Any) -> None:
    ConsumerSettings("g", {}, **{name: least})
    with pytest.raises(ValueError, match=f"{name} is {below}"):
        ConsumerSettings("g", {}, **{name: below})


@pytest.mark.parametrize("group", ["", "no group!", "x" * 300])
def test_a_name_that_is_no_group_is_refused(group: str) -> None:
    with pytest.raises(ValueError, match="group"):
        ConsumerSettings(group, {})
