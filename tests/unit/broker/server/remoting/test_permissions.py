"""Needs: what is asked of Access for a request, and what a refusal says."""

import pytest

from rockhopper.broker.server.remoting.dispatcher import Request
from rockhopper.broker.server.remoting.permissions import (
    ADMINISTRATION,
    RequiredPermission,
    check_access,
    name_optional_field,
    on_group,
    on_topic,
)
from rockhopper.broker.users.access import CLUSTER, Action, Resource, ResourceKind
from rockhopper.broker.users.errors import NoPermission
from rockhopper.protocol.command import Command
from tests.support.peers import Peer
from tests.support.rules import Rules

ORDERS = Resource(ResourceKind.TOPIC, "orders")
BILLING = Resource(ResourceKind.GROUP, "billing")
PULLS = (on_topic(Action.SUB), on_group(Action.SUB))


def request(**ext: str) -> Request:
    return Request(Peer("10.0.0.7").connection, Command(11, ext=ext))


def test_all_needs_must_be_met() -> None:
    rules = Rules((Action.SUB, ORDERS))
    asked = request(topic="orders", consumerGroup="billing")
    with pytest.raises(
        NoPermission, match=r"nobody at 10.0.0.7 is not allowed to Sub Group:billing"
    ):
        check_access(rules, asked, PULLS)
    rules.allowed.add((Action.SUB, BILLING))
    check_access(rules, asked, PULLS)


def test_a_refusal_names_all_that_is_missing() -> None:
    asked = request(topic="orders", consumerGroup="billing")
    text = "^nobody at 10.0.0.7 is not allowed to Sub Topic:orders, nor Sub Group:billing$"
    with pytest.raises(NoPermission, match=text):
        check_access(Rules(), asked, PULLS)


def test_a_refusal_for_very_much_names_some_of_it() -> None:
    permissions = [
        RequiredPermission(
            (Action.SUB,), ResourceKind.TOPIC, lambda _asked: [f"t{n}" for n in range(50)]
        )
    ]
    with pytest.raises(NoPermission, match=r"Sub Topic:t19, nor 30 more$"):
        check_access(Rules(), request(), permissions)


def test_any_action_of_a_need_is_enough() -> None:
    permission = on_topic(Action.PUB, Action.SUB)
    check_access(Rules((Action.SUB, ORDERS)), request(topic="orders"), [permission])
    with pytest.raises(NoPermission, match="is not allowed to Pub or Sub Topic:orders"):
        check_access(Rules((Action.GET, ORDERS)), request(topic="orders"), [permission])


def test_a_name_that_is_missing_is_allowed_to_nobody() -> None:
    with pytest.raises(NoPermission, match=r"Topic:$"):
        check_access(Rules((Action.SUB, ORDERS)), request(), [on_topic(Action.SUB)])


def test_a_name_that_may_be_missing_is_asked_for_where_it_is_there() -> None:
    permission = RequiredPermission(
        (Action.SUB,), ResourceKind.GROUP, name_optional_field("consumerGroup")
    )
    check_access(Rules(), request(), [permission])
    with pytest.raises(NoPermission):
        check_access(Rules(), request(consumerGroup="billing"), [permission])


@pytest.mark.parametrize("action", [Action.PUB, Action.SUB])
def test_a_retry_topic_stands_for_its_group(action: Action) -> None:
    rules = Rules((Action.SUB, BILLING))
    check_access(rules, request(topic="%RETRY%billing"), [on_topic(action)])
    assert [resource for _, _, resource in rules.asked] == [BILLING]


@pytest.mark.parametrize("action", [Action.PUB, Action.SUB])
def test_who_may_consume_in_a_group_may_not_touch_its_dead_letters(action: Action) -> None:
    asked = request(topic="%DLQ%billing")
    with pytest.raises(NoPermission, match=f"is not allowed to {action.value} Topic:%DLQ%billing"):
        check_access(Rules((Action.SUB, BILLING)), asked, [on_topic(action)])
    check_access(
        Rules((action, Resource(ResourceKind.TOPIC, "%DLQ%billing"))), asked, [on_topic(action)]
    )


def test_a_refusal_of_administration_names_the_setting() -> None:
    with pytest.raises(NoPermission, match=r"10\.0\.0\.7 is not this host: set remoteAdmin=true"):
        check_access(Rules(), request(), [ADMINISTRATION])
    check_access(Rules((Action.ADMINISTER, CLUSTER)), request(), [ADMINISTRATION])
