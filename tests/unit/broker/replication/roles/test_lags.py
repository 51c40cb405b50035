"""How old what a follower lacks is."""

import pytest

from rockhopper.broker.replication.roles.lags import Lags


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def test_the_age_is_that_of_the_first_byte_that_is_missing() -> None:
    clock = Clock()
    lags = Lags(clock)
    for now_ms, log_end in ((1000, 100), (2000, 200), (3000, 200), (4000, 300)):
        clock.now_ms = now_ms
        lags.sample(log_end)
    clock.now_ms = 10_000
    assert [lags.seconds(held) for held in (50, 100, 199, 200, 299, 300, 400)] == pytest.approx(
        [9, 8, 8, 6, 6, 0, 0]
    )


def test_a_log_that_was_cut_is_measured_anew() -> None:
    clock = Clock()
    lags = Lags(clock)
    assert lags.seconds(0) == 0
    lags.sample(500)
    clock.now_ms = 5000
    lags.sample(300)
    clock.now_ms = 6000
    assert lags.seconds(100) == 1
