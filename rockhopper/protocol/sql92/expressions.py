"""The nodes of an expression, with the types that Java would use, and the closures to evaluate it.

Values are those of the reference's evaluator: text (of a property or a literal), Integer, Long,
Double, Boolean, and null. Properties are always texts. So the kind of each node is known at compile
time, and each comparison is compiled to a closure for its two kinds. None is null. EvaluationError
replaces every exception that Java would raise here; the message then does not match.

Invalid expressions raise ValueError; the parser adds the position.
"""

import operator
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeAlias

from rockhopper.protocol.sql92.java_numbers import INT_MAX as _INT_MAX
from rockhopper.protocol.sql92.java_numbers import (
    LONG_MAX,
    EvaluationError,
    order_of_doubles,
    read_double,
    read_int,
    read_long,
)

Properties: TypeAlias = Mapping[str, str]
Value: TypeAlias = str | int | float | bool | None
Evaluate: TypeAlias = Callable[[Properties], Value]
Order: TypeAlias = Callable[[float, float], bool]

NESTING_MAX = 256
"""The maximum depth of nested closures. Parentheses, and chains of AND or of OR, do not count."""


_SEARCH_COST_MAX = 1 << 17
_LONG_SIZE = 30_000
_PADDING = "\0" * _LONG_SIZE


class ValueKind(Enum):
    """The Java class of a value; NOTHING is a value that is always null."""

    TEXT = "a text"
    INTEGER = "a whole number"
    LONG = "a long number"
    DOUBLE = "a number"
    BOOLEAN = "a truth value"
    NOTHING = "NULL"


_READERS: dict[ValueKind, Callable[[str], float]] = {
    ValueKind.INTEGER: read_int,
    ValueKind.LONG: read_long,
    ValueKind.DOUBLE: read_double,
}
ORDERS: dict[str, Order] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class Node:
    """A part of an expression.

    ``is_constant`` and ``is_boolean`` follow its class in the reference: TRUE, FALSE and NULL are
    both, a negated number is neither. ``name`` is set for a property, and ``is_alone`` if that
    property is used as a condition. ``terms`` is set for NOT, and for a chain of AND or OR, which
    grows at its end.
    """

    __slots__ = (
        "_evaluate",
        "depth",
        "is_alone",
        "is_boolean",
        "is_constant",
        "kind",
        "name",
        "terms",
        "value",
    )

    def __init__(
        self,
        kind: ValueKind,
        evaluate: Evaluate,
        depth: int = 1,
        *,
        value: Value = None,
        is_constant: bool = False,
        is_boolean: bool = False,
        name: str | None = None,
        terms: tuple[str, list[Evaluate]] | None = None,
    ) -> None:
        if depth > NESTING_MAX:
            raise ValueError(f"the expression is nested more than {NESTING_MAX} deep")
        self.kind = kind
        self._evaluate = evaluate
        self.depth = depth
        self.value = value
        self.is_constant = is_constant
        self.is_boolean = is_boolean
        self.name = name
        self.is_alone = False
        self.terms = terms

    @property
    def evaluate(self) -> Evaluate:
        """The closure; read it only after a chain is complete."""
        if self.terms is not None and len(self.terms[1]) == 2:
            word, (first, second) = self.terms
            return _pair(first, second, word == "OR")
        return self._evaluate


def property_node(name: str) -> Node:
    """Return the node of a property."""
    return Node(ValueKind.TEXT, lambda properties: properties.get(name), name=name)


def constant(kind: ValueKind, value: Value) -> Node:
    """Return the node of a literal."""
    is_boolean = kind in (ValueKind.BOOLEAN, ValueKind.NOTHING)
    return Node(kind, lambda _: value, value=value, is_constant=True, is_boolean=is_boolean)


def parse_whole_literal(text: str) -> Node:
    """Return a literal without point and exponent; its size, not an L, makes it a Long."""
    digits = text.rstrip("lL")
    if len(digits) > 19 or int(digits) > LONG_MAX:
        raise ValueError(f"{text[:100]} is larger than {LONG_MAX}")
    value = int(digits)
    return constant(ValueKind.INTEGER if value <= _INT_MAX else ValueKind.LONG, value)


def float_literal(text: str) -> Node:
    """Return a literal with a point or an exponent."""
    value = float(text)
    if value == float("inf"):
        raise ValueError(f"{text[:100]} is too large")
    if value == 0:
        raise ValueError(
            f"{text[:100]} is too small: a number with a point or an exponent cannot be zero"
        )
    return constant(ValueKind.DOUBLE, value)


def negative(node: Node) -> Node:
    """Return ``- x``: the negative of a number, null for anything else."""
    if node.kind in _READERS:
        assert isinstance(node.value, int | float)
        value = -node.value
        return Node(node.kind, lambda _: value, value=value)
    if node.kind is ValueKind.NOTHING and not node.is_constant:
        return node
    evaluate = node.evaluate

    def nothing(properties: Properties) -> Value:
        evaluate(properties)
        return None

    return Node(ValueKind.NOTHING, nothing, node.depth + 1)


