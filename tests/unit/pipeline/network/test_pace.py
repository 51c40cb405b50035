"""When batches are held back, and for how long at most."""

from rockhopper.pipeline.network.pace import Pace


def test_the_first_batch_does_not_wait_and_the_next_waits_for_enough() -> None:
    pace = Pace(100, 60_000, lambda: 5.0)
    assert pace.is_too_soon(0)
    assert not pace.is_too_soon(1)
    assert pace.is_too_soon(99)
    assert not pace.is_too_soon(100)
    assert pace.is_too_soon(1)


def test_the_delay_counts_from_the_batch_before() -> None:
    now_s = 0.0
    pace = Pace(100, 60_000, lambda: now_s)
    assert not pace.is_too_soon(1)
    now_s = 59.9
    assert pace.is_too_soon(1)
    now_s = 60.0
    assert not pace.is_too_soon(1)
    now_s = 61.0
    assert pace.is_too_soon(1)
    now_s = 500.0
    assert pace.is_too_soon(0)
    assert not pace.is_too_soon(1)


def test_without_a_least_number_nothing_waits() -> None:
    pace = Pace(None, 60_000, lambda: 0.0)
    assert not any(pace.is_too_soon(waiting) for waiting in (1, 0, 1, 1))
