"""The parser of SQL92 expressions.

    or          and ( OR and )*
    and         equality ( AND equality )*
    equality    comparison ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison  unary ( > unary | >= unary | < unary | <= unary
                      | [NOT] CONTAINS string | [NOT] STARTSWITH string | [NOT] ENDSWITH string
                      | [NOT] BETWEEN unary AND unary | [NOT] IN ( string , … ) )*
    unary       + unary | - unary | NOT unary | literal | name | ( or )

NOT has the highest precedence: ``NOT a = 1`` is ``(NOT a) = 1``, and never true.

The parser has two stacks, one of values and one of operators that wait for their right operand, and
no recursion. An operator is applied when one of the same or a lower precedence follows.
"""

from collections.abc import Callable
from typing import NamedTuple

from rockhopper.protocol.errors import SqlSyntaxError
from rockhopper.protocol.sql92 import expressions as ex
from rockhopper.protocol.sql92.lexer import END, FLOAT, NAME, STRING, WHOLE, Lexer, Token

VALUES_MAX = 1500
"""The maximum of properties and literals in one expression: parsing so many takes some 15 ms."""
SEARCHES_MAX = 100
"""The maximum of CONTAINS in one expression: each searches a property of up to 32 kB."""

_OPEN, _OR, _AND, _EQUALITY, _COMPARISON, _UNARY = range(6)
_PREFIXES = frozenset({"+", "-", "NOT"})
_BINARY = {"OR": _OR, "AND": _AND, "=": _EQUALITY, "<>": _EQUALITY}
_BINARY |= dict.fromkeys(ex.ORDERS, _COMPARISON)
_TEXT_TESTS = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
_AFTER_NOT = _TEXT_TESTS | {"BETWEEN", "IN"}
_TESTS = _AFTER_NOT | {"NOT"}
_COMPARISONS = _TESTS | ex.ORDERS.keys()
# BETWEEN waits twice: for AND, and then for its upper bound.
_LOW, _NOT_LOW, _HIGH, _NOT_HIGH = "BETWEEN", "NOT BETWEEN", "BETWEEN AND", "NOT BETWEEN AND"
_HIGHS = {_LOW: _HIGH, _NOT_LOW: _NOT_HIGH}


class _Operator(NamedTuple):
    binding: int
    word: str
    position: int


class Parsed(NamedTuple):
    """A parsed expression.

    *rest* is the position of ignored text behind a complete expression. *alone* is the first
    property used as a condition, with its position. The reference accepts both. *names* are the
    names of all properties.
    """

    condition: ex.Node
    rest: int | None
    alone: tuple[str, int] | None
    names: tuple[str, ...]