def convert_to_condition(node: Node) -> Node:
    """Return the node as a truth value. A property used as a condition is never true."""
    if node.is_boolean:
        return node
    if node.name is None:
        raise ValueError("a value stands where a condition is expected")
    name = node.name
    node.is_alone = True

    def cast(properties: Properties) -> Value:
        return None if properties.get(name) is None else False

    return Node(ValueKind.BOOLEAN, cast, is_boolean=True)


def negation(node: Node) -> Node:
    """Return ``NOT x``; for null it is null."""
    if node.terms is not None and node.terms[0] == "NOT":
        return Node(ValueKind.BOOLEAN, node.terms[1][0], node.depth - 1, is_boolean=True)
    evaluate = convert_to_condition(node).evaluate

    def opposite(properties: Properties) -> Value:
        value = evaluate(properties)
        return None if value is None else not value

    terms = ("NOT", [evaluate])
    return Node(ValueKind.BOOLEAN, opposite, node.depth + 1, is_boolean=True, terms=terms)


def chain(word: str, left: Node, right: Node) -> Node:
    """Return ``left AND right`` or ``left OR right``; a *left* of the same kind is extended."""
    left, right = convert_to_condition(left), convert_to_condition(right)
    depth = max(left.depth, right.depth + 1)
    if left.terms is not None and left.terms[0] == word:
        left.terms[1].append(right.evaluate)
        terms = left.terms
    else:
        depth = max(left.depth + 1, depth)
        terms = (word, [left.evaluate, right.evaluate])
    evaluate = _chain(terms[1], word == "OR")
    return Node(ValueKind.BOOLEAN, evaluate, depth, is_boolean=True, terms=terms)


def _pair(first: Evaluate, second: Evaluate, decides: bool) -> Evaluate:
    """Return a closure for AND, which False decides alone, or OR, which True decides alone."""
    leaves_open = not decides

    def evaluate(properties: Properties) -> Value:
        left = first(properties)
        if left is decides:
            return left
        right = second(properties)
        return right if left is leaves_open or right is decides else None

    return evaluate


def _chain(terms: list[Evaluate], decides: bool) -> Evaluate:
    """Return the same closure for any number of terms."""
    leaves_open = not decides

    def evaluate(properties: Properties) -> Value:
        result: Value = leaves_open
        for term in terms:
            value = term(properties)
            if value is decides:
                return value
            if value is None:
                result = None
        return result

    return evaluate


def _condition(evaluate: Evaluate, *parts: Node) -> Node:
    return Node(ValueKind.BOOLEAN, evaluate, 1 + max(part.depth for part in parts), is_boolean=True)


def build_ordering(symbol: str, left: Node, right: Node) -> Node:
    """Return ``left > right`` and the like; compares numbers, and texts as numbers."""
    for node in (left, right):
        if node.is_boolean or (node.is_constant and node.kind not in _READERS):
            raise ValueError(f"{node.kind.value} cannot be compared by '{symbol}'")
    return _condition(_order_closure(ORDERS[symbol], left, right), left, right)


def _order_closure(order: Order, left: Node, right: Node) -> Evaluate:
    if left.kind in _READERS and right.kind in _READERS:
        assert isinstance(left.value, int | float)
        assert isinstance(right.value, int | float)
        result = order(*_widen_as_java(left.value, right.value))
        return lambda _: result
    if right.kind in _READERS and left.kind is ValueKind.TEXT:
        return _text_with_number(order, left, right)
    if left.kind in _READERS and right.kind is ValueKind.TEXT:
        return _text_with_number(lambda a, b: order(b, a), right, left)
    first, second = left.evaluate, right.evaluate

    def compare(properties: Properties) -> Value:
        one = first(properties)
        if one is None:
            return None
        other = second(properties)
        if other is None:
            return None
        # Only texts remain: other kinds were handled above, or are null.
        return order(order_of_doubles(read_double(str(one)), read_double(str(other))), 0)

    return compare


def _text_with_number(order: Order, text: Node, number: Node) -> Evaluate:
    assert isinstance(number.value, int | float)
    assert text.name is not None
    name, bound = text.name, number.value
    read = _READERS[number.kind]
    # NaN is greater than all numbers.
    result_for_nan = order(1, 0)

    def compare(properties: Properties) -> Value:
        value = properties.get(name)
        if value is None:
            return None
        size = read(value)
        return order(size, bound) if size == size else result_for_nan

    return compare


def _widen_as_java(left: float, right: float) -> tuple[float, float]:
    """Convert both values to Double if either is one, with Java's loss of precision."""
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return left, right


def build_between(value: Node, low: Node, high: Node) -> Node:
    """Return ``value BETWEEN low AND high``; two literal bounds must be in order."""
    if low.is_constant and high.is_constant:
        if low.value is None or high.value is None:
            raise ValueError("NULL cannot be a bound of BETWEEN")
        if low.kind in _READERS and high.kind in _READERS:
            assert isinstance(low.value, int | float)
            assert isinstance(high.value, int | float)
            least, most = _widen_as_java(low.value, high.value)
            if most < least:
                raise ValueError(f"BETWEEN {low.value} AND {high.value} is empty: swap the bounds")
    return chain("AND", build_ordering(">=", value, low), build_ordering("<=", value, high))


