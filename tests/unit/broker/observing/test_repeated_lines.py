"""RepeatedLines: strangers do not fill the disk with log."""

from collections.abc import Callable, Iterator

import pytest
import structlog
from structlog.testing import LogCapture

from rockhopper.broker.observing.repeated_lines import (
    EVENTS_MAX,
    LINES_MAX,
    PEER_LINES_MAX,
    WINDOW_S,
    RepeatedLines,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, function: Callable[[], None]) -> None:
        self.timers.append((self.now_s + delay_s, function))

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        due = [timer for timer in self.timers if timer[0] <= self.now_s]
        self.timers = [timer for timer in self.timers if timer[0] > self.now_s]
        for _, function in due:
            function()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def written(clock: Clock) -> Iterator[LogCapture]:
    before = structlog.get_config()
    capture = LogCapture()
    structlog.configure(
        processors=[RepeatedLines(lambda: clock.now_s, clock.call_later), capture],
        cache_logger_on_first_use=False,
    )
    yield capture
    structlog.configure(**before)


def test_of_many_lines_about_peers_a_few_are_written_and_then_their_number(
    clock: Clock, written: LogCapture
) -> None:
    log = structlog.get_logger("broker.test")
    for n in range(500):
        log.warning("connection closed", peer=f"10.0.0.{n}:1", reason="no frame")
    assert len(written.entries) == PEER_LINES_MAX
    clock.advance(WINDOW_S + 1)
    assert len(written.entries) == PEER_LINES_MAX + 1
    summary = written.entries[-1]
    assert summary["repeated"] == 500 - PEER_LINES_MAX
    assert (summary["peer"], summary["log_level"]) == ("10.0.0.499:1", "warning")


def test_a_quiet_minute_later_lines_are_written_again(clock: Clock, written: LogCapture) -> None:
    log = structlog.get_logger("broker.test")
    for _ in range(PEER_LINES_MAX + 1):
        log.warning("connection closed", peer="10.0.0.1:1")
    clock.advance(WINDOW_S + 1)
    written.entries.clear()
    log.warning("connection closed", peer="10.0.0.1:1")
    assert [entry.get("repeated") for entry in written.entries] == [None]


def test_other_events_are_not_held_back_by_one_that_repeats(written: LogCapture) -> None:
    log = structlog.get_logger("broker.test")
    for _ in range(PEER_LINES_MAX + 1):
        log.warning("connection closed", peer="10.0.0.1:1")
    log.error("the disk failed")
    assert written.entries[-1]["event"] == "the disk failed"


def test_events_without_a_peer_have_a_larger_number(clock: Clock, written: LogCapture) -> None:
    log = structlog.get_logger("broker.test")
    for n in range(LINES_MAX + 7):
        log.info("topic created", topic=f"t{n}")
    clock.advance(WINDOW_S + 1)
    assert len(written.entries) == LINES_MAX + 1
    assert written.entries[-1]["repeated"] == 7


def test_a_summary_has_no_traceback(clock: Clock, written: LogCapture) -> None:
    log = structlog.get_logger("broker.test")
    for _ in range(PEER_LINES_MAX + 1):
        log.error("request failed", peer="10.0.0.1:1", exc_info=ValueError("x"))
    clock.advance(WINDOW_S + 1)
    assert "exc_info" in written.entries[0]
    assert "exc_info" not in written.entries[-1]


def test_events_that_are_made_at_run_time_do_not_fill_memory(
    clock: Clock, written: LogCapture
) -> None:
    limit = RepeatedLines(lambda: clock.now_s, clock.call_later)
    structlog.configure(processors=[limit, written])
    log = structlog.get_logger("broker.test")
    for n in range(2 * EVENTS_MAX):
        log.info(f"event {n}")
    assert len(limit) <= EVENTS_MAX + 1
