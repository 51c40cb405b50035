"""Times that no calendar has become the nearest that every reader can show."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from rockhopper.protocol.calendar_times import clamp_to_calendar


@pytest.mark.parametrize("time_ms", [0, -1, 1_795_899_578_414, 951_782_400_000])
def test_a_time_of_a_calendar_stays(time_ms: int) -> None:
    assert clamp_to_calendar(time_ms) == time_ms


@pytest.mark.parametrize("time_ms", [1_795_899_578_414_000, 2**63 - 1, -(2**63)])
def test_another_can_be_shown_in_every_time_zone(time_ms: int) -> None:
    moment = datetime.fromtimestamp(clamp_to_calendar(time_ms) / 1000, UTC)
    for hours in (-14, 14):
        moment.astimezone(timezone(timedelta(hours=hours)))
    assert clamp_to_calendar(clamp_to_calendar(time_ms)) == clamp_to_calendar(time_ms)
