"""Times: what producers ask for with four properties, and what a stored message gives away."""

import pytest

from rockhopper.broker.kernel.scheduled.timers.times import (
    compute_out_ms,
    due_ms,
    get_requested_time_ms,
)

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("properties", "asked_ms"),
    [
        ({}, None),
        ({"TIMER_DELAY_SEC": "3"}, NOW_MS + 3000),
        ({"TIMER_DELAY_MS": "3"}, NOW_MS + 3),
        ({"TIMER_DELIVER_MS": "3"}, 3),
        ({"__STARTDELIVERTIME": "+7"}, 7),
        ({"TIMER_DELAY_SEC": "-1"}, NOW_MS - 1000),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "2"}, NOW_MS + 1000),
        ({"TIMER_DELAY_MS": "2", "TIMER_DELIVER_MS": "x"}, NOW_MS + 2),
        ({"TIMER_DELIVER_MS": "3", "__STARTDELIVERTIME": "4"}, 3),
        ({"TIMER_DELAY_SEC": "9" * 18}, NOW_MS + int("9" * 18) * 1000),
    ],
)
def test_the_first_property_says_when(properties: dict[str, str], asked_ms: int | None) -> None:
    assert get_requested_time_ms(properties, NOW_MS) == asked_ms


@pytest.mark.parametrize("text", ["", "x", "1.5", " 1", "1 ", "9" * 19, "١"])
def test_a_time_that_is_no_number_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"TIMER_DELAY_MS is .*, not a number"):
        get_requested_time_ms({"TIMER_DELAY_MS": text}, NOW_MS)


def test_a_long_nonsense_is_not_repeated_at_length() -> None:
    with pytest.raises(ValueError, match="not a number") as error:
        get_requested_time_ms({"TIMER_DELAY_MS": "x" * 10_000}, NOW_MS)
    assert len(str(error.value)) < 150


def test_every_due_time_comes_back_from_what_is_stored_a_millisecond_late_at_most() -> None:
    for time_ms in range(1_700_000_000_000, 1_700_000_002_100):
        stored = {"TIMER_OUT_MS": str(compute_out_ms(time_ms))}
        due = due_ms(stored, 0, 1000)
        assert due is not None
        assert time_ms <= due <= time_ms + 1


@pytest.mark.parametrize("text", ["", "x", "1e5"])
def test_a_stored_message_without_a_number_has_no_time(text: str) -> None:
    assert due_ms({"TIMER_OUT_MS": text}, 0, 1000) is None


@pytest.mark.parametrize(
    ("more", "due"),
    [
        ({}, 11_000),
        ({"TIMER_DELIVER_MS": "10500"}, 10_500),
        ({"TIMER_DELIVER_MS": "10000"}, 11_000),
        ({"TIMER_DELIVER_MS": "10001"}, 10_001),
        ({"TIMER_DELIVER_MS": "11000"}, 11_000),
        ({"TIMER_DELIVER_MS": "11001"}, 11_000),
        ({"TIMER_DELAY_SEC": "2"}, 10_700),
        ({"TIMER_DELAY_SEC": "nonsense"}, 11_000),
    ],
)
def test_a_message_of_rocketmqs_goes_when_its_producer_said_if_that_fits(
    more: dict[str, str], due: int
) -> None:
    """TIMER_OUT_MS is a multiple of its precision: the producer's words are finer."""
    assert due_ms({"TIMER_OUT_MS": "10000"} | more, 8700, 1000) == due


def test_a_time_of_ours_needs_no_other_word() -> None:
    assert due_ms({"TIMER_OUT_MS": "10001", "TIMER_DELIVER_MS": "10500"}, 0, 1000) == 10_002
