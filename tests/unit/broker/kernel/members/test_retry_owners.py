"""For whom messages wait in a retry topic whose name may be several's."""

from pathlib import Path

import pytest

from rockhopper.broker.users.access import Action, Resource, ResourceKind
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.peers import Clock
from tests.support.rules import Rules
from tests.support.served_broker import ServedBroker

SHARED = "%RETRY%orders_paid"


@pytest.fixture
def popped(broker: ServedBroker) -> ServedBroker:
    """A broker of a group `orders` that has popped from a topic `paid`."""
    broker.create_topic("paid")
    broker.tables.offsets.commit("paid", "orders", 0, 0)
    return broker


async def test_a_name_stands_for_who_popped_where_no_group_has_it(popped: ServedBroker) -> None:
    assert popped.kernel.retry_owners.owners(SHARED) == {("orders", "paid")}
    assert popped.kernel.retry_owners.groups(SHARED) == ["orders"]


async def test_a_group_of_that_name_comes_first(popped: ServedBroker) -> None:
    popped.tables.groups.find_or_create("orders_paid")
    assert popped.kernel.retry_owners.owners(SHARED) == {("orders", "paid"), ("orders_paid", "")}
    assert popped.kernel.retry_owners.groups(SHARED) == ("orders_paid",)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("%RETRY%orders_paid+late", "orders_paid"),
        ("%RETRY%nobody_paid", "nobody_paid"),
        ("%RETRY%orders_unpaid", "orders_unpaid"),
        ("%RETRY%billing", "billing"),
    ],
)
async def test_other_names_stand_for_the_group_in_them(
    popped: ServedBroker, name: str, group: str
) -> None:
    assert popped.kernel.retry_owners.groups(name) == (group,)


@pytest.mark.parametrize(("group", "is_allowed"), [("orders", True), ("orders_paid", False)])
async def test_permissions_are_those_of_who_popped(
    tmp_path: Path, group: str, is_allowed: bool
) -> None:
    rules = Rules((Action.GET, Resource(ResourceKind.GROUP, group)))
    served = ServedBroker(tmp_path, Clock(), {}, rules)
    rules.retry_owners = served.kernel.retry_owners
    served.create_topic("paid")
    served.create_topic(SHARED)
    served.tables.offsets.commit("paid", "orders", 0, 0)
    asked = {"topic": SHARED, "queueId": "0"}
    answer = await served.ask(RequestCode.GET_MAX_OFFSET, asked)
    assert (answer.code == ResponseCode.SUCCESS) is is_allowed, answer.remark
    await served.close()
