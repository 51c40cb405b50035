"""PutTimes: RocketMQ's ranges, and percentiles, of two periods."""

import pytest

from rockhopper.broker.store.put import PutTimes


def counts(times: PutTimes) -> dict[str, int]:
    """What the text says, read as rocketmq-exporter does."""
    pairs = [part.split(":") for part in times.distribution().split()]
    return {name: int(count) for name, count in pairs}


def test_every_range_is_named_before_anything_was_counted() -> None:
    times = PutTimes()
    assert times.distribution().startswith("[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 ")
    assert times.distribution().endswith("[5~10s]:0 [10s~]:0 ")
    assert len(counts(times)) == 13
    assert times.percentile_ms(0.99) == 0.0


@pytest.mark.parametrize(
    ("elapsed_s", "name"),
    [
        (0.0, "[<=0ms]"),
        (0.0009, "[<=0ms]"),
        (0.001, "[0~10ms]"),
        (0.01, "[10~50ms]"),
        (0.5, "[500ms~1s]"),
        (9.9, "[5~10s]"),
        (3600.0, "[10s~]"),
    ],
)
def test_a_pass_counts_all_its_messages_in_one_range(elapsed_s: float, name: str) -> None:
    times = PutTimes()
    times.record(elapsed_s, 7)
    assert {name: count for name, count in counts(times).items() if count} == {name: 7}


def test_percentiles_are_powers_of_two_of_a_microsecond() -> None:
    times = PutTimes()
    times.record(0.0001, 989)
    times.record(0.003, 10)
    times.record(2.0, 1)
    assert times.quick == 989
    assert times.percentile_ms(0.5) == 0.0
    assert times.percentile_ms(0.99) == 4.095
    assert times.percentile_ms(1) == 2097.151


def test_a_period_is_forgotten_after_the_next_one() -> None:
    times = PutTimes()
    times.record(0.0, 7)
    times.begin_period()
    assert counts(times)["[<=0ms]"] == 7
    times.begin_period()
    assert counts(times)["[<=0ms]"] == 0
