"""Rates: what went in and out between two samples of what brokers have counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from rockhopper.client.admin.group_states import REQUEUE_GROUP
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.protocol.bodies.figures import LAG_UNKNOWN, GroupFigures, TopicFigures
from rockhopper.protocol.names import (
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
    reply_topic,
)

if TYPE_CHECKING:
    from rockhopper.protocol.bodies.figures import Figures


def is_systems(topic: str, brokers: Sequence[BrokerAddress]) -> bool:
    """Return whether a topic is the system's own, and no user's."""
    if is_system_topic(topic) or is_retry_topic(topic) or is_dlq_topic(topic):
        return True
    return any(
        topic in (broker.name, broker.cluster, reply_topic(broker.cluster)) for broker in brokers
    )


@dataclass(frozen=True)
class TopicFlow:
    """What goes through a topic."""

    name: str
    in_per_s: float
    out_per_s: float
    sent: int
    groups: Sequence[str]


@dataclass(frozen=True)
class GroupFlow:
    """What a group takes, and how far it is behind; `lag` is None in broadcast."""

    name: str
    lag: int | None
    grows_per_s: float | None
    out_per_s: float
    members: int
    topics: Sequence[str]
    oldest_s: float | None = None
    """For how long the oldest message that it has not consumed lies there; None if not known."""


@dataclass(frozen=True)
class Flow:
    """What went through everything in so many seconds."""

    seconds: float
    broker_count: int
    topics: Sequence[TopicFlow]
    groups: Sequence[GroupFlow]

    @property
    def in_per_s(self) -> float:
        """Messages that came in."""
        return sum(each.in_per_s for each in self.topics)

    @property
    def out_per_s(self) -> float:
        """Messages that went out."""
        return sum(each.out_per_s for each in self.topics)

    @property
    def lag(self) -> int:
        """How far all groups are behind."""
        return sum(each.lag or 0 for each in self.groups)


@dataclass(frozen=True)
class Sample:
    """What brokers have counted by a moment."""

    at_s: float
    took_s: float
    broker_count: int
    topics: dict[str, TopicFigures] = field(default_factory=dict)
    groups: dict[str, GroupFigures] = field(default_factory=dict)
    ages_s: Mapping[str, float] = field(default_factory=dict)
    """Group -> age of the oldest message that it has not consumed, where it was asked for."""

    @classmethod
    def of(
        cls,
        figures: "Figures",
        brokers: Sequence[BrokerAddress],
        *,
        at_s: float,
        took_s: float,
        with_system: bool,
    ) -> Self:
        """Return a sample of figures, without the system's own topics and groups if so asked."""
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
        """Return what went through between two samples; nothing if they are one."""
        seconds = self.at_s - before.at_s

        def per_s(now: int, then: int | None) -> float:
            # What was not there before is not known to have come since; a count that has gone
            # back began anew with its broker.
            if then is None or seconds <= 0:
                return 0.0
            return (now - then if now >= then else now) / seconds

        topics, groups = [], []
        for topic in self.topics.values():
            old = before.topics.get(topic.name)
            topics.append(
                TopicFlow(
                    topic.name,
                    per_s(topic.sent, None if old is None else old.sent),
                    per_s(topic.handed_out, None if old is None else old.handed_out),
                    topic.sent,
                    topic.groups,
                )
            )
        for group in self.groups.values():
            was = before.groups.get(group.name)
            is_known = LAG_UNKNOWN not in (group.lag, None if was is None else was.lag)
            grows = None
            if is_known:
                grows = (group.lag - was.lag) / seconds if was is not None and seconds > 0 else 0.0
            groups.append(
                GroupFlow(
                    group.name,
                    None if group.lag == LAG_UNKNOWN else group.lag,
                    grows,
                    per_s(group.handed_out, None if was is None else was.handed_out),
                    group.members,
                    [topic for topic in group.topics if not is_retry_topic(topic)],
                    self.ages_s.get(group.name, 0.0 if group.lag == 0 else None),
                )
            )
        return Flow(seconds, self.broker_count, topics, groups)
