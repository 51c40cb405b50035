"""SqlFilter: what it says of refused expressions, and what hostile ones cannot do."""

import contextlib
import sys
import time
from typing import Any

import pytest

from rockhopper.protocol.errors import SqlSyntaxError
from rockhopper.protocol.sql92 import EXPRESSION_LENGTH_MAX, compile_filter, java_numbers
from rockhopper.protocol.sql92.sql_filter import SqlFilter
from tests.support.machine_speed import slowness


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("a = ", "expected a property, a literal or '(', but the expression ends (character 5)"),
        ("a >> 5", "expected a property, a literal or '(', but found '>' (character 4)"),
        ("(a = 5", "expected ')' or an operator, but the expression ends (character 7)"),
        ("(a = 5 b", "expected ')' or an operator, but found b (character 8)"),
        ("a IN (5)", "expected a string in single quotes, but found 5 (character 7)"),
        ("a IN ('5' '6')", "expected ',' or ')', but found the string '6' (character 11)"),
        ("a IS 5", "expected NULL or NOT NULL, but found 5 (character 6)"),
        ("a NOT 5", "expected CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN, but"),
        ("a BETWEEN 1 OR 5", "expected AND and the upper bound of BETWEEN"),
        ("a BETWEEN 5 AND 1", "BETWEEN 5 AND 1 is empty: swap the bounds (character 3)"),
        ("a > 'x'", "a text cannot be compared by '>' (character 3)"),
        ("a = NULL", "NULL cannot be compared; write IS NULL or IS NOT NULL (character 3)"),
        ("a = 0.0", "0.0 is too small"),
        ("a = 9223372036854775808", "is larger than 9223372036854775807 (character 5)"),
        ("a != 5", "'!=' is not supported; write '<>' (character 3)"),
        ('a = "x"', "strings need single quotes"),
        ("a = 'x", "the string that starts here has no closing quote (character 5)"),
        ("a = 5 /* b", "the comment that starts with /* does not end (character 7)"),
        ("a = 5 AND 5", "a value stands where a condition is expected (character 7)"),
        ("5 IN ('5')", "IN needs a property on its left (character 3)"),
    ],
)
def test_a_refusal_names_the_place_and_what_is_expected(expression: str, said: str) -> None:
    with pytest.raises(SqlSyntaxError) as refused:
        compile_filter(expression)
    assert said in str(refused.value)


def test_what_the_reference_ignores_is_known_and_can_be_refused() -> None:
    compiled = compile_filter("a = 5 ADN b = 6")
    assert compiled.matches({"a": "5"})
    with pytest.raises(
        SqlSyntaxError, match=r"expected an operator before 'ADN b = 6'.*character 7"
    ):
        compiled.check_meant()
    compile_filter("a = 5 AND b = 6 ").check_meant()


@pytest.mark.parametrize(
    ("expression", "name", "character"),
    [
        ("a", "a", 1),
        ("(flag)", "flag", 2),
        ("a = 5 AND flag", "flag", 11),
        ("NOT a = 1", "a", 5),
        ("a OR b", "a", 1),
    ],
)
def test_a_property_compared_with_nothing_compiles_and_can_be_refused(
    expression: str, name: str, character: int
) -> None:
    compiled = compile_filter(expression)
    with pytest.raises(SqlSyntaxError, match=rf"property {name} alone.*character {character}\)"):
        compiled.check_meant()


def test_a_property_that_is_compared_may_stand_anywhere() -> None:
    for expression in ("a = TRUE", "NOT (a = 1) AND b IS NOT NULL", "a = b OR TRUE"):
        compile_filter(expression).check_meant()


def test_why_the_first_message_could_not_be_evaluated_is_kept() -> None:
    compiled = SqlFilter("a > 5")
    assert compiled.matches({"a": "6"})
    assert compiled.first_error is None
    assert not compiled.matches({"a": "many"})
    assert not compiled.matches({"a": "more"})
    assert compiled.first_error == "'many' is not a whole number"


def test_an_expression_is_parsed_once() -> None:
    assert compile_filter("a = 77") is compile_filter("a = 77")


