"""An outage is said once, then now and then, however many notice it."""

import logging

import pytest

from rockhopper.client.network.outages import Outages

log = logging.getLogger(__name__)


def test_an_address_is_warned_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 100.0
    outages = Outages(lambda: now_s)
    caplog.set_level(logging.WARNING)
    for now_s in (100.0, 101.0, 159.0, 160.0, 161.0):
        outages.warn(log, "a:1", "%s s", now_s)
    outages.warn(log, "b:1", "b")
    assert [each.getMessage() for each in caplog.records] == ["100.0 s", "160.0 s", "b"]
    assert {each.filename for each in caplog.records} == {"test_outages.py"}


def test_what_goes_away_again_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages(lambda: 100.0)
    caplog.set_level(logging.WARNING)
    outages.warn(log, "a:1", "away")
    outages.over()
    outages.warn(log, "a:1", "away")
    assert len(caplog.records) == 2
