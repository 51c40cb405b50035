"""PullFilters: what is logged of expressions, once for each group."""

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.pull.pull_filters import PullFilters, RetryFilter
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.users.errors import Refusal
from rockhopper.protocol.subscription import TYPE_SQL92, Subscription


def logged(filters: PullFilters, expression: str, group: str = "g") -> list[tuple[str, str]]:
    """Events and reasons that using an expression logs."""
    with capture_logs() as logs:
        try:
            chosen = filters.build_requested(group, "T", expression, TYPE_SQL92)
        except Refusal:
            filters.warn(group, Subscription("T", expression, TYPE_SQL92))
        else:
            assert chosen is not None
            assert chosen.matches_properties is not None
            chosen.matches_properties({"price": "cheap"})
            filters.build_requested(group, "T", expression, TYPE_SQL92)
    return [(entry["event"], entry["reason"]) for entry in logs]


@pytest.mark.parametrize(
    ("expression", "event", "reason"),
    [
        ("price > ", "does not compile", "the expression ends"),
        ("price > 5 ADN x = 1", "is ignored", "ADN x = 1"),
        ("price > 8", "cannot be evaluated", "'cheap' is not a whole number"),
    ],
)
def test_what_is_wrong_with_an_expression_is_logged_once_for_each_group(
    expression: str, event: str, reason: str
) -> None:
    filters = PullFilters(BrokerConfig())
    ((said, why),) = logged(filters, expression)
    assert event in said
    assert reason in why
    assert logged(filters, expression) == []
    assert len(logged(filters, expression, "other")) == 1


def test_nothing_is_logged_of_a_good_expression() -> None:
    assert logged(PullFilters(BrokerConfig()), "price = 'cheap'") == []


def test_no_filter_is_made_of_what_wants_everything() -> None:
    filters = PullFilters(BrokerConfig())
    assert filters.build_requested("g", "T", "*", "TAG") is None
    assert filters.build_requested("g", "T", "a", "TAG") == Subscription("T", "a")
    assert filters.build_requested("g", "T", "a", "TAG") is filters.build_requested(
        "h", "T", "a", "TAG"
    )


@pytest.mark.parametrize(
    ("is_wanted", "topic", "is_both"),
    [("true", "%RETRY%g", True), ("true", "orders", False), ("false", "%RETRY%g", False)],
)
def test_only_where_it_is_wanted_do_retries_go_by_the_filter_of_their_topic(
    is_wanted: str, topic: str, is_both: bool
) -> None:
    filters = PullFilters(build_config({"filterSupportRetry": is_wanted}))
    chosen = Subscription(topic, "a")
    found = filters.on_retry_topic(chosen, "g", topic, lambda _: None)
    assert isinstance(found, RetryFilter) is is_both
    assert (found is chosen) is not is_both


@pytest.mark.parametrize("is_wanted", ["true", "false"])
@pytest.mark.parametrize(
    ("topic", "lets_popped"), [("%RETRY%g_orders", False), ("%RETRY%other_group", True)]
)
def test_a_group_does_not_pull_what_another_popped(
    is_wanted: str, topic: str, lets_popped: bool
) -> None:
    filters = PullFilters(build_config({"filterSupportRetry": is_wanted}))
    found = filters.on_retry_topic(None, "g_orders", topic, lambda _: None)
    matches = (lambda _: True) if found is None else found.matches_properties
    assert matches is not None
    assert matches({"1ST_POP_TIME": "5"}) is lets_popped
    assert matches({"1ST_POP_TIME": "5", "RETRY_TOPIC": "orders"})
    assert matches({})
