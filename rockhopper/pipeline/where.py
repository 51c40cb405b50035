"""Evaluate conditions in a subset of Spark's SQL without Spark, over Arrow batches.

    OR, AND, NOT, brackets      with SQL's three values
    = == <> != < <= > >=        columns of numbers with integers, columns of text with text, or
                                two columns of one kind
    [NOT] BETWEEN … AND …, [NOT] IN (…), [NOT] LIKE '…', IS [NOT] NULL
    properties['name']          is text

For anything else, ``parse_where`` returns None, and Spark must evaluate it: other functions and
columns, numbers compared with text, backslashes and doubled quotes in text.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.options import Options
from rockhopper.pipeline.schema import COLUMNS, arrow_schema

Predicate = Callable[[Any], Any]
"""Maps a batch to a boolean array, with null as in SQL."""

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
_STORED = ("tags", "keys")
_DEPTH_MAX = 50


class Where(NamedTuple):
    """A parsed condition."""

    columns: frozenset[str]
    mask: Predicate
    needles: tuple[bytes, ...]
    """Byte strings that a matching record must contain, all of them."""
    asks_for_nulls: bool

    def matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the matching rows of *batch*, which must have the columns."""
        mask = pc.fill_null(self.mask(batch), False)
        return batch if pc.all(mask, min_count=0).as_py() else batch.filter(mask)

    def may_hold(self, topic: str, broker_name: str, queue_id: int) -> bool:
        """Return whether messages of that queue may match, as far as the condition names queues."""
        if self.asks_for_nulls:  # here null is a result; below it means unknown
            return True
        known = {"topic": topic, "brokerName": broker_name, "queueId": queue_id}
        batch = pa.RecordBatch.from_pylist([known], schema=arrow_schema(COLUMNS))
        return self.mask(batch)[0].as_py() is not False


class _ParsedCondition(NamedTuple):
    mask: Predicate
    needles: tuple[bytes, ...] = ()


class _Operand(NamedTuple):
    kind: str
    is_column: bool
    value: Callable[[Any], Any]
    """Maps a batch to an array or a scalar."""
    is_stored: bool = False
    """Whether a record stores the value unchanged."""
    literal: str = ""


class _NotUnderstood(Exception):
    pass


@lru_cache(maxsize=16)
def parse_where(condition: str) -> Where | None:
    """Parse the condition; return None if any part of it needs Spark."""
    try:
        parser = _ConditionParser(list(_tokens(condition)))
        found = parser.either(0)
        if parser.next_kind():
            return None
    except _NotUnderstood:
        return None
    return Where(frozenset(parser.columns), found.mask, found.needles, parser.asks_for_nulls)


def read_where(options: Options) -> str:
    """Return the option ``where`` of a source, blank if it is not set. Raises PipelineError."""
    condition = options.text("where")
    if condition and parse_where(condition) is None:
        raise PipelineError(
            f"the option where is {condition!r}, which is more than a source understands: compare "
            "columns of text and of numbers, and properties['name'], with values or each other "
            "(=, <>, <, BETWEEN, IN, LIKE, IS NULL, AND, OR, NOT), and leave the rest to "
            ".where(...) of the frame"
        )
    return condition


def with_columns(columns: tuple[str, ...], where: Where | None) -> tuple[str, ...]:
    """Append the columns of *where* that are missing in *columns*."""
    more = where.columns.difference(columns) if where is not None else ()
    return (*columns, *sorted(more))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, text = 0, text.rstrip(" \t\r\n")
    if "${" in text:
        raise _NotUnderstood  # Spark inserts the values of its settings there
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise _NotUnderstood
        if found.end() < len(text) and found.lastgroup == "text" and text[found.end()] in "'\"":
            raise _NotUnderstood  # a doubled quote, or two strings in a row
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


