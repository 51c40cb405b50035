"""Topics by pattern: what is one, what it finds, what it forgets."""

import re
from typing import Any, cast

import pytest

from rockhopper.client.consuming.face.patterns import (
    TopicFinder,
    TopicPattern,
    compile_pattern,
    is_pattern,
)
from rockhopper.protocol.bodies import TopicList
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.subscription import Subscription


class Services:
    """A session whose name servers know these topics, and how often each code was asked."""

    def __init__(self, *topics: str) -> None:
        self.topics = set(topics)
        self.asked: list[int] = []
        self.forgotten: list[str] = []
        self.name_services = self.routes = self

    async def ask(self, code: RequestCode) -> Command:
        self.asked.append(code)
        is_system = code == RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS
        names = ["cluster_a", "broker_a"] if is_system else sorted(self.topics)
        return Command(0, body=TopicList(names).encode())

    def forget(self, topic: str) -> None:
        self.forgotten.append(topic)


def finder(services: Services, expression: str, named: str | None = None) -> TopicFinder:
    found = {named: Subscription(named)} if named else {}
    pattern = TopicPattern(re.compile(expression), "new")
    return TopicFinder(cast(Any, services), [pattern], found, 7)


@pytest.mark.parametrize("topic", ["orders.*", "orders_[0-9]+", "^a$", re.compile("orders")])
def test_what_no_topic_can_be_called_is_a_pattern(topic: Any) -> None:
    assert is_pattern(topic)
    assert compile_pattern(topic).pattern == getattr(topic, "pattern", topic)


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("*", r"write '\.\*'"),
        ("orders_*", r"write 'orders_\.\*'"),
        ("orders_(", "not a regular expression"),
    ],
)
def test_what_is_meant_as_something_else_is_refused(topic: str, reason: str) -> None:
    assert is_pattern(topic)
    with pytest.raises(ValueError, match=reason):
        compile_pattern(topic)


async def test_all_topics_are_those_of_applications() -> None:
    services = Services(
        "orders", "TBW102", "%RETRY%g", "%DLQ%g", "rmq_sys_x", "cluster_a", "broker_a"
    )
    services.topics.add("cluster_a_REPLY_TOPIC")
    found = finder(services, ".*")
    assert await found.look()
    assert sorted(found.found) == ["orders"]
    assert found.found["orders"].tags == {"new"}
    assert found.found["orders"].version == 7


async def test_a_topic_that_is_named_already_keeps_its_filter() -> None:
    found = finder(Services("orders", "orders_eu"), "orders.*", named="orders")
    await found.look()
    assert found.found["orders"].matches_all
    assert not found.found["orders_eu"].matches_all


async def test_it_asks_for_one_list_while_there_is_nothing_new() -> None:
    services = Services("orders", "returns")
    found = finder(services, "orders.*")
    assert await found.look()
    services.asked.clear()
    assert not await found.look()
    assert len(services.asked) == 1


async def test_a_topic_is_forgotten_after_a_while_and_found_again() -> None:
    services = Services("orders")
    found = finder(services, "orders.*")
    await found.look()
    services.topics.clear()
    changes = [await found.look() for _ in range(6)]
    assert changes == [False] * 5 + [True]
    assert services.forgotten == ["orders"]
    services.topics.add("orders")
    assert await found.look()
