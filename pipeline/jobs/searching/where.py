"""Conditions in Spark's SQL that need no Spark: a part of it, over Arrow batches.

    OR, AND, NOT, brackets      with SQL's three values
    = == <> != < <= > >=        columns of numbers with integers, columns of text with text, or
                                two columns of one kind
    [NOT] BETWEEN … AND …, [NOT] IN (…), [NOT] LIKE '…', IS [NOT] NULL
    properties['name']          is text

Whatever else there is (other functions and columns, numbers compared with text, backslashes and
doubled quotes in text) is left to Spark: ``understood`` says None.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.schema import COLUMNS, arrow_schema

Predicate = Callable[[Any], Any]
"""From a batch to a boolean array, null where SQL says null."""

_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<number>-?\d{1,18}(?![\w.]))|(?P<text>'[^'\\]*'|\"[^\"\\]*\")"
    r"|`(?P<quoted>\w+)`|(?P<word>[A-Za-z_]\w*)|(?P<sign><=>|<=|>=|<>|!=|==|[=<>(),\[\]]))"
)
_COMPARISONS: dict[str, Any] = {
    "=": pc.equal,
    "==": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_KINDS = {
    field.name.lower(): (field.name, "text" if pa.types.is_string(field.type) else "number")
    for field in arrow_schema(COLUMNS)
    if pa.types.is_string(field.type) or pa.types.is_integer(field.type)
}
_MAP = "properties"
_DEPTH_MAX = 50


class Where(NamedTuple):
    """A condition that is understood."""

    columns: frozenset[str]
    mask: Predicate


class _Operand(NamedTuple):
    kind: str
    is_column: bool
    value: Callable[[Any], Any]
    """From a batch to an array or a scalar."""


class _NotUnderstood(Exception):
    pass


@lru_cache(maxsize=16)
def understood(condition: str) -> Where | None:
    """The condition, if all of it is in the part that needs no Spark."""
    try:
        parser = _Parser(list(_tokens(condition)))
        mask = parser.either(0)
        if parser.next_kind():
            return None
    except _NotUnderstood:
        return None
    return Where(frozenset(parser.columns), mask)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, text = 0, text.rstrip(" \t\r\n")
    if "${" in text:
        raise _NotUnderstood  # Spark puts values of its settings there
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise _NotUnderstood
        if found.end() < len(text) and found.lastgroup == "text" and text[found.end()] in "'\"":
            raise _NotUnderstood  # a doubled quote, or text behind text
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


class _Parser:
    """Descends from OR to operands, as Spark's grammar binds them."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self.columns: set[str] = set()

    def next_kind(self) -> str:
        """Of which kind the next token is; empty at the end."""
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def either(self, depth: int) -> Predicate:
        """Terms with OR between them."""
        if depth > _DEPTH_MAX:
            raise _NotUnderstood
        found = self._both(depth)
        while self._takes("OR"):
            found = _joined(pc.or_kleene, found, self._both(depth))
        return found

    def _both(self, depth: int) -> Predicate:
        found = self._negated(depth)
        while self._takes("AND"):
            found = _joined(pc.and_kleene, found, self._negated(depth))
        return found

    def _negated(self, depth: int) -> Predicate:
        if self._takes("NOT"):
            if depth > _DEPTH_MAX:
                raise _NotUnderstood
            return _inverted(self._negated(depth + 1))
        if self._takes("("):
            found = self.either(depth + 1)
            self._must(")")
            return found
        return self._comparison()

    def _comparison(self) -> Predicate:
        left = self._operand()
        for sign, compare in _COMPARISONS.items():
            if self._takes(sign):
                return self._compared(left, compare, self._operand())
        if not left.is_column:
            raise _NotUnderstood
        if self._takes("IS"):
            is_not = self._takes("NOT")
            self._must("NULL")
            return _is_null(left) if not is_not else _inverted(_is_null(left))
        is_not = self._takes("NOT")
        found = self._of_one_column(left)
        return _inverted(found) if is_not else found

    def _of_one_column(self, left: _Operand) -> Predicate:
        if self._takes("BETWEEN"):
            low = self._compared(left, pc.greater_equal, self._operand())
            self._must("AND")
            return _joined(pc.and_kleene, low, self._compared(left, pc.less_equal, self._operand()))
        if self._takes("IN"):
            self._must("(")
            found = self._compared(left, pc.equal, self._operand())
            while self._takes(","):
                found = _joined(
                    pc.or_kleene, found, self._compared(left, pc.equal, self._operand())
                )
            self._must(")")
            return found
        if self._takes("LIKE") and left.kind == self.next_kind() == "text":
            return _like(left, self._literal())
        raise _NotUnderstood

    def _compared(self, left: _Operand, compare: Any, right: _Operand) -> Predicate:
        if left.kind != right.kind or not (left.is_column or right.is_column):
            raise _NotUnderstood
        return lambda batch: compare(left.value(batch), right.value(batch))

    def _operand(self) -> _Operand:
        kind = self.next_kind()
        if kind == "text":
            text = pa.scalar(self._literal(), pa.string())
            return _Operand("text", False, lambda _: text)
        if kind == "number":
            number = pa.scalar(int(self._take()), pa.int64())
            return _Operand("number", False, lambda _: number)
        if kind not in ("word", "quoted"):
            raise _NotUnderstood
        name = self._take().lower()
        if name == _MAP:
            return self._property()
        if name not in _KINDS:
            raise _NotUnderstood
        column, of_kind = _KINDS[name]
        self.columns.add(column)
        return _Operand(of_kind, True, lambda batch: batch.column(column))

    def _property(self) -> _Operand:
        self._must("[")
        if self.next_kind() != "text":
            raise _NotUnderstood
        name = self._literal()
        self._must("]")
        self.columns.add(_MAP)
        return _Operand("text", True, lambda batch: _of_map(batch.column(_MAP), name))

    def _literal(self) -> str:
        return self._take()[1:-1]

    def _take(self) -> str:
        if self._at == len(self._tokens):
            raise _NotUnderstood
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _takes(self, wanted: str) -> bool:
        """Step over a word or sign, if it is the next."""
        if self.next_kind() not in ("word", "sign"):
            return False
        is_next = self._tokens[self._at][1].upper() == wanted
        self._at += is_next
        return is_next

    def _must(self, wanted: str) -> None:
        if not self._takes(wanted):
            raise _NotUnderstood


def _joined(join: Any, one: Predicate, other: Predicate) -> Predicate:
    return lambda batch: join(one(batch), other(batch))


def _inverted(found: Predicate) -> Predicate:
    return lambda batch: pc.invert(found(batch))


def _is_null(operand: _Operand) -> Predicate:
    return lambda batch: pc.is_null(operand.value(batch))


def _of_map(maps: Any, name: str) -> Any:
    return pc.map_lookup(maps, pa.scalar(name, pa.string()), "first")


def _like(operand: _Operand, pattern: str) -> Predicate:
    wild = {"%": ".*", "_": "."}
    matches = re.compile("".join(wild.get(c, re.escape(c)) for c in pattern), re.DOTALL).fullmatch

    def mask(batch: Any) -> Any:
        values = operand.value(batch).to_pylist()
        found = [None if value is None else matches(value) is not None for value in values]
        return pa.array(found, pa.bool_())

    return mask
