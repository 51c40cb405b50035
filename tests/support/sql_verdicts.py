"""Our verdicts on the truth table for SQL92, in the letters of interop.JavaFilter."""

from rockhopper.protocol.errors import SqlSyntaxError
from rockhopper.protocol.sql92.java_numbers import EvaluationError
from rockhopper.protocol.sql92.sql_filter import SqlFilter

_LETTERS = {True: "T", False: "F", None: "N"}
REFUSED = "refused"


def our_verdicts(expression: str, property_sets: list[dict[str, str]]) -> str:
    """Return ``refused``, or for each set T(rue), F(alse), N(ull), X for an error."""
    try:
        compiled = SqlFilter(expression)
    except SqlSyntaxError:
        return REFUSED
    return "".join(_letter(compiled, properties) for properties in property_sets)


def _letter(compiled: SqlFilter, properties: dict[str, str]) -> str:
    try:
        verdict = _LETTERS[compiled.verdict(properties)]
    except EvaluationError:
        verdict = "X"
    # The broker only asks whether it is true.
    assert compiled.matches(properties) is (verdict == "T")
    return verdict
