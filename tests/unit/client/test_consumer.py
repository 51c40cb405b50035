"""Consumer: what is wrong with its arguments is said when it is made."""

import pytest

from rockhopper.client import Consumer


@pytest.mark.parametrize(
    ("option", "value", "bound"),
    [
        ("commit_interval_s", 0, "above 0"),
        ("commit_interval_s", -1.0, "above 0"),
        ("suspend_s", -1.0, "0 or above"),
        ("poll_s", -1.0, "0 or above"),
        ("close_timeout_s", -1.0, "0 or above"),
        ("request_timeout_s", 0, "above 0"),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(option: str, value: float, bound: str) -> None:
    with pytest.raises(ValueError, match=rf"{option} is {value} s: it must be {bound}"):
        Consumer("billing", "orders", **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("topics", [None, 5, b"orders", ["orders", 5], {5: "*"}])
def test_topics_that_are_no_texts_are_refused(topics: object) -> None:
    with pytest.raises(TypeError, match="topics are texts"):
        Consumer("billing", topics)  # type: ignore[arg-type]
