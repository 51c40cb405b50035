"""Rates: messages in and out between two samples of the brokers' counters."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.protocol.bodies.stats import LAG_UNKNOWN, GroupFigures, TopicFigures
from rockhopper.protocol.names import (
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
    reply_topic,
)

if TYPE_CHECKING:
    from rockhopper.protocol.bodies.stats import Figures


def is_systems(topic: str, brokers: Sequence[BrokerAddress]) -> bool:
    """Whether a topic is a system topic rather than a user's."""
    if is_system_topic(topic) or is_retry_topic(topic) or is_dlq_topic(topic):
        return True
    return any(
        topic in (broker.name, broker.cluster, reply_topic(broker.cluster)) for broker in brokers
    )


class TopicFlow(NamedTuple):
    """The rates of a topic."""

    name: str
    in_per_s: float
    out_per_s: float
    sent: int
    groups: Sequence[str]


class GroupFlow(NamedTuple):
    """The rate of a group and its lag; the lag of a broadcast group is None."""

    name: str
    lag: int | None
    grows_per_s: float | None
    out_per_s: float
    members: int
    topics: Sequence[str]
    oldest_s: float | None = None
    """The age of the oldest message not yet consumed; None if unknown."""


class Flow(NamedTuple):
    """The rates of all topics and groups over a number of seconds."""

    seconds: float
    broker_count: int
    topics: Sequence[TopicFlow]
    groups: Sequence[GroupFlow]

    @property
    def in_per_s(self) -> float:
        """Messages per second that came in."""
        return sum(each.in_per_s for each in self.topics)

    @property
    def out_per_s(self) -> float:
        """Messages per second that went out."""
        return sum(each.out_per_s for each in self.topics)

    @property
    def lag(self) -> int:
        """The total lag of all groups."""
        return sum(each.lag or 0 for each in self.groups)


class Sample(NamedTuple):
    """The brokers' counters at one moment."""

    at_s: float
    took_s: float
    broker_count: int
    topics: Mapping[str, TopicFigures] = {}
    groups: Mapping[str, GroupFigures] = {}
    ages_s: Mapping[str, float] = {}
    """Group -> age of the oldest message not yet consumed, for the groups that were queried."""

    @classmethod
    def from_figures(
        cls,
        figures: "Figures",
        brokers: Sequence[BrokerAddress],
        *,
        at_s: float,
        took_s: float,
        with_system: bool,
    ) -> Self:
        """Return a sample of statistics; unless `with_system`, without system topics and groups."""
        from rockhopper.client.admin.group_states import REQUEUE_GROUP

        topics, groups = figures.topics, figures.groups
        if not with_system:
            topics = [each for each in topics if not is_systems(each.name, brokers)]
            groups = [
                each
                for each in groups
                if not is_system_group(each.name) and each.name != REQUEUE_GROUP
            ]
        masters = sum(each.is_master for each in brokers)
        by_topic = {each.name: each for each in topics}
        return cls(at_s, took_s, masters, by_topic, {each.name: each for each in groups})

    def since(self, before: "Sample") -> Flow:
        """Return the rates between two samples; zeros if they are the same."""
        seconds = self.at_s - before.at_s
        topics = [
            _topic_flow(topic, before.topics.get(topic.name), seconds)
            for topic in self.topics.values()
        ]
        groups = [
            _group_flow(
                group,
                before.groups.get(group.name),
                seconds,
                self.ages_s.get(group.name, 0.0 if group.lag == 0 else None),
            )
            for group in self.groups.values()
        ]
        return Flow(seconds, self.broker_count, topics, groups)


def _topic_flow(topic: TopicFigures, was: TopicFigures | None, seconds: float) -> TopicFlow:
    if was is None:
        return TopicFlow(topic.name, 0.0, 0.0, topic.sent, topic.groups)
    return TopicFlow(
        topic.name,
        _divide_per_s(topic.sent, was.sent, seconds),
        _divide_per_s(topic.handed_out, was.handed_out, seconds),
        topic.sent,
        topic.groups,
    )


def _group_flow(
    group: GroupFigures, was: GroupFigures | None, seconds: float, oldest_s: float | None
) -> GroupFlow:
    grows_per_s: float | None = 0.0
    if LAG_UNKNOWN in (group.lag, None if was is None else was.lag):
        grows_per_s = None
    elif was is not None and seconds > 0:
        grows_per_s = (group.lag - was.lag) / seconds
    return GroupFlow(
        group.name,
        None if group.lag == LAG_UNKNOWN else group.lag,
        grows_per_s,
        0.0 if was is None else _divide_per_s(group.handed_out, was.handed_out, seconds),
        group.members,
        [topic for topic in group.topics if not is_retry_topic(topic)],
        oldest_s,
    )


def _divide_per_s(now: int, then: int, seconds: float) -> float:
    # A counter that has decreased was reset by a broker's restart.
    if seconds <= 0:
        return 0.0
    return (now - then if now >= then else now) / seconds
