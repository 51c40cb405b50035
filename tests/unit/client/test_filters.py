"""Filters: tags or an expression, refused at once where a broker would refuse or ignore them."""

import pytest

from rockhopper.client.filters import Sql, make_subscription
from rockhopper.protocol.errors import ProtocolError


@pytest.mark.parametrize(
    "expression", ["price > 5", "price > 5 AND region = 'eu'", "TAGS IN ('a', 'b')"]
)
def test_an_expression_that_compiles_is_taken_as_it_is(expression: str) -> None:
    subscription = make_subscription("orders", Sql(expression), 7)
    assert (subscription.topic, subscription.expression) == ("orders", expression)
    assert (subscription.expression_type, subscription.version) == ("SQL92", 7)


@pytest.mark.parametrize("expression", ["", "price >", "price > 5 )", "price", "a = 1 b = 2"])
def test_an_expression_that_nobody_means_is_refused(expression: str) -> None:
    with pytest.raises((ProtocolError, ValueError)):
        Sql(expression)


@pytest.mark.parametrize(
    ("wanted", "expression"), [("a || b", "a || b"), ("*", "*"), (None, "*"), ("", "*")]
)
def test_tags_are_a_subscription_by_tags(wanted: str | None, expression: str) -> None:
    subscription = make_subscription("orders", wanted)
    assert subscription.expression == expression
    assert subscription.expression_type == "TAG"
