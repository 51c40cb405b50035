"""SqlFilter: one SQL92 expression, parsed, ready to be asked about messages."""

from collections import OrderedDict
from collections.abc import Mapping

from rockhopper.protocol.errors import SqlSyntaxError
from rockhopper.protocol.sql92.java_numbers import EvaluationError
from rockhopper.protocol.sql92.parser import Parser

EXPRESSION_LENGTH_MAX = 16_384
"""Characters of an expression: parsing one takes a few milliseconds at most."""

_CACHED_MAX = 1024


class SqlFilter:
    """What an expression lets through.

    ``ignored_from`` is where the text goes on although the expression is complete: the reference
    ignores what follows, and so does this; None if nothing follows. ``first_error`` is why a
    message did not match that could not be evaluated, for example ``'abc' is no whole number``.
    What it says of a message depends on the properties of ``property_names`` alone.
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
                f"the expression has {len(expression)} characters, "
                f"and {EXPRESSION_LENGTH_MAX} is the most",
                EXPRESSION_LENGTH_MAX,
            )
        parsed = Parser(expression).parse()
        self.expression = expression
        self.ignored_from = parsed.rest
        self.property_names = parsed.names
        self._alone = parsed.alone
        self.first_error: str | None = None
        self._evaluate = parsed.condition.evaluate

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether the expression is true of a message with these properties."""
        try:
            return self._evaluate(properties) is True
        except (EvaluationError, RecursionError) as error:
            if self.first_error is None:
                self.first_error = str(error)
            return False

    def verdict(self, properties: Mapping[str, str]) -> bool | None:
        """The value of the expression, where None is null. Raises EvaluationError."""
        value = self._evaluate(properties)
        assert value is None or isinstance(value, bool)
        return value

    def check_meant(self) -> None:
        """Refuse what compiles and cannot be meant.

        Raises:
            SqlSyntaxError: a part at the end would be ignored, or a property stands where a
                condition belongs, which is never true.
        """
        if self.ignored_from is not None:
            rest = self.expression[self.ignored_from : self.ignored_from + 50]
            raise SqlSyntaxError(
                f"the expression is complete before {rest!r}: an operator is expected there",
                self.ignored_from,
            )
        if self._alone is not None:
            name, position = self._alone
            raise SqlSyntaxError(
                f"the property {name} alone is no condition, and none matches it: compare it, "
                f"as in {name} = 'x', {name} = TRUE, {name} IS NOT NULL or NOT ({name} = 'x')",
                position,
            )


_cache: OrderedDict[str, SqlFilter] = OrderedDict()


def compile_filter(expression: str) -> SqlFilter:
    """The filter for *expression*, parsed once however many ask for it.

    Raises:
        SqlSyntaxError: RocketMQ refuses the expression, or it is too long or too deep.
    """
    found = _cache.get(expression)
    if found is None:
        found = _cache[expression] = SqlFilter(expression)
        if len(_cache) > _CACHED_MAX:
            _cache.popitem(last=False)
    return found