class Parser:
    """Parses one expression."""

    def __init__(self, text: str) -> None:
        self._lexer = Lexer(text)
        self._token = Token(END, "", 0)
        self._values: list[ex.Node] = []
        self._properties: list[tuple[ex.Node, int]] = []
        self._operators: list[_Operator] = []
        self._open_count = 0
        self._value_count = self._search_count = 0
        # As in the reference, no comparison can follow IS NULL: it has left that grammar level.
        self._is_beyond_comparison = False

    def parse(self) -> Parsed:
        """Return the parsed expression. Raises SqlSyntaxError."""
        self._advance()
        while True:
            self._operand()
            if not self._goes_on():
                break
        if self._open_count:
            raise self._build_error("')' or an operator")
        self._reduce(_OR)
        token = self._token
        condition = self._make(0, lambda: ex.convert_to_condition(self._values.pop()))
        alone = next(
            ((node.name, place) for node, place in self._properties if node.is_alone and node.name),
            None,
        )
        names = tuple(dict.fromkeys(node.name for node, _ in self._properties if node.name))
        rest = None if token.kind == END else token.position
        return Parsed(condition, rest, alone, names)

    def _operand(self) -> None:
        """Parse prefixes, opening parentheses and the value behind them."""
        while True:
            token = self._token
            if token.kind in _PREFIXES:
                self._push(_UNARY, token.kind)
            elif token.kind == "(":
                self._push(_OPEN, "(")
                self._open_count += 1
            else:
                self._values.append(self._value(token))
                self._is_beyond_comparison = False
                self._advance()
                self._bind()
                return
            self._advance()

    def _value(self, token: Token) -> ex.Node:
        self._value_count += 1
        if self._value_count > VALUES_MAX:
            message = f"there are more than {VALUES_MAX} properties and literals"
            raise SqlSyntaxError(message, token.position)
        text = token.text
        match token.kind:
            case "name":
                node = ex.property_node(text)
                self._properties.append((node, token.position))
                return node
            case "string":
                return ex.constant(ex.ValueKind.TEXT, text)
            case "whole number":
                return self._make(token.position, lambda: ex.parse_whole_literal(text))
            case "number":
                return self._make(token.position, lambda: ex.float_literal(text))
            case "TRUE" | "FALSE":
                return ex.constant(ex.ValueKind.BOOLEAN, token.kind == "TRUE")
            case "NULL":
                return ex.constant(ex.ValueKind.NOTHING, None)
        raise self._build_error("a property, a literal or '('")

    def _bind(self) -> None:
        """Apply pending operators of the highest precedence to the value just completed."""
        while self._operators and self._operators[-1].binding == _UNARY:
            self._apply(self._operators.pop())
        if self._operators:
            top = self._operators[-1]
            if top.binding == _COMPARISON and top.word not in _HIGHS:
                self._apply(self._operators.pop())

    def _goes_on(self) -> bool:
        """Parse what follows a value, up to an operator that needs another operand."""
        while True:
            kind = self._token.kind
            if self._has_open_between:
                self._between_bounds()
                return True
            if kind == ")" and self._open_count:
                self._close()
            elif kind == "IS":
                self._is_null()
            elif kind in _COMPARISONS and self._is_beyond_comparison:
                return False
            elif kind in _TESTS:
                if self._test():
                    return True
            else:
                return self._binary(kind)

    @property
    def _has_open_between(self) -> bool:
        return bool(self._operators) and self._operators[-1].word in _HIGHS

    def _binary(self, kind: str) -> bool:
        """Parse an operator that needs another operand; False if there is none."""
        binding = _BINARY.get(kind)
        if binding is None:
            return False
        if binding != _COMPARISON:
            self._reduce(binding)
        self._push(binding, kind)
        self._advance()
        return True

    def _between_bounds(self) -> None:
        if self._token.kind != "AND":
            raise self._build_error("AND and the upper bound of BETWEEN")
        low = self._operators.pop()
        self._operators.append(low._replace(word=_HIGHS[low.word]))
        self._advance()

    def _close(self) -> None:
        self._reduce(_OR)
        self._operators.pop()
        self._open_count -= 1
        self._is_beyond_comparison = False
        self._advance()
        self._bind()

    def _is_null(self) -> None:
        self._reduce(_EQUALITY)
        position = self._token.position
        self._advance()
        is_negated = self._token.kind == "NOT"
        if is_negated:
            self._advance()
        if self._token.kind != "NULL":
            raise self._build_error("NULL" if is_negated else "NULL or NOT NULL")
        self._advance()
        self._is_beyond_comparison = True
        node = self._values.pop()
        node = self._make(position, lambda: ex.is_null(node))
        self._values.append(self._make(position, lambda: ex.negation(node)) if is_negated else node)

    def _test(self) -> bool:
        """Parse a test such as CONTAINS; return True for BETWEEN, which needs another operand."""
        position = self._token.position
        is_negated = self._token.kind == "NOT"
        if is_negated:
            self._advance()
            if self._token.kind not in _AFTER_NOT:
                raise self._build_error("CONTAINS, STARTSWITH, ENDSWITH, BETWEEN or IN")
        word = self._token.kind
        self._advance()
        if word == "BETWEEN":
            low = _NOT_LOW if is_negated else _LOW
            self._operators.append(_Operator(_COMPARISON, low, position))
            return True
        if word == "CONTAINS":
            self._search_count += 1
            if self._search_count > SEARCHES_MAX:
                raise SqlSyntaxError(f"there are more than {SEARCHES_MAX} CONTAINS", position)
        strings = self._list() if word == "IN" else [self._string()]
        node = self._values.pop()

        def make() -> ex.Node:
            if word == "IN":
                return ex.one_of(node, strings, is_negated=is_negated)
            return ex.contains(word, node, strings[0], is_negated=is_negated)

        self._values.append(self._make(position, make))
        return False

    def _list(self) -> list[str]:
        self._require("(", "'(' and strings in single quotes")
        strings = [self._string()]
        while self._token.kind == ",":
            self._advance()
            strings.append(self._string())
        self._require(")", "',' or ')'")
        return strings

    def _string(self) -> str:
        text = self._token.text
        self._require(STRING, "a string in single quotes")
        return text

    def _push(self, binding: int, word: str) -> None:
        self._operators.append(_Operator(binding, word, self._token.position))

    def _reduce(self, binding: int) -> None:
        """Apply operators of at least this precedence, back to the last opening parenthesis."""
        while self._operators and self._operators[-1].binding >= binding:
            self._apply(self._operators.pop())

    def _apply(self, op: _Operator) -> None:
        values = self._values
        right = values.pop()
        if op.binding == _UNARY:
            values.append(self._make(op.position, lambda: _parse_prefixed(op.word, right)))
            return
        left = values.pop()
        if op.word in (_HIGH, _NOT_HIGH):
            build_between = ex.build_between if op.word == _HIGH else ex.not_between
            value = values.pop()
            values.append(self._make(op.position, lambda: build_between(value, left, right)))
            return
        values.append(self._make(op.position, lambda: _combine(op.word, left, right)))

    def _make(self, position: int, make: Callable[[], ex.Node]) -> ex.Node:
        try:
            return make()
        except ValueError as error:
            raise SqlSyntaxError(str(error), position) from None

    def _advance(self) -> None:
        self._token = self._lexer.next()

    def _require(self, kind: str, what: str) -> None:
        if self._token.kind != kind:
            raise self._build_error(what)
        self._advance()

    def _build_error(self, what: str) -> SqlSyntaxError:
        token = self._token
        if token.kind == END:
            found = "the expression ends"
        elif token.kind in (NAME, WHOLE, FLOAT):
            found = f"found {token.text[:50]}"
        elif token.kind == STRING:
            found = f"found the string '{token.text[:50]}'"
        else:
            found = f"found '{token.text}'"
        return SqlSyntaxError(f"expected {what}, but {found}", token.position)


def _parse_prefixed(word: str, node: ex.Node) -> ex.Node:
    if word == "NOT":
        return ex.negation(node)
    return ex.negative(node) if word == "-" else node


def _combine(word: str, left: ex.Node, right: ex.Node) -> ex.Node:
    if word in ("AND", "OR"):
        return ex.chain(word, left, right)
    if word == "=":
        return ex.equal(left, right)
    if word == "<>":
        return ex.negation(ex.equal(left, right))
    return ex.build_ordering(word, left, right)
