"""What counts as a figure, and when it agrees with its source."""

from fractions import Fraction

import pytest

from tests.support.figures import Value, agrees, figures, text_of, value_of
from tests.support.prose import Page


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("within 120 s", [("120 s", 120)]),
        ("2 ms and 20 µs", [("2 ms", Fraction(2, 1000)), ("20 µs", Fraction(20, 10**6))]),
        ("up to 16 MiB", [("16 MiB", 16 << 20)]),
        ("half a second", [("half a second", Fraction(1, 2))]),
        ("after an hour, an hour", [("an hour", 3600)]),
        ("below 85 %", [("85 %", Fraction(85, 100))]),
        ("32 messages at most", [("32", 32)]),
        ("5 to 20 s", [("5", 5), ("20 s", 20)]),
        ("the first 300, at most 1.5", [("300", 300)]),
        ("2,000 later ones", [("2,000", 2000)]),
        ("1.6 million messages", [("1.6 million", 1_600_000)]),
        ("two groups, 3 brokers, RocketMQ 5 clients, mode 0700, 5.5.0, `32 s`", []),
    ],
)
def test_a_figure_is_a_number_with_a_unit_or_with_what_it_counts(
    text: str, expected: list[tuple[str, Fraction]]
) -> None:
    assert [(one.text, one.value) for one in figures(text)] == expected


@pytest.mark.parametrize(
    ("text", "value", "is_exact", "is_right"),
    [
        ("120 s", 120, True, True),
        ("120 s", 119, True, False),
        ("85 %", 85, True, True),
        ("5.7 MiB", 6_000_000, True, True),
        ("122 MB", 121_988_890, False, True),
        ("123 MB", 121_988_890, False, False),
        ("50 MB", 48_500_000, False, True),
        ("50 MB", 38_000_000, False, False),
    ],
)
def test_a_measured_figure_is_rounded_and_another_is_not(
    text: str, value: int, is_exact: bool, is_right: bool
) -> None:
    (figure,) = figures(text)
    assert agrees(figure, Value(Fraction(value), is_exact)) == is_right


def test_a_source_is_in_the_base_of_its_unit() -> None:
    heartbeat = value_of("rockhopper.broker.kernel.members.consumer_groups:HEARTBEAT_TIMEOUT_MS")
    assert heartbeat == Value(Fraction(120), is_exact=True)
    assert value_of("setting maxMessageSize most") == Value(Fraction(16 << 20), is_exact=True)
    assert value_of("parameter rockhopper:Consumer hand_over_s") == Value(Fraction(1, 2), True)
    assert value_of("outside: RFC 9113") is None


@pytest.mark.parametrize(
    "source", ["rockhopper.protocol.names:NONE", "setting none", "guess", "outside: ", "lines none"]
)
def test_a_source_that_is_not_there_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=source.split()[0]):
        value_of(source)


def test_code_comments_and_links_are_no_prose() -> None:
    text = "a [limit](x.md#10-s) <!-- 5 s --> of 7 s\n\n    sleep 9 s\n\n```\n8 s\n```\n"
    assert text_of(Page("x.md", text)) == "a [limit] of 7 s"


def test_of_an_indented_block_the_lines_that_name_a_figure_in_words_are_prose() -> None:
    block = "    disk = body + 240 bytes\n    group reset --to 42 -d 1h\n    PYTHON 479 0 s"
    text = text_of(Page("docs/page.md", f"Text:\n\n{block}\n"))
    assert text == "Text: disk = body + 240 bytes"
