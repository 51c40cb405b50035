"""Positions, times and queues on the command line."""

from datetime import UTC, datetime, timedelta

import click
import pytest

from rockhopper.client.commands.parameters import (
    DurationType,
    PositionType,
    QueueType,
    TimeType,
    parse_time,
    select_queues,
)
from rockhopper.client.queues import MessageQueue

NOW = datetime(2024, 5, 1, 12, 0, 0)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("-30m", datetime(2024, 5, 1, 11, 30)),
        ("-1.5h", datetime(2024, 5, 1, 10, 30)),
        ("-2d", datetime(2024, 4, 29, 12, 0)),
        ("-250ms", NOW - timedelta(milliseconds=250)),
        ("9:15", datetime(2024, 5, 1, 9, 15)),
        ("23:59:01", datetime(2024, 5, 1, 23, 59, 1)),
        ("2024-04-30", datetime(2024, 4, 30)),
        ("20240430", datetime(2024, 4, 30)),
        ("2024-04-30 08:00", datetime(2024, 4, 30, 8)),
        ("2024-04-30T08:00:00.250", datetime(2024, 4, 30, 8, 0, 0, 250_000)),
        ("2024-04-30T08:00:00+00:00", datetime(2024, 4, 30, 8, tzinfo=UTC)),
        ("@1700000000500", datetime.fromtimestamp(1_700_000_000.5)),
    ],
)
def test_times_are_written_in_many_ways(text: str, time: datetime) -> None:
    assert parse_time(text, NOW) == time


@pytest.mark.parametrize("text", ["yesterday", "-3", "25:00", "@x", "2024-13-01", "-m", ""])
def test_what_is_no_time_is_none(text: str) -> None:
    assert parse_time(text, NOW) is None


def test_figures_are_an_offset_and_words_are_words() -> None:
    convert = PositionType().convert
    assert convert("42", None, None) == 42
    assert convert("earliest", None, None) == "earliest"
    assert convert("latest", None, None) == "latest"
    with pytest.raises(click.BadParameter, match="'Latest' is not a position"):
        convert("Latest", None, None)


def test_a_queue_is_an_id_with_or_without_a_broker() -> None:
    convert = QueueType().convert
    assert convert("3", None, None) == (None, 3)
    assert convert("broker-a:3", None, None) == ("broker-a", 3)
    with pytest.raises(click.BadParameter, match="BROKER:ID"):
        convert("broker-a", None, None)


QUEUES = [MessageQueue("t", name, number) for name in ("a", "b") for number in range(2)]


def test_queues_are_chosen_by_id_on_every_broker_or_on_one() -> None:
    assert select_queues(QUEUES, [], "t") == QUEUES
    assert select_queues(QUEUES, [(None, 1)], "t") == [QUEUES[1], QUEUES[3]]
    assert select_queues(QUEUES, [("b", 1), (None, 1)], "t") == [QUEUES[3], QUEUES[1]]


def test_a_queue_that_is_not_there_is_an_error_that_lists_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"no queue b:7; it has: a:0, a:1, b:0, b:1"):
        select_queues(QUEUES, [("b", 7)], "t")


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("30s", 30_000), ("1h30m", 5_400_000), ("1.5d", 129_600_000)]
)
def test_a_duration_is_in_milliseconds(text: str, ms: int) -> None:
    assert DurationType().convert(text, None, None) == ms


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "1h 30m", "soon"])
def test_what_is_no_duration_and_no_time_is_refused(text: str) -> None:
    for kind in (DurationType(), TimeType()):
        with pytest.raises(click.BadParameter, match="write "):
            kind.convert(text if text != "-5m" else "x", None, None)


def test_a_time_is_in_milliseconds() -> None:
    assert TimeType().convert("@1700000000500", None, None) == 1_700_000_000_500


def test_eight_digits_are_a_day_or_an_offset_and_never_milliseconds() -> None:
    with pytest.raises(click.BadParameter, match=r"2026-11-29 for the day, or offset:20261129"):
        PositionType().convert("20261129", None, None)
    assert PositionType().convert("offset:20261129", None, None) == 20_261_129
    assert PositionType().convert("99999999", None, None) == 99_999_999
    with pytest.raises(click.BadParameter):
        PositionType().convert("@20261129", None, None)