class _ConditionParser:
    """A recursive-descent parser, from OR down to operands, with Spark's precedence."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self.columns: set[str] = set()
        self.asks_for_nulls = False

    def next_kind(self) -> str:
        """Return the kind of the next token; empty at the end."""
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def either(self, depth: int) -> _ParsedCondition:
        """Parse terms joined by OR."""
        if depth > _DEPTH_MAX:
            raise _NotUnderstood
        found = self._both(depth)
        while self._takes("OR"):
            found = _either(found, self._both(depth))
        return found

    def _both(self, depth: int) -> _ParsedCondition:
        found = self._negated(depth)
        while self._takes("AND"):
            found = _both(found, self._negated(depth))
        return found

    def _negated(self, depth: int) -> _ParsedCondition:
        if self._takes("NOT"):
            if depth > _DEPTH_MAX:
                raise _NotUnderstood
            return _inverted(self._negated(depth + 1))
        if self._takes("("):
            found = self.either(depth + 1)
            self._must(")")
            return found
        return self._comparison()

    def _comparison(self) -> _ParsedCondition:
        left = self._operand()
        for sign, compare in _COMPARISONS.items():
            if self._takes(sign):
                return self._compared(left, compare, self._operand())
        if not left.is_column:
            raise _NotUnderstood
        if self._takes("IS"):
            is_not = self._takes("NOT")
            self._must("NULL")
            self.asks_for_nulls = True
            return _is_null(left) if not is_not else _inverted(_is_null(left))
        is_not = self._takes("NOT")
        found = self._of_one_column(left)
        return _inverted(found) if is_not else found

    def _of_one_column(self, left: _Operand) -> _ParsedCondition:
        if self._takes("BETWEEN"):
            low = self._compared(left, pc.greater_equal, self._operand())
            self._must("AND")
            return _both(low, self._compared(left, pc.less_equal, self._operand()))
        if self._takes("IN"):
            self._must("(")
            found = self._compared(left, pc.equal, self._operand())
            while self._takes(","):
                found = _either(found, self._compared(left, pc.equal, self._operand()))
            self._must(")")
            return found
        if self._takes("LIKE") and left.kind == self.next_kind() == "text":
            return _like(left, self._literal())
        raise _NotUnderstood

    def _compared(self, left: _Operand, compare: Any, right: _Operand) -> _ParsedCondition:
        if left.kind != right.kind or not (left.is_column or right.is_column):
            raise _NotUnderstood
        needle = left.literal or right.literal
        is_held = compare is pc.equal and (left.is_stored or right.is_stored)
        # The decoder substitutes this character for bytes that are not UTF-8.
        has_needle = is_held and needle and "\ufffd" not in needle
        return _ParsedCondition(
            lambda batch: compare(left.value(batch), right.value(batch)),
            (needle.encode(),) if has_needle else (),
        )

    def _operand(self) -> _Operand:
        kind = self.next_kind()
        if kind == "text":
            literal = self._literal()
            text = pa.scalar(literal, pa.string())
            return _Operand("text", False, lambda _: text, literal=literal)
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
        is_stored = column in _STORED
        return _Operand(of_kind, True, lambda batch: batch.column(column), is_stored)

    def _property(self) -> _Operand:
        self._must("[")
        if self.next_kind() != "text":
            raise _NotUnderstood
        name = self._literal()
        self._must("]")
        self.columns.add(_MAP)
        return _Operand("text", True, lambda batch: _of_map(batch.column(_MAP), name), True)

    def _literal(self) -> str:
        return self._take()[1:-1]

    def _take(self) -> str:
        if self._at == len(self._tokens):
            raise _NotUnderstood
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _takes(self, wanted: str) -> bool:
        """Consume the next token if it is the word or sign *wanted*."""
        if self.next_kind() not in ("word", "sign"):
            return False
        is_next = self._tokens[self._at][1].upper() == wanted
        self._at += is_next
        return is_next

    def _must(self, wanted: str) -> None:
        if not self._takes(wanted):
            raise _NotUnderstood


def _both(one: _ParsedCondition, other: _ParsedCondition) -> _ParsedCondition:
    return _ParsedCondition(
        lambda batch: pc.and_kleene(one.mask(batch), other.mask(batch)), one.needles + other.needles
    )


def _either(one: _ParsedCondition, other: _ParsedCondition) -> _ParsedCondition:
    return _ParsedCondition(lambda batch: pc.or_kleene(one.mask(batch), other.mask(batch)))


def _inverted(found: _ParsedCondition) -> _ParsedCondition:
    return _ParsedCondition(lambda batch: pc.invert(found.mask(batch)))


def _is_null(operand: _Operand) -> _ParsedCondition:
    return _ParsedCondition(lambda batch: pc.is_null(operand.value(batch)))


def _of_map(maps: Any, name: str) -> Any:
    return pc.map_lookup(maps, pa.scalar(name, pa.string()), "first")


def _like(operand: _Operand, pattern: str) -> _ParsedCondition:
    wild = {"%": ".*", "_": "."}
    matches = re.compile("".join(wild.get(c, re.escape(c)) for c in pattern), re.DOTALL).fullmatch

    def mask(batch: Any) -> Any:
        values = operand.value(batch).to_pylist()
        found = [None if value is None else matches(value) is not None for value in values]
        return pa.array(found, pa.bool_())

    return _ParsedCondition(mask)
