"""Keys as a terminal sends them."""

import pytest

from rockhopper.client.commands.screen.keyboard import parse_keys


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"ll", ["l", "l"]),
        (b"\x1b", ["\x1b"]),
        (b"\x1b[A", ["up"]),
        (b"\x1bOB", ["down"]),
        (b"\x1b[6~", ["page down"]),
        (b"\x1b[15~", []),
        (b"\xff", []),
    ],
)
def test_a_key_has_a_name_or_is_its_character(data: bytes, keys: list[str]) -> None:
    assert parse_keys(data) == keys
