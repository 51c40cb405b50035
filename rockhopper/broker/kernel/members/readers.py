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

from collections.abc import Collection, Iterable, Mapping, Set
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
    subscribers: dict[str, list[ReaderKind]] = {}
    for kind in kinds:
        for topic in kind.subscriptions:
            subscribers.setdefault(topic, []).append(kind)
    all_known = all(kind.subscriptions for kind in kinds)
    by_topic: dict[str, frozenset[str]] = {}
    at_risk: set[str] = set()
    for topic, own in subscribers.items():
        wanted = [each.subscriptions[topic] for each in own]
        wanted += [gone[topic] for gone in lost if topic in gone]
        distinct = {(each.expression_type, each.expression): each for each in wanted}
        if all_known and all(kind.heeds_readers for kind in own):
            wide = [kind for kind in own if _covers(kind.subscriptions[topic], distinct.values())]
            by_topic[topic] = _ids(wide)
        elif len(distinct) > 1 or everybody != _ids(own):
            at_risk.add(topic)
    _leave_retries(by_topic, all(topic in subscribers for gone in lost for topic in gone), lost)
    return TopicReaders(
        {topic: ids for topic, ids in by_topic.items() if ids != everybody},
        frozenset(topic for topic in at_risk if not is_retry_topic(topic)),
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


def _covers(subscription: Subscription, wanted: Iterable[Subscription]) -> bool:
    return all(map(subscription.covers, wanted))


def _ids(kinds: Iterable[ReaderKind]) -> frozenset[str]:
    return frozenset().union(*(kind.client_ids for kind in kinds))
