"""A handshake that fails is logged once a state, and shown while it goes on."""

import pytest
import structlog

from rockhopper.broker.replication.shipping.refusals import FORGET_MS, REFUSALS_MAX, Refusals


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def refusals(clock: Clock) -> Refusals:
    return Refusals(clock)


def test_a_reason_is_logged_once_while_it_goes_on(refusals: Refusals, clock: Clock) -> None:
    with structlog.testing.capture_logs() as logs:
        for clock.now_ms in range(0, 2 * FORGET_MS, 200):
            refusals.note("a peer was refused", "10.0.0.3", "another secret")
            refusals.note("a peer was refused", "10.0.0.3", "another cluster")
    assert [each["reason"] for each in logs] == ["another secret", "another cluster"]
    assert refusals.sentences[0] == "a peer was refused: 10.0.0.3: another secret"


def test_it_is_over_when_the_peer_is_taken_and_news_when_it_comes_back(refusals: Refusals) -> None:
    refusals.note("the master cannot be reached", "replica 1", "another secret")
    refusals.note("a peer was refused", "10.0.0.3", "another secret")
    refusals.clear("replica 1")
    assert refusals.sentences == ["a peer was refused: 10.0.0.3: another secret"]
    with structlog.testing.capture_logs() as logs:
        refusals.note("the master cannot be reached", "replica 1", "another secret")
    assert len(logs) == 1


def test_it_is_over_when_it_was_not_seen_for_a_minute(refusals: Refusals, clock: Clock) -> None:
    refusals.note("a peer was refused", "10.0.0.3", "another secret")
    clock.now_ms = FORGET_MS + 1
    assert refusals.sentences == []


def test_strangers_do_not_fill_it(refusals: Refusals) -> None:
    for number in range(2 * REFUSALS_MAX):
        refusals.note("a peer was refused", f"10.0.0.{number}", "it did not greet")
    assert len(refusals.sentences) == REFUSALS_MAX
