"""messageDelayLevel: RocketMQ's list of delays."""

import pytest

from rockhopper.protocol.store.delay_levels import delays_ms


def test_each_unit_is_understood() -> None:
    assert delays_ms(" 1s 2m  3h 4d") == (1000, 120_000, 10_800_000, 345_600_000)


@pytest.mark.parametrize("text", ["", "  ", "1", "s", "1s x", "-1s", "1.5s", "1w"])
def test_text_that_is_no_list_of_delays_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="delay"):
        delays_ms(text)