HOSTILE = {
    "parentheses": "(" * 8000 + "a = 5" + ")" * 8000,
    "open parentheses": "(" * EXPRESSION_LENGTH_MAX,
    "negations": "NOT " * 4000 + "(a = 5)",
    "minus": "-" * 16_000 + "a",
    "pluses": "+" * 16_000 + "a",
    "a chain": " OR ".join(["a=5"] * 2300),
    "a chain in parentheses": "(" * 2000 + "a=5" + " OR a=5)" * 1500,
    "alternating": "(a=5 OR (a=6 AND " * 900 + "a=5" + "))" * 450,
    "equalities": "a=5" + "=TRUE" * 3000,
    "null tests": "a" + " IS NULL" * 2000,
    "a list": "a IN (" + ",".join(["'x'"] * 4000) + ")",
    "digits": "a = " + "9" * 16_000,
    "zeros": "a = " + "0" * 16_000,
    "fraction": "a = ." + "1" * 16_000,
    "exponents": "a = 1e" + "9" * 16_000,
    "quotes": "a = '" + "''" * 8000,
    "comments": "/**/" * 4000 + "a = 5",
    "open comments": "--" * 8000,
    "lines": "--\n" * 5000 + "a = 5",
    "too long": "a" * (EXPRESSION_LENGTH_MAX + 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_expression_overflows_the_stack_or_takes_long(name: str) -> None:
    expression = HOSTILE[name]
    began = time.process_time()
    with contextlib.suppress(SqlSyntaxError):
        compiled = SqlFilter(expression)
        compiled.matches({})
        compiled.matches({"a": "5"})
        assert compiled.first_error is None or "recursion" not in compiled.first_error
    assert time.process_time() - began < 0.5 * slowness(), "quadratic would take seconds"


@pytest.mark.parametrize("name", ["negations", "equalities", "digits", "too long"])
def test_the_refusal_of_a_long_expression_is_short(name: str) -> None:
    with pytest.raises(SqlSyntaxError) as refused:
        SqlFilter(HOSTILE[name] + " IN (5)")
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ["9" * 30_000, "0" * 30_000 + "5", "1" * 30_000 + "x", "1e" * 99])
@pytest.mark.parametrize("expression", ["a > 5", "a > 3000000000", "a > 1.5", "a > a"])
def test_no_property_takes_long_to_compare(expression: str, text: str) -> None:
    began = time.process_time()
    SqlFilter(expression).matches({"a": text})
    assert time.process_time() - began < 0.2 * slowness()


def test_a_deep_stack_makes_no_match_but_no_exception() -> None:
    compiled = SqlFilter("(a=6 OR (a=5 AND " * 100 + "a=5" + "))" * 100)

    def at_depth(depth: int) -> bool:
        return at_depth(depth - 1) if depth else compiled.matches({"a": "5"})

    assert at_depth(0)
    left = sys.getrecursionlimit() - len(_frames()) - 20
    assert not at_depth(left)


def _frames() -> list[object]:
    frame = sys._getframe()
    frames: list[object] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return frames


def test_an_expression_cannot_search_a_property_without_end() -> None:
    searches = " OR ".join(f"a CONTAINS 'x{number}'" for number in range(101))
    with pytest.raises(SqlSyntaxError, match="more than 100 CONTAINS"):
        SqlFilter(searches)
    assert SqlFilter(searches.rpartition(" OR ")[0]).matches({"a": "x77"})
    with pytest.raises(SqlSyntaxError, match="more than 1500 properties and literals"):
        SqlFilter(" OR ".join(["a>1"] * 751))
    assert SqlFilter(" OR ".join(["a>1"] * 750)).matches({"a": "2"})


@pytest.mark.parametrize(
    ("comparison", "read"),
    [
        ("a = 1", java_numbers.read_long_whole_once),
        ("a > 5000000000", java_numbers.read_long_whole_once),
        ("a > 1.5", java_numbers.read_long_double_once),
        ("a > b", java_numbers.read_long_double_once),
    ],
)
def test_a_long_number_is_read_once_however_often_it_is_compared(
    comparison: str, read: Any
) -> None:
    sql = SqlFilter(" AND NOT ".join([f"({comparison})"] * 400))
    read.cache_clear()
    sql.matches({"a": "0" * 30_000 + "7", "b": "0" * 300 + "9"})
    assert read.cache_info().misses <= 2
    assert read.cache_info().maxsize * java_numbers.LONG_TEXT >= 32_768


@pytest.mark.parametrize("size", [300, 2400, 29_000, 31_000])
@pytest.mark.parametrize("wanted", ["a" * 80 + "b", "a" * 80 + "\0", "\0" * 90, "b" + "a" * 2000])
def test_a_search_through_a_long_text_finds_what_is_there(size: int, wanted: str) -> None:
    sql = SqlFilter(f"a CONTAINS '{wanted}'")
    for text in ("a" * size, wanted, "a" * (size - len(wanted)) + wanted, "a" * size + wanted[:-1]):
        for value in (text, text + "a"):
            assert sql.matches({"a": value}) is (wanted in value)
