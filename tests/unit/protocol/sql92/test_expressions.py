"""Nodes: what Java makes of values of two kinds."""

import pytest

from rockhopper.protocol.sql92 import expressions as ex
from rockhopper.protocol.sql92.java_numbers import EvaluationError

TEXT = ex.property_node("a")


def number(text: str) -> ex.Node:
    return ex.parse_whole_literal(text)


@pytest.mark.parametrize(
    ("value", "result"), [("7", True), ("07", True), ("8", False), (None, False)]
)
def test_a_property_is_read_as_the_kind_of_the_other_side(value: str | None, result: bool) -> None:
    node = ex.equal(TEXT, number("7"))
    properties = {} if value is None else {"a": value}
    assert (node.evaluate(properties) is True) == result


def test_what_does_not_read_as_a_number_ends_the_evaluation() -> None:
    with pytest.raises(EvaluationError, match="not a whole number"):
        ex.equal(TEXT, number("7")).evaluate({"a": "seven"})


@pytest.mark.parametrize(
    ("word", "result"), [(">", False), (">=", True), ("<", False), ("<=", True)]
)
def test_orders(word: str, result: bool) -> None:
    assert ex.build_ordering(word, TEXT, number("7")).evaluate({"a": "7"}) is result


def test_null_is_neither_more_nor_less() -> None:
    assert ex.build_ordering(">", TEXT, number("7")).evaluate({}) is not True
    assert ex.is_null(TEXT).evaluate({}) is True
    assert ex.is_null(TEXT).evaluate({"a": ""}) is False


def test_bounds_belong_to_between() -> None:
    node = ex.build_between(TEXT, number("1"), number("3"))
    assert [node.evaluate({"a": text}) is True for text in ("0", "1", "3", "4")] == [
        False,
        True,
        True,
        False,
    ]


def test_one_of_several_texts() -> None:
    node = ex.one_of(TEXT, ["x", "y"], is_negated=False)
    assert node.evaluate({"a": "y"}) is True
    assert node.evaluate({"a": "z"}) is False
    assert ex.one_of(TEXT, ["x"], is_negated=True).evaluate({"a": "z"}) is True


@pytest.mark.parametrize(
    ("word", "text", "result"),
    [
        ("CONTAINS", "bc", True),
        ("STARTSWITH", "bc", False),
        ("STARTSWITH", "ab", True),
        ("ENDSWITH", "cd", True),
        ("ENDSWITH", "ab", False),
    ],
)
def test_parts_of_texts(word: str, text: str, result: bool) -> None:
    node = ex.contains(word, TEXT, text, is_negated=False)
    assert node.evaluate({"a": "abcd"}) is result


def test_a_number_that_no_long_holds_is_refused_when_it_is_compiled() -> None:
    assert number("2147483648").kind is ex.ValueKind.LONG
    assert number("7").kind is ex.ValueKind.INTEGER
    with pytest.raises(ValueError, match="9223372036854775808"):
        number("9223372036854775808")


def test_chains_are_cut_short() -> None:
    failing = ex.equal(ex.property_node("b"), number("1"))
    no = ex.constant(ex.ValueKind.BOOLEAN, False)
    yes = ex.constant(ex.ValueKind.BOOLEAN, True)
    assert ex.chain("AND", no, failing).evaluate({"b": "x"}) is False
    assert ex.chain("OR", yes, failing).evaluate({"b": "x"}) is True
