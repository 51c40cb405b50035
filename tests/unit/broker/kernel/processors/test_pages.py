"""Pages of tables: every name once over all of them, and anew when the table has changed."""

import pytest

from rockhopper.broker.kernel.processors.pages import PAGE_LENGTH_MAX, is_version, page
from rockhopper.protocol.errors import ProtocolError

NAMES = [f"n{number}" for number in range(10)]
VERSION = {"counter": 2, "stateVersion": 0, "timestamp": 5}


@pytest.mark.parametrize(
    ("start", "length", "same", "expected"),
    [
        (None, 3, False, NAMES),
        (0, 3, True, NAMES[:3]),
        (3, 3, True, NAMES[3:6]),
        (9, 3, True, NAMES[9:]),
        (10, 3, True, []),
        (3, 3, False, NAMES[:3]),
        (-1, 3, True, NAMES[:3]),
        (2, 0, True, NAMES[2:]),
        (2, -5, True, NAMES[2:]),
        (2, None, True, NAMES[2:]),
    ],
)
def test_the_part_that_was_asked_for(
    start: int | None, length: int | None, same: bool, expected: list[str]
) -> None:
    assert page(NAMES, start, length, is_same_version=same) == expected


def test_no_page_is_longer_than_the_most() -> None:
    many = [str(number) for number in range(PAGE_LENGTH_MAX + 5)]
    assert page(many, 0, 1 << 30, is_same_version=True) == many[:PAGE_LENGTH_MAX]
    assert page(many, PAGE_LENGTH_MAX, None, is_same_version=True) == many[PAGE_LENGTH_MAX:]


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        (None, True),
        ("", True),
        ('{"counter":2,"stateVersion":0,"timestamp":5}', True),
        ('{"timestamp":5,"counter":2,"stateVersion":0}', True),
        ('{"counter":3,"stateVersion":0,"timestamp":5}', False),
        ("{}", False),
        ("7", False),
    ],
)
def test_a_version_is_compared_by_what_it_says(text: str | None, is_same: bool) -> None:
    assert is_version(text, VERSION) is is_same


def test_a_version_that_is_no_json_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        is_version("{counter", VERSION)
