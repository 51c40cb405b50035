"""Which members of a group read a topic if their subscriptions differ.

RocketMQ divides a topic's queues among all members of a group. If the members subscribe
differently, as two versions of a service do in a rolling deployment, some queues go to members that
do not read the topic. And a member with a narrow filter commits past messages that only others
want.

Rockhopper's ``Consumer`` therefore leaves a topic to its *readers*: those members that want
everything that any member wants of it. Example: member A wants the tag new, member B wants new ||
paid. While both are online, B reads every queue and A reads none; when B has left, A continues. If
no member wants everything (new || paid beside paid || void), none reads: waiting skips nothing.

A retry topic contains messages of every topic, so its readers want everything of every topic. If
there are none, every member reads it: retries are not filtered.

A topic to which another kind of client subscribes is divided by RocketMQ's rule, because all
members must compute the same result. Messages that this rule may skip or leave unread are *at
risk*.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from itertools import filterfalse
from typing import NamedTuple

from rockhopper.protocol.names import is_retry_topic
from rockhopper.protocol.subscription import Subscription


class ReaderKind(NamedTuple):
    """Members that divide their group's queues and have the same subscriptions."""

    subscriptions: Mapping[str, Subscription]
    """The subscriptions by topic; empty if not known yet."""
    heeds_readers: bool
    """Whether these members leave a topic to its readers."""
    client_ids: Set[str]


class TopicReaders(NamedTuple):
    """The readers of topics; all members divide a topic that is in neither field."""

    by_topic: Mapping[str, Set[str]]
    """The client ids of a topic's readers, if these are not all members."""
    at_risk: Set[str]


ALL = TopicReaders({}, frozenset())


def _subscribers(kinds: Iterable[ReaderKind]) -> dict[str, list[ReaderKind]]:
    subscribers: dict[str, list[ReaderKind]] = {}
    for kind in kinds:
        for topic in kind.subscriptions:
            subscribers.setdefault(topic, []).append(kind)
    return subscribers


def _distinct_filters(
    topic: str, kinds: Iterable[ReaderKind], lost: Iterable[Mapping[str, Subscription]]
) -> Collection[Subscription]:
    wanted = [each.subscriptions[topic] for each in kinds]
    wanted += [gone[topic] for gone in lost if topic in gone]
    return {(each.expression_type, each.expression): each for each in wanted}.values()


def find_readers(
    kinds: Collection[ReaderKind],
    client_ids: Collection[str],
    lost: Iterable[Mapping[str, Subscription]] = (),
) -> TopicReaders:
    """Return the readers of a group's topics.

    *kinds* contains only members that divide its queues. *client_ids* contains all members, also
    broadcasting ones. *lost* are the subscriptions of members that have just lost their connection
    and may come back.
    """
    everybody, lost = frozenset(client_ids), list(lost)
    subscribers = _subscribers(kinds)
    all_known = all(kind.subscriptions for kind in kinds)
    by_topic: dict[str, frozenset[str]] = {}
    at_risk: set[str] = set()
    for topic, own in subscribers.items():
        distinct = _distinct_filters(topic, own, lost)
        if all_known and all(kind.heeds_readers for kind in own):
            by_topic[topic] = _ids(_covering(topic, own, distinct))
        elif len(distinct) > 1 or everybody != _ids(own):
            at_risk.add(topic)
    has_all_topics = all(subscribers.keys() >= gone.keys() for gone in lost)
    _leave_retries(by_topic, has_all_topics, lost)
    return TopicReaders(
        {topic: ids for topic, ids in by_topic.items() if ids != everybody},
        frozenset(filterfalse(is_retry_topic, at_risk)),
    )


def _leave_retries(
    by_topic: dict[str, frozenset[str]], all_subscribed: bool, lost: Collection[object]
) -> None:
    """Leave retry topics to members that read all topics, if there are any.

    While a lost member is expected back, no other member reads messages that may be for it.
    """
    retries = [topic for topic in by_topic if is_retry_topic(topic)]
    others = [ids for topic, ids in by_topic.items() if not is_retry_topic(topic)]
    for topic in retries:
        complete = by_topic[topic].intersection(*others) if all_subscribed else frozenset()
        if complete or lost:
            by_topic[topic] = complete


def _covering(
    topic: str, kinds: Iterable[ReaderKind], filters: Collection[Subscription]
) -> Iterator[ReaderKind]:
    """Yield the kinds of members whose filter of the topic covers all *filters*."""
    for kind in kinds:
        if all(map(kind.subscriptions[topic].covers, filters)):
            yield kind


def _ids(kinds: Iterable[ReaderKind]) -> frozenset[str]:
    return frozenset().union(*(kind.client_ids for kind in kinds))