def not_between(value: Node, low: Node, high: Node) -> Node:
    """Return ``value NOT BETWEEN low AND high``; the bounds may be in any order."""
    return chain("OR", build_ordering("<", value, low), build_ordering(">", value, high))


def _check_comparable(left: Node, right: Node) -> None:
    for node in (left, right):
        if node.is_constant and node.kind is ValueKind.NOTHING:
            raise ValueError("NULL cannot be compared; write IS NULL or IS NOT NULL")
    both_constant = left.is_constant and right.is_constant
    if both_constant and left.is_boolean and not right.is_boolean:
        raise ValueError(f"TRUE and FALSE cannot be compared with {right.kind.value}")


def equal(left: Node, right: Node) -> Node:
    """Return ``left = right``."""
    _check_comparable(left, right)
    if left.name is not None and right.is_constant and right.kind is ValueKind.TEXT:
        return _condition(_name_is_text(left.name, right.value), left, right)
    return _condition(_equality_closure(left, right), left, right)


def _name_is_text(name: str, wanted: Value) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else value == wanted

    return evaluate


def _equality_closure(left: Node, right: Node) -> Evaluate:
    first, second = left.evaluate, right.evaluate
    same = _sameness(left.kind, right.kind)

    def evaluate(properties: Properties) -> Value:
        one, other = first(properties), second(properties)
        if one is None:
            # Two nulls are equal; a null only on the left makes the result null.
            return True if other is None else None
        if other is None:
            return False
        return same(one, other)

    return evaluate


def _sameness(left: ValueKind, right: ValueKind) -> Callable[[Value, Value], bool]:
    """Return the comparison of two values of these kinds that are not null."""
    if left in _READERS and right in _READERS:
        as_double = ValueKind.DOUBLE in (left, right)
        return _are_same_doubles if as_double else operator.eq
    if left is right:
        return operator.eq
    if left is ValueKind.TEXT:
        return _sameness_of_text(right)
    if right is ValueKind.TEXT:
        return _sameness_to_text(left)
    return _cannot_be_equal


def _sameness_of_text(right: ValueKind) -> Callable[[Value, Value], bool]:
    if right in _READERS:
        read = _READERS[right]
        return lambda one, other: read(str(one)) == other
    if right is ValueKind.BOOLEAN:
        return lambda one, other: _is_true(str(one)) is other
    return _cannot_be_equal


def _sameness_to_text(left: ValueKind) -> Callable[[Value, Value], bool]:
    if left in _READERS:
        read = _READERS[left]
        return lambda one, other: one == read(str(other))
    return _cast_fails if left is ValueKind.BOOLEAN else _cannot_be_equal


def _cannot_be_equal(_one: Value, _other: Value) -> bool:
    """Compare a truth value with a number, for example."""
    return False


def _is_true(text: str) -> bool:
    # No longer text has this in lower case.
    return len(text) == 4 and text.lower() == "true"


def _are_same_doubles(one: Value, other: Value) -> bool:
    assert isinstance(one, int | float)
    assert isinstance(other, int | float)
    return float(one) == float(other)


def _cast_fails(_one: Value, _other: Value) -> bool:
    raise EvaluationError("a truth value on the left cannot be compared with a string on the right")


def is_null(node: Node) -> Node:
    """Return ``x IS NULL``."""
    evaluate = node.evaluate
    return _condition(lambda properties: evaluate(properties) is None, node)


def contains(word: str, node: Node, wanted: str, *, is_negated: bool) -> Node:
    """Return CONTAINS, STARTSWITH or ENDSWITH.

    For null, and for an empty *wanted*, the result is false, even if negated.
    """
    if not wanted:
        return _condition(lambda _: False, node)
    evaluate = node.evaluate
    test: Callable[[str, str], bool] = _holds
    if word != "CONTAINS":
        test = str.startswith if word == "STARTSWITH" else str.endswith

    def look(properties: Properties) -> Value:
        value = evaluate(properties)
        return isinstance(value, str) and test(value, wanted) is not is_negated

    return _condition(look, node)


def _holds(value: str, wanted: str) -> bool:
    """Whether *wanted* is in *value*, in time that is linear in their lengths.

    CPython searches short texts in quadratic time, so those are padded.
    """
    size = len(value)
    if len(wanted) * size <= _SEARCH_COST_MAX or size >= _LONG_SIZE:
        return wanted in value
    return 0 <= (value + _PADDING).find(wanted) <= size - len(wanted)


def one_of(node: Node, wanted: list[str], *, is_negated: bool) -> Node:
    """Return ``name IN ('a', 'b')``."""
    if node.name is None:
        raise ValueError("IN needs a property on its left")
    name, choices = node.name, frozenset(wanted)

    def look(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else (value in choices) is not is_negated

    return _condition(look, node)
