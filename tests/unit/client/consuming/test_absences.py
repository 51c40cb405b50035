"""AbsentBrokers and AwaitedMembers: what has left for a moment, and for how long it is awaited."""

import pytest

from rockhopper.client.consuming.absences import AbsentBrokers, AwaitedMembers
from rockhopper.client.network.routing import TopicRoute


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def route(*brokers: str, topic: str = "orders") -> TopicRoute:
    return TopicRoute(topic, (), (), {name: {0: f"{name}:1"} for name in brokers})


def test_a_broker_is_absent_from_leaving_the_route_until_it_is_back(clock: Clock) -> None:
    absent = AbsentBrokers(clock)
    absent.compare_routes([route("a", "b")])
    assert not absent

    absent.compare_routes([route("a")])
    assert absent
    absent.compare_routes([route("a", "b")])
    assert not absent


def test_a_broker_that_is_away_for_ten_minutes_is_forgotten(clock: Clock) -> None:
    absent = AbsentBrokers(clock)
    absent.compare_routes([route("a", "b")])
    absent.compare_routes([route("a")])

    clock.now_s += 600.0
    absent.compare_routes([route("a")])
    assert absent
    clock.now_s += 0.1
    absent.compare_routes([route("a")])
    assert not absent
    absent.compare_routes([route("a")])
    assert not absent


def test_the_time_away_starts_again_after_each_return(clock: Clock) -> None:
    absent = AbsentBrokers(clock)
    for brokers in (("a", "b"), ("a",), ("a", "b"), ("a",)):
        absent.compare_routes([route(*brokers)])
        clock.now_s += 400.0
    absent.compare_routes([route("a")])
    assert absent


def test_a_broker_that_left_one_topic_is_absent_from_that_topic_only(clock: Clock) -> None:
    absent = AbsentBrokers(clock)
    absent.compare_routes([route("a"), route("a", topic="other")])

    absent.compare_routes([route(), route("a", topic="other")])
    assert absent
    absent.compare_routes([route("a")])
    assert not absent


def test_a_former_member_may_come_back_for_five_seconds(clock: Clock) -> None:
    awaited = AwaitedMembers(clock)
    assert not awaited.may_come_back("orders", ["one"])

    awaited.wait_for({"orders": ["one", "two"]})
    assert awaited.may_come_back("orders", ["one"])
    assert not awaited.may_come_back("orders", ["two", "one", "three"])
    assert not awaited.may_come_back("unknown", ["one"])
    clock.now_s += 5.0
    assert not awaited.may_come_back("orders", ["one"])


def test_a_second_restart_waits_longer_for_the_members_before_the_first(clock: Clock) -> None:
    awaited = AwaitedMembers(clock)
    awaited.wait_for({"orders": ["one", "two"]})
    clock.now_s += 4.0
    awaited.wait_for({"orders": ["one"]})
    clock.now_s += 4.0
    assert awaited.may_come_back("orders", ["one"])

    clock.now_s += 1.0
    awaited.wait_for({"orders": ["one"]})
    assert not awaited.may_come_back("orders", ["one"])


def test_later_changes_of_the_members_do_not_change_those_awaited(clock: Clock) -> None:
    members = {"orders": ["one", "two"]}
    awaited = AwaitedMembers(clock)
    awaited.wait_for(members)
    members["orders"] = ["one"]
    assert awaited.may_come_back("orders", ["one"])
