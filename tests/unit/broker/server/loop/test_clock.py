"""BrokerClock: one time that goes back never, whatever is done to the wall clock."""

import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.server.loop.clock import BrokerClock, wall_clock_ms
from tests.support.features import NAMES, pop_of, sinks_of, transactions_of
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker

HOUR_MS = 3_600_000


@pytest.fixture
def wall() -> Clock:
    return Clock(1_000_000)


@pytest.fixture
def clock(wall: Clock) -> BrokerClock:
    return BrokerClock(wall, wall.monotonic_ns)


def test_it_shows_the_wall_clock_while_nobody_sets_that(wall: Clock, clock: BrokerClock) -> None:
    with capture_logs() as lines:
        for _ in range(3):
            wall.advance(HOUR_MS)
            assert clock.steady_ms() == wall.now_ms
    assert lines == []


def test_it_shows_the_wall_clock_whenever_the_monotonic_one_began(wall: Clock) -> None:
    clock = BrokerClock(wall, lambda: HOUR_MS * 1_000_000 + wall.monotonic_ns())
    assert clock.steady_ms() == wall.now_ms
    wall.advance(1)
    assert clock.steady_ms() == wall.now_ms


def test_what_has_passed_does_not_depend_on_the_wall_clock(wall: Clock, clock: BrokerClock) -> None:
    before_ms = clock.passed_ms()
    wall.set_by(HOUR_MS)
    wall.advance(7)
    assert clock.passed_ms() == before_ms + 7


def test_the_wall_clock_counts_milliseconds() -> None:
    before_ns = time.time_ns()
    wall_ms = wall_clock_ms()
    assert before_ns // 1_000_000 <= wall_ms <= time.time_ns() // 1_000_000


def test_it_goes_on_when_the_wall_clock_is_set_back(wall: Clock, clock: BrokerClock) -> None:
    with capture_logs() as lines:
        wall.set_by(-HOUR_MS)
        assert clock.steady_ms() == 1_000_000
        wall.advance(5000)
        assert clock.steady_ms() == 1_005_000
        assert clock.wall_ms() == 1_005_000 - HOUR_MS
    (line,) = lines
    assert "set back" in line["event"]
    assert line["by_s"] == 3600


def test_it_follows_when_the_wall_clock_is_set_forward(wall: Clock, clock: BrokerClock) -> None:
    with capture_logs() as lines:
        wall.set_by(HOUR_MS)
        assert clock.steady_ms() == 1_000_000 + HOUR_MS
        wall.advance(5000)
        assert clock.steady_ms() == 1_005_000 + HOUR_MS
    (line,) = lines
    assert "set forward" in line["event"]
    assert line["by_s"] == 3600


def test_a_clock_that_is_put_right_again_is_one_time_with_it(
    wall: Clock, clock: BrokerClock
) -> None:
    with capture_logs() as lines:
        wall.set_by(-HOUR_MS)
        clock.steady_ms()
        wall.advance(1000)
        wall.set_by(HOUR_MS)
        assert clock.steady_ms() == wall.now_ms == 1_001_000
    assert len(lines) == 2


def test_small_steps_are_taken_without_a_word(wall: Clock, clock: BrokerClock) -> None:
    with capture_logs() as lines:
        for step_ms in (3, -7, 999, -998):
            before_ms = clock.steady_ms()
            wall.set_by(step_ms)
            assert clock.steady_ms() >= before_ms
    assert lines == []


def test_it_begins_no_earlier_than_what_was_written(wall: Clock, clock: BrokerClock) -> None:
    with capture_logs() as lines:
        clock.not_before(999_999)
        assert clock.steady_ms() == 1_000_000
        clock.not_before(1_000_001)
        assert clock.steady_ms() == 1_000_001
        clock.not_before(1_000_000 + HOUR_MS)
        wall.advance(1)
        assert clock.steady_ms() == 1_000_001 + HOUR_MS
    (line,) = lines
    assert line["ahead_s"] == 3600


def test_what_lasts_is_counted_by_it_and_points_in_time_by_the_wall_clock(
    tmp_path: Path, wall: Clock
) -> None:
    broker = ServedBroker(tmp_path, wall, {})
    lasting: list[Any] = [
        broker.store.staging,
        broker.kernel.producers,
        broker.kernel.scheduled.delayed,
        broker.kernel.scheduled.timers.rolling,
    ]
    points: list[Any] = [
        broker.kernel.scheduled.timers,
        broker.kernel.scheduled.timers.delivery,
        broker.kernel.sender,
    ]
    if "pop" in NAMES:
        lasting += pop_of(broker), pop_of(broker).reviving
    if "transactions" in NAMES:
        transactions = transactions_of(broker)
        lasting += transactions, transactions.check_back
        points.append(transactions.ends)
    if "sinks" in NAMES:
        lasting.append(sinks_of(broker))
    for part in lasting:
        assert part._now_ms == broker.clock.steady_ms, part
    for part in (broker.kernel.locks, broker.kernel.consumers):
        assert part._now_ms == broker.clock.passed_ms, part
    for part in points:
        assert part._now_ms is wall, part
    broker.store.abandon()


def test_members_stay_when_the_clock_is_set_forward(tmp_path: Path, wall: Clock) -> None:
    broker, peer = ServedBroker(tmp_path, wall, {}), Peer()
    broker.kernel.consumers.register(
        "readers", Client(peer.connection, "c1", 0, 479), ConsumeSettings(), {}
    )
    wall.set_by(HOUR_MS)
    broker.kernel.consumers.expire()
    assert broker.kernel.consumers.get("readers") is not None
    wall.advance(HOUR_MS)
    broker.kernel.consumers.expire()
    assert broker.kernel.consumers.get("readers") is None
    broker.store.abandon()
