"""Which queue a message goes to."""

from collections import Counter

import pytest

from rockhopper.client.errors import MessageRejectedError
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.queues import MessageQueue
from rockhopper.client.sending.queue_choice import (
    AVOIDANCE_S,
    QueueChoice,
    choose_queue,
    choose_queue_for_key,
)


def route(brokers: dict[str, int]) -> TopicRoute:
    queues = tuple(
        MessageQueue("orders", name, number)
        for name, count in brokers.items()
        for number in range(count)
    )
    return TopicRoute("orders", queues, queues, {name: {0: f"{name}:10911"} for name in brokers})


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_queues_take_turns() -> None:
    choice = QueueChoice(Clock())
    taken = Counter(choice.next(route({"a": 3, "b": 2})) for _ in range(50))
    assert set(taken.values()) == {10}


def test_a_broker_that_failed_in_this_send_is_passed_over() -> None:
    choice = QueueChoice(Clock())
    names = {choice.next(route({"a": 4, "b": 4}), frozenset("a")).broker_name for _ in range(16)}
    assert names == {"b"}


def test_an_avoided_broker_comes_back_after_a_while() -> None:
    clock = Clock()
    choice = QueueChoice(clock)
    choice.avoid("a")
    both = route({"a": 4, "b": 4})
    assert {choice.next(both).broker_name for _ in range(16)} == {"b"}
    clock.now_s += AVOIDANCE_S
    assert {choice.next(both).broker_name for _ in range(16)} == {"a", "b"}


def test_the_only_broker_is_used_even_if_it_failed() -> None:
    choice = QueueChoice(Clock())
    choice.avoid("a")
    assert choice.next(route({"a": 2}), frozenset("a")).broker_name == "a"


def test_an_avoided_broker_is_better_than_one_that_failed_in_this_send() -> None:
    choice = QueueChoice(Clock())
    choice.avoid("a")
    choice.avoid("b")
    names = {choice.next(route({"a": 2, "b": 2}), frozenset("a")).broker_name for _ in range(8)}
    assert names == {"b"}


@pytest.mark.parametrize(
    ("key", "queue_id"),
    # Java: Math.abs(key.hashCode() % 4); "polygenelubricants" hashes to Integer.MIN_VALUE.
    [("TagA", 2598919 % 4), ("TagB", 2598920 % 4), ("polygenelubricants", 0), ("", 0)],
)
def test_a_sharding_key_goes_to_the_queue_that_java_takes(key: str, queue_id: int) -> None:
    assert choose_queue_for_key(route({"a": 4}), key).queue_id == queue_id


def test_a_bare_queue_id_needs_a_single_broker_with_that_queue() -> None:
    assert choose_queue(route({"a": 4, "b": 2}), 3) == MessageQueue("orders", "a", 3)
    with pytest.raises(MessageRejectedError, match="on each of a, b"):
        choose_queue(route({"a": 4, "b": 2}), 1)
    with pytest.raises(MessageRejectedError, match=r"no writable queue 9.*queues 0 to 3 on a"):
        choose_queue(route({"a": 4}), 9)


def test_a_named_queue_must_be_one_of_the_topic() -> None:
    queue = MessageQueue("orders", "b", 1)
    assert choose_queue(route({"a": 4, "b": 2}), queue) is queue
    with pytest.raises(MessageRejectedError, match="not a writable queue"):
        choose_queue(route({"a": 4}), queue)
