"""What is shown on a terminal cannot command it."""

import json

import pytest

from rockhopper.client.printable import (
    format_age,
    format_preview,
    make_printable,
    make_printable_json,
)


def test_control_characters_cannot_reach_a_terminal() -> None:
    assert make_printable("a\u202eb\u2066c\u200f\u2028") == "a\\u202eb\\u2066c\\u200f\\u2028"
    assert make_printable("\x1b[31m\x07\x9b\r\n\tä") == "\\x1b[31m\\x07\\x9b\\r\\n\\tä"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", ""),
        ("grüße".encode(), "grüße"),
        (b"two\nlines", "two\\nlines"),
        (b"\xff\x00\x10", "<3 bytes: ff 00 10>"),
        (bytes([255]) * 1000, "<1,000 bytes: " + " ".join(["ff"] * 24) + " …>"),
    ],
)
def test_a_preview_is_one_line_and_safe(body: bytes, shown: str) -> None:
    assert format_preview(body) == shown


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        (400, "0 s"),
        (59_400, "59 s"),
        (60_000, "1 minute"),
        (7_200_000, "2 hours"),
        (90_000_000, "1 day"),
    ],
)
def test_an_age_is_told_in_its_largest_unit(age_ms: int, text: str) -> None:
    assert format_age(age_ms) == text


def test_json_cannot_command_the_terminal_and_means_the_same() -> None:
    value = {"topic": "a\x9bb\u202ec\u2066d\x7fe", "körper": "ü\x1b"}
    shown = make_printable_json(json.dumps(value, ensure_ascii=False))
    assert shown.isprintable()
    assert "körper" in shown
    assert json.loads(shown) == value
