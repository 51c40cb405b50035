"""Texts as Java reads them: what Integer, Long and Double take, and what they throw at."""

import math

import pytest

from rockhopper.protocol.sql92.java_numbers import (
    EvaluationError,
    order_of_doubles,
    read_double,
    read_int,
    read_long,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("+7", 7),
        ("-7", -7),
        ("007", 7),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("٣", 3),
        ("0" * 5000 + "9", 9),
    ],
)
def test_a_whole_number(text: str, value: int) -> None:
    assert read_int(text) == value
    assert read_long(text) == value


@pytest.mark.parametrize("text", ["", "+", "-", " 1", "1 ", "1_0", "0x1", "1.0", "1L", "𝟏", "--1"])
def test_what_is_no_whole_number(text: str) -> None:
    with pytest.raises(EvaluationError, match="is not a whole number"):
        read_int(text)
    with pytest.raises(EvaluationError, match="is not a whole number"):
        read_long(text)


def test_a_long_holds_what_an_integer_does_not() -> None:
    assert read_long("2147483648") == 2**31
    for text in ("2147483648", "-2147483649"):
        with pytest.raises(EvaluationError, match="too large"):
            read_int(text)
    for text in ("9223372036854775808", "-9223372036854775809", "9" * 5000):
        with pytest.raises(EvaluationError, match="too large"):
            read_long(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("1.", 1.0),
        (".5", 0.5),
        (" 1.5\t", 1.5),
        ("1e3", 1000.0),
        ("1.5f", 1.5),
        ("2D", 2.0),
        ("0x1p4", 16.0),
        ("-0x.8p1", -1.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("1e999", math.inf),
        ("0x1p9999", math.inf),
        ("-0x1p9999", -math.inf),
        ("0x1p-9999", 0.0),
    ],
)
def test_a_double(text: str, value: float) -> None:
    assert read_double(text) == value


@pytest.mark.parametrize("text", ["", " ", "1_0", "inf", "nan", "0x1", "1e", "1,5", "٣"])
def test_what_is_no_double(text: str) -> None:
    with pytest.raises(EvaluationError, match="is not a number"):
        read_double(text)


def test_doubles_are_ordered_as_compare_to_does() -> None:
    rising = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, read_double("NaN")]
    for i, left in enumerate(rising):
        for j, right in enumerate(rising):
            assert order_of_doubles(left, right) == (i > j) - (i < j)
