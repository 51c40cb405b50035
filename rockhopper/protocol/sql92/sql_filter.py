"""SqlFilter: one compiled SQL92 expression, evaluated against messages."""

from collections import OrderedDict
from collections.abc import Mapping

from rockhopper.protocol.errors import SqlSyntaxError
from rockhopper.protocol.sql92.java_numbers import EvaluationError

EXPRESSION_LENGTH_MAX = 16_384
"""The maximum length in characters: parsing takes a few milliseconds at most."""

_CACHED_MAX = 1024


class SqlFilter:
    """A compiled expression.

    ``ignored_from`` is the position of text behind a complete expression, which the reference
    ignores too; None if there is none. ``first_error`` is the first evaluation error, which made
    its message not match, for example ``'abc' is no whole number``. The result depends only on the
    properties in ``property_names``.
    """

    __slots__ = (
        "_alone",
        "_evaluate",
        "expression",
        "first_error",
        "ignored_from",
        "property_names",
    )

    def __init__(self, expression: str) -> None:
        """Raises SqlSyntaxError."""
        if len(expression) > EXPRESSION_LENGTH_MAX:
            raise SqlSyntaxError(
                f"the expression has {len(expression)} characters; {EXPRESSION_LENGTH_MAX} are "
                "allowed",
                EXPRESSION_LENGTH_MAX,
            )
        from rockhopper.protocol.sql92.parser import Parser  # few brokers see an expression

        parsed = Parser(expression).parse()
        self.expression = expression
        self.ignored_from = parsed.rest
        self.property_names = parsed.names
        self._alone = parsed.alone
        self.first_error: str | None = None
        self._evaluate = parsed.condition.evaluate

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether the expression is true for a message with these properties."""
        try:
            return self._evaluate(properties) is True
        except (EvaluationError, RecursionError) as error:
            if self.first_error is None:
                self.first_error = str(error)
            return False

    def verdict(self, properties: Mapping[str, str]) -> bool | None:
        """Return the value of the expression; None is null. Raises EvaluationError."""
        value = self._evaluate(properties)
        assert value is None or isinstance(value, bool)
        return value

    def check_meant(self) -> None:
        """Reject valid expressions that are probable mistakes.

        Raises:
            SqlSyntaxError: text at the end would be ignored, or a property is used as a condition,
                which is never true.
        """
        if self.ignored_from is not None:
            rest = self.expression[self.ignored_from : self.ignored_from + 50]
            raise SqlSyntaxError(
                f"expected an operator before {rest!r}",
                self.ignored_from,
            )
        if self._alone is not None:
            name, position = self._alone
            raise SqlSyntaxError(
                f"the property {name} alone is not a condition, so no message would match: "
                f"compare it, as in {name} = 'x', {name} = TRUE, {name} IS NOT NULL or NOT "
                f"({name} = 'x')",
                position,
            )


_cache: OrderedDict[str, SqlFilter] = OrderedDict()


def compile_filter(expression: str) -> SqlFilter:
    """Return the filter for *expression*, from a cache if possible.

    Raises:
        SqlSyntaxError: RocketMQ rejects the expression, or it is too long or too deep.
    """
    found = _cache.get(expression)
    if found is None:
        found = _cache[expression] = SqlFilter(expression)
        if len(_cache) > _CACHED_MAX:
            _cache.popitem(last=False)
    return found
