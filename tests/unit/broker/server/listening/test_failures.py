"""A failure with a stranger is counted, and logged as a line about a peer, which the log bounds."""

from structlog.testing import capture_logs

from rockhopper.broker.server.listening.failures import Failures


def test_a_failure_is_counted_and_logged_with_its_peer() -> None:
    failures = Failures("it failed")
    with capture_logs() as lines:
        failures.count_one("peer 0", "a reason")
        failures.count_one("peer 1", "another")
    assert [(line["peer"], line["reason"]) for line in lines] == [
        ("peer 0", "a reason"),
        ("peer 1", "another"),
    ]
    assert failures.count == 2
