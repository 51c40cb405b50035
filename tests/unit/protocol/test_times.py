"""What people type as a time: days are days, and a number of another unit is refused."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from rockhopper.protocol.times import parse_ms, parse_time_ms

NOON_MS = 1_796_040_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T12:00:00Z", NOON_MS),
        ("2026-11-30T13:00+01:00", NOON_MS),
        ("2026-11-30T12:00", NOON_MS),
        (" 1796040000000 ", NOON_MS),
        ("20261130", NOON_MS - 12 * 3_600_000),
        ("2026-11-30", NOON_MS - 12 * 3_600_000),
        ("20261130T120000", NOON_MS),
        ("0", 0),
        ("1000", 1000),
    ],
)
def test_times_and_days_are_understood(text: str, expected: int) -> None:
    assert parse_time_ms(text, UTC) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("20261331", "is not a time"),
        ("12345678", "is not a time"),
        ("1796040000", "seconds"),
        ("20261130120000", "a date and time"),
        ("1796040000000000", "microseconds"),
        ("179604000", "something else"),
        ("yesterday", "is not a time"),
        ("", "is not a time"),
        ("99999-01-01", "is not a time"),
    ],
)
def test_what_could_mean_something_else_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_time_ms(text)


def test_a_time_without_a_zone_is_this_hosts() -> None:
    assert parse_time_ms("2026-11-30T12:00") == datetime(2026, 11, 30, 12).timestamp() * 1000
    east = timezone(timedelta(hours=9))
    assert parse_time_ms("2026-11-30T21:00", east) == NOON_MS


def test_a_day_is_no_number_of_milliseconds() -> None:
    with pytest.raises(ValueError, match="a day"):
        parse_ms("20261130")
    with pytest.raises(ValueError, match="is not a number"):
        parse_ms("-5")
