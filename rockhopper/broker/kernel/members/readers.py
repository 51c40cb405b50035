"""Which members of a group read a topic, where not all members want the same.

RocketMQ shares out a topic's queues among all members of a group. Where these subscribe
differently, as two versions of a service do in a rolling deployment, queues fall to members that do
not read the topic, and a member whose filter lets less through commits past what only others want.

Rockhopper's ``Consumer`` therefore leaves a topic to those members that want all that any member
wants of it, its *readers*. Example: member A wants the tag new, member B wants new || paid. While
both are there, B reads every queue and A reads none; when B has gone, A reads on. Nobody reads
while no member wants all of it (new || paid beside paid || void): waiting skips nothing.

A retry topic has messages of every topic, so its readers want all of every topic. If nobody does,
every member reads it: a retry is filtered by nobody.

A topic that a client of another make subscribes to is shared out by RocketMQ's rule, for all must
compute the same. What may be skipped or left unread by it is *at risk*.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from typing import NamedTuple

from rockhopper.protocol.names import is_retry_topic
from rockhopper.protocol.subscription import Subscription


class Kind(NamedTuple):
    """Members that share their group's queues and want the same."""

    subscriptions: Mapping[str, Subscription]
    """By topic; empty if they have not told yet."""
    heeds_readers: bool
    """Whether they leave a topic to the topic's readers."""
    client_ids: Set[str]


class Readers(NamedTuple):
    """Who reads what; a topic that is in neither is shared by all members."""

    by_topic: Mapping[str, Set[str]]
    """The client ids of its readers, where these are not all members."""
    at_risk: Set[str]


ALL = Readers({}, frozenset())


def find_readers(
    kinds: Collection[Kind],
    client_ids: Collection[str],
    lost: Iterable[Mapping[str, Subscription]] = (),
) -> Readers:
    """Return who reads what in a group.

    *kinds* are of members that share its queues, *client_ids* those of all, of broadcasting members
    too. *lost* is what members wanted whose connection ended a moment ago: they may come back.
    """
    everybody, lost = frozenset(client_ids), list(lost)
    subscribers: dict[str, list[Kind]] = {}
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
    return Readers(
        {topic: ids for topic, ids in by_topic.items() if ids != everybody},
        frozenset(topic for topic in at_risk if not is_retry_topic(topic)),
    )


def _leave_retries(
    by_topic: dict[str, frozenset[str]], all_subscribed: bool, lost: Collection[object]
) -> None:
    """Leave retry topics to those that read all topics, as far as there are any.

    While a lost member is waited for, nobody else reads what may be for it.
    """
    retries = [topic for topic in by_topic if is_retry_topic(topic)]
    others = [ids for topic, ids in by_topic.items() if not is_retry_topic(topic)]
    for topic in retries:
        complete = by_topic[topic].intersection(*others) if all_subscribed else frozenset()
        if complete or lost:
            by_topic[topic] = complete


def _covers(subscription: Subscription, wanted: Iterable[Subscription]) -> bool:
    return all(map(subscription.covers, wanted))


def _ids(kinds: Iterable[Kind]) -> frozenset[str]:
    return frozenset().union(*(kind.client_ids for kind in kinds))
