"""Which process comes after which."""

from dataclasses import replace

import pytest

from rockhopper.broker.replication.shipping.incarnation import Incarnation

OURS = Incarnation(1, "abcd0123", 7, "0000beef", "11112222")


@pytest.mark.parametrize(
    ("other", "comes_after"),
    [
        (OURS, True),
        (replace(OURS, starts=6, token="33334444"), True),
        (replace(OURS, token="33334444"), False),
        (replace(OURS, starts=8), False),
        (replace(OURS, starts=6, place="0000cafe"), False),
        (replace(OURS, starts=6, store="abcd9999"), False),
        (replace(OURS, starts=6, id=2), False),
    ],
)
def test_only_an_earlier_process_in_the_same_place_has_surely_ended(
    other: Incarnation, comes_after: bool
) -> None:
    assert OURS.comes_after(str(other)) is comes_after


@pytest.mark.parametrize("other", ["", "another", "1-abcd0123-6", "1-abcd0123-x-0000beef-1"])
def test_a_process_of_another_form_may_run(other: str) -> None:
    assert not OURS.comes_after(other)
