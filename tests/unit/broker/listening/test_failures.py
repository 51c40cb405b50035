"""A stranger can have lines written at most once a minute."""

from structlog.testing import capture_logs

from rockhopper.broker.listening.failures import Failures


def test_of_many_in_a_minute_the_first_is_logged_and_the_others_are_counted() -> None:
    now_s = [0.0]
    failures = Failures("it failed", lambda: now_s[0])
    with capture_logs() as lines:
        for number in range(5):
            failures.count_one(f"peer {number}", "a reason")
        now_s[0] = 60.0
        failures.count_one("peer 5", "another")
    assert [(line["count"], line["last_peer"]) for line in lines] == [(1, "peer 0"), (5, "peer 5")]
    assert failures.count == 6
