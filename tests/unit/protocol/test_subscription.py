"""Subscriptions: what an expression lets through."""

import pytest

from rockhopper.protocol.errors import SqlSyntaxError, SubscriptionError
from rockhopper.protocol.subscription import Subscription


@pytest.mark.parametrize("expression", ["*", "", None, " * ", "  "])
def test_star_or_nothing_means_everything(expression: str | None) -> None:
    subscription = Subscription("T", expression)
    assert subscription.expression == "*"
    assert subscription.matches_all
    assert subscription.matches_hash(0)
    assert subscription.matches_hash(12345)
    assert subscription.matches_tag(None)
    assert subscription.matches_tag("x")


def test_tags_are_split_and_trimmed() -> None:
    subscription = Subscription("T", " TagA || TagB||||标签 ")
    assert subscription.tags == {"TagA", "TagB", "标签"}
    assert subscription.tag_hashes == {2598919, 2598920, 857175}
    assert not subscription.matches_all


def test_broker_compares_hashes_and_client_tags() -> None:
    subscription = Subscription("T", "Aa")
    assert subscription.matches_hash(2112)
    assert not subscription.matches_hash(0)
    assert subscription.matches_tag("Aa")
    assert not subscription.matches_tag("BB"), "which has the same hash"
    assert not subscription.matches_tag(None)


@pytest.mark.parametrize("expression", ["||", " || || "])
def test_only_separators_are_refused(expression: str) -> None:
    with pytest.raises(SubscriptionError, match="names no tag"):
        Subscription("T", expression)


@pytest.mark.parametrize("expression_type", [None, "", "TAG"])
def test_no_type_means_tag(expression_type: str | None) -> None:
    assert Subscription("T", "a", expression_type).tags == {"a"}


def test_sql_lets_every_tag_through_and_asks_for_properties() -> None:
    subscription = Subscription("T", "a > 1 AND TAGS = 'x'", "SQL92")
    assert subscription.is_sql
    assert not subscription.matches_all
    assert subscription.matches_hash(0)
    assert subscription.matches_tag(None)
    assert subscription.tags == frozenset()
    assert subscription.matches_properties is not None
    assert subscription.matches_properties({"a": "2", "TAGS": "x"})
    assert not subscription.matches_properties({"a": "2", "TAGS": "y"})
    assert Subscription("T", "a").matches_properties is None


def test_sql_that_does_not_compile_is_a_subscription_until_it_is_used() -> None:
    subscription = Subscription("T", "a > ", "SQL92")
    assert subscription == Subscription("T", "a > ", "SQL92")
    with pytest.raises(SqlSyntaxError, match="expected a property"):
        _ = subscription.sql


@pytest.mark.parametrize(("expression", "kind"), [("", "SQL92"), (None, "SQL92"), ("a", "REGEX")])
def test_empty_sql_and_unknown_types_are_refused(expression: str | None, kind: str) -> None:
    with pytest.raises(SubscriptionError):
        Subscription("T", expression, kind)


def test_subscriptions_compare_by_value() -> None:
    assert Subscription("T", "a", version=1) == Subscription("T", "a", version=1)
    assert hash(Subscription("T")) == hash(Subscription("T", None))
    assert Subscription("T", "a", version=1) != Subscription("T", "a", version=2)
    assert Subscription("T") != "T"
    assert repr(Subscription("T")) == "Subscription('T', '*', 'TAG', 0)"


@pytest.mark.parametrize(
    ("wide", "narrow", "covers", "is_covered"),
    [
        (("*", "TAG"), ("a", "TAG"), True, False),
        (("*", "TAG"), ("price > 5", "SQL92"), True, False),
        (("a || b", "TAG"), ("b", "TAG"), True, False),
        (("a || b", "TAG"), ("b||a", "TAG"), True, True),
        (("a || b", "TAG"), ("b || c", "TAG"), False, False),
        (("price > 3", "SQL92"), ("price > 5", "SQL92"), False, False),
        (("price > 3", "SQL92"), (" price  >  3 ", "SQL92"), True, True),
        (("TAGS = 'a'", "SQL92"), ("a", "TAG"), False, False),
    ],
)
def test_one_covers_the_other_if_it_surely_wants_all_of_it(
    wide: tuple[str, str], narrow: tuple[str, str], covers: bool, is_covered: bool
) -> None:
    one, other = Subscription("T", *wide), Subscription("T", *narrow)
    assert (one.covers(other), other.covers(one)) == (covers, is_covered)
