"""Any text is an expression or is refused, and any property can be compared or makes no match."""

import random

from hypothesis import given
from hypothesis import strategies as st

from rockhopper.protocol.errors import SqlSyntaxError
from rockhopper.protocol.sql92.sql_filter import SqlFilter
from tests.support.sql_grammar import random_expression

WORDS = st.sampled_from(
    ["a", "b", "1", "1.5", "'x'", "=", "<", "(", ")", "NOT", "AND", "IN", "IS", "NULL", "'", "--"]
)
TEXTS = st.text(max_size=60) | st.lists(WORDS, max_size=20).map(" ".join)
PROPERTIES = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d", "zz"]),
    st.text(max_size=20) | st.integers().map(str) | st.floats().map(str),
)


def compiled_or_refused(text: str) -> SqlFilter | int:
    """The filter, or the place of the refusal."""
    try:
        return SqlFilter(text)
    except SqlSyntaxError as error:
        return error.position


@given(TEXTS, PROPERTIES)
def test_any_text_is_evaluated_or_refused_at_a_place(text: str, properties: dict[str, str]) -> None:
    compiled = compiled_or_refused(text)
    if isinstance(compiled, int):
        assert 0 <= compiled <= len(text)
        return
    assert compiled.matches(properties) in (True, False)
    assert compiled.ignored_from is None or 0 < compiled.ignored_from < len(text)


@given(st.randoms(use_true_random=False), PROPERTIES)
def test_blanks_and_outer_parentheses_change_nothing(
    source: random.Random, properties: dict[str, str]
) -> None:
    text = random_expression(source)
    try:
        compiled = SqlFilter(text)
        compiled.check_meant()
    except SqlSyntaxError:
        return
    wrapped = SqlFilter(f"/* all */ (\n( {text}\n) )")
    assert wrapped.matches(properties) is compiled.matches(properties)
