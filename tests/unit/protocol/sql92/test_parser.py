"""The grammar: what binds tighter, where an expression ends, and what is expected next."""

import pytest

from rockhopper.protocol.errors import SqlSyntaxError
from rockhopper.protocol.sql92.parser import Parsed, Parser


def parse(text: str) -> Parsed:
    return Parser(text).parse()


def matches(text: str, **properties: str) -> object:
    return parse(text).condition.evaluate(properties)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a = 'x' OR b = 'y' AND c = 'z'", True),
        ("(a = 'x' OR b = 'y') AND c = 'z'", False),
        ("NOT (b = 'y') AND a = 'x'", True),
        ("a IN ('w', 'x')", True),
        ("a NOT IN ('w', 'x')", False),
        ("n BETWEEN 1 AND 3", True),
        ("n NOT BETWEEN 1 AND 3", False),
        ("n BETWEEN 1 AND 1 OR a = 'x'", True),
        ("n > 1 AND n <= 2", True),
        ("-n = 2", False),
        ("a IS NULL", False),
        ("z IS NULL AND a IS NOT NULL", True),
        ("a CONTAINS 'x'", True),
        ("a NOT STARTSWITH 'x'", False),
    ],
)
def test_an_expression_means(text: str, result: bool) -> None:
    assert (matches(text, a="x", b="q", c="q", n="2") is True) == result


@pytest.mark.parametrize(
    ("text", "expected", "at"),
    [
        ("", "a property, a literal", 0),
        ("a =", "a property, a literal", 3),
        ("(a = 'x'", "'\\)' or an operator", 8),
        ("a IN 'x'", "'\\(' and strings", 5),
        ("a IN ('x'", "',' or '\\)'", 9),
        ("a IN (1)", "a string in single quotes", 6),
        ("a BETWEEN 1 OR 2", "AND and the upper bound", 12),
        ("a IS 7", "NULL or NOT NULL", 5),
        ("a IS NOT 7", "expected NULL", 9),
        ("a NOT = 1", "CONTAINS, STARTSWITH", 6),
    ],
)
def test_what_is_expected_is_said_with_the_place(text: str, expected: str, at: int) -> None:
    with pytest.raises(SqlSyntaxError, match=expected) as caught:
        parse(text)
    assert caught.value.position == at


def test_where_an_expression_ends_although_more_follows_is_told() -> None:
    assert parse("a = 1 b = 2").rest == 6
    assert parse("a = 1").rest is None


def test_a_property_that_stands_for_a_condition_is_told() -> None:
    assert parse("a AND b = 1").alone == ("a", 0)
    assert parse("a = 1 AND b = 1").alone is None


def test_ten_thousand_parentheses_are_no_recursion() -> None:
    deep = "(" * 10_000 + "a = 'x'" + ")" * 10_000
    assert matches(deep, a="x") is True
