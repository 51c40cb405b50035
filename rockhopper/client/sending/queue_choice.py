"""Chooses the queue for a message."""

import random
from collections.abc import Callable

from rockhopper.client.errors import MessageRejectedError
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.java_hash import java_string_hash

# For this time a broker that was unreachable or did not answer is used only if there is no other.
AVOIDANCE_S = 5.0


class QueueChoice:
    """Chooses the write queues round-robin, avoiding brokers that have just failed."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._turns: dict[str, int] = {}
        self._avoided_until_s: dict[str, float] = {}

    def next(self, route: TopicRoute, not_on: frozenset[str] = frozenset()) -> MessageQueue:
        """Return the next queue; one on a broker of `not_on` only if there is no other."""
        queues = route.write_queues or route.masterless_queues
        turn = self._turns.get(route.topic)
        if turn is None:
            turn = random.randrange(len(queues))
        self._turns[route.topic] = turn + 1
        if not not_on and not self._avoided_until_s:
            return queues[turn % len(queues)]
        avoided = not_on | self._avoided()
        for step in range(len(queues)):
            queue = queues[(turn + step) % len(queues)]
            if queue.broker_name not in avoided:
                self._turns[route.topic] = turn + step + 1
                return queue
        for step in range(len(queues)):
            queue = queues[(turn + step) % len(queues)]
            if queue.broker_name not in not_on:
                return queue
        return queues[turn % len(queues)]

    def avoid(self, broker_name: str) -> None:
        """Avoid a broker for a while."""
        self._avoided_until_s[broker_name] = self._now_s() + AVOIDANCE_S

    def _avoided(self) -> frozenset[str]:
        now_s = self._now_s()
        for name in [name for name, until in self._avoided_until_s.items() if until <= now_s]:
            del self._avoided_until_s[name]
        return frozenset(self._avoided_until_s)


def choose_queue_for_key(route: TopicRoute, sharding_key: str) -> MessageQueue:
    """Return the queue of a sharding key, as Java's SelectMessageQueueByHash does.

    The queues of a broker without a master keep their keys.
    """
    queues = route.write_queues
    if route.masterless_queues:
        queues = tuple(sorted(queues + route.masterless_queues))
    return queues[abs(java_string_hash(sharding_key)) % len(queues)]


def choose_queue(route: TopicRoute, choice: MessageQueue | int) -> MessageQueue:
    """Return the queue that the application chose, after checking that it is writable.

    A queue whose broker has no master is accepted: it may have one before the send times out. A
    bare id is accepted if only one broker has such a queue.
    """
    queues = route.write_queues + route.masterless_queues
    if isinstance(choice, MessageQueue):
        if choice in queues:
            return choice
        raise MessageRejectedError(
            f"{choice} is not a writable queue",
            remedy=f"the topic {route.topic!r} has {_list_queues(route)}",
        )
    matching = [queue for queue in queues if queue.queue_id == choice]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise MessageRejectedError(
            f"topic {route.topic!r} has no writable queue {choice}",
            remedy=f"it has {_list_queues(route)}",
        )
    names = ", ".join(queue.broker_name for queue in matching)
    raise MessageRejectedError(
        f"topic {route.topic!r} has a queue {choice} on each of {names}",
        remedy="name the broker too: MessageQueue(topic, broker_name, queue_id)",
    )


def _list_queues(route: TopicRoute) -> str:
    counts: dict[str, int] = {}
    for queue in route.write_queues:
        counts[queue.broker_name] = counts.get(queue.broker_name, 0) + 1
    if not counts:
        return "no writable queue"
    return " and ".join(f"queues 0 to {count - 1} on {name}" for name, count in counts.items())
