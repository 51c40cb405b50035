"""Allowances: so many at once, and so many a second."""

import pytest

from rockhopper.protocol.http2.errors import ErrorCode, Http2Error
from rockhopper.protocol.http2.floods import Allowance


def test_it_is_spent_and_fills_up_again() -> None:
    allowance = Allowance("resets", most=3, per_second=2)
    for _ in range(3):
        allowance.spend(10.0)
    allowance.spend(11.0)
    allowance.spend(11.0)
    with pytest.raises(Http2Error, match="too many resets") as failure:
        allowance.spend(11.0)
    assert failure.value.code is ErrorCode.ENHANCE_YOUR_CALM


def test_what_is_of_use_earns_more_but_no_more_than_at_first() -> None:
    allowance = Allowance("pings", most=2, per_second=0)
    allowance.spend(1.0)
    allowance.earn(10)
    allowance.spend(1.0)
    allowance.spend(1.0)
    with pytest.raises(Http2Error):
        allowance.spend(1.0)


def test_it_never_holds_more_than_its_most_and_no_clock_takes_from_it() -> None:
    allowance = Allowance("resets", most=2, per_second=100)
    allowance.spend(10.0)
    allowance.spend(10.0)
    for _ in range(2):
        allowance.spend(1000.0)
    with pytest.raises(Http2Error):
        allowance.spend(5.0)
