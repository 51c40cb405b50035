"""FIGURES (70018): the rates and lags of every topic and group in one answer.

RocketMQ's tools send a request for each topic, which takes seconds for ten thousand of them; a live
view polls every two seconds.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.members.followed_topics import iterate_followed_topics
from rockhopper.broker.kernel.members.retry_owners import RetryOwners
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.cooperative_work import next_slice
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    Response,
    Row,
    administers,
)
from rockhopper.broker.server.remoting.permissions import SEE_CLUSTER
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.bodies.stats import (
    LAG_UNKNOWN,
    Figures,
    GroupFigures,
    TopicFigures,
)
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.requests import FiguresRequest
from rockhopper.protocol.store.light_queues import is_light

# The work units between pauses for other requests; reading a message counts as several.
_LOOKS_PER_TURN = 256
_READ_LOOKS = 8
_AGES_MAX = 128
"""The number of a group's queues whose oldest message is read."""
_BROADCASTING = "BROADCASTING"


@dataclass(eq=False, repr=False)
class StatsProcessor:
    """Serves the figures of this broker."""

    _store: MessageStore
    _topics: TopicTable
    _groups: SubscriptionGroupTable
    _offsets: ConsumerOffsetTable
    _consumers: ConsumerGroups
    _stats: BrokerStats
    _retry_owners: RetryOwners

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.FIGURES: administers(self.process, SEE_CLUSTER, promises_state=False),
        }

    async def process(self, request: Request) -> Response:
        """Return all topics and groups except light queues."""
        fields = request.fields(FiguresRequest)
        looks = _StatsReads()
        topics = {
            name: TopicFigures(name, groups=[])
            for name in self._topics.configs
            if not is_light(name)
        }
        groups = await self._put_groups_in(topics, looks, with_ages=fields.ages)
        for name, traffic in self._stats.iterate_by_key("put"):
            if name in topics:
                topics[name].sent = traffic.messages
        for key, traffic in self._stats.iterate_by_key("get"):
            topic, _, group = key.partition("@")
            if topic in topics:
                topics[topic].handed_out += traffic.messages
            if group in groups:
                groups[group].handed_out += traffic.messages
        if fields.details:
            for figures in topics.values():
                await self._look_into(figures, looks)
        found = Figures(list(topics.values()), list(groups.values()))
        return Response(body=await asyncio.to_thread(found.encode))

    async def _put_groups_in(
        self, topics: dict[str, TopicFigures], looks: "_StatsReads", *, with_ages: bool
    ) -> dict[str, GroupFigures]:
        """Return the groups, with their lag in each topic."""
        groups = {name: GroupFigures(name, topics=[]) for name in self._groups.groups}
        for online in self._consumers:
            figures = groups.setdefault(online.name, GroupFigures(online.name, topics=[]))
            figures.members = len(online.client_ids())
            if online.is_broadcasting:
                figures.lag = LAG_UNKNOWN
        followed = iterate_followed_topics(
            self._offsets,
            self._consumers,
            topics,
            self._store.reading.has_messages,
            self._retry_owners.groups,
        )
        ages: Counter[str] = Counter()
        for topic, group, queues in followed:
            await looks.take(1)
            config = self._topics.get(topic)
            if config is None or topic not in topics or group not in groups:
                continue
            topics[topic].groups.append(group)
            groups[group].topics.append(topic)
            if groups[group].lag == LAG_UNKNOWN:
                continue
            behind = await self._list_lagging(config, queues, looks)
            groups[group].lag += sum(high - first for _, first, high in behind)
            if with_ages:
                behind = behind[: _AGES_MAX - ages[group]]
                ages[group] += len(behind)
                await self._look_for_oldest(groups[group], topic, behind, looks)
        return groups

    async def _look_for_oldest(
        self,
        group: GroupFigures,
        topic: str,
        behind: list[tuple[int, int, int]],
        looks: "_StatsReads",
    ) -> None:
        group.oldest_ms = max(group.oldest_ms, 0)
        for queue_id, first, _ in behind:
            await looks.take(_READ_LOOKS)
            stored_ms = self._store.reading.store_time(topic, queue_id, first)
            if stored_ms > 0:
                group.oldest_ms = min(group.oldest_ms or stored_ms, stored_ms)

    async def _list_lagging(
        self, topic: TopicConfig, queues: Mapping[int, int], looks: "_StatsReads"
    ) -> list[tuple[int, int, int]]:
        """Return the queues with unconsumed messages: id, first such offset, end."""
        behind = []
        for queue_id in range(topic.read_queue_nums):
            await looks.take(1)
            low, high = self._store.reading.queue_range(topic.name, queue_id)
            first = max(queues.get(queue_id, 0), low)
            if high > first:
                behind.append((queue_id, first, high))
        return behind

    async def _look_into(self, figures: TopicFigures, looks: "_StatsReads") -> None:
        """Set the number of messages, and the time of the newest."""
        topic = self._topics.get(figures.name)
        if topic is None:
            return
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            await looks.take(1)
            low, high = self._store.reading.queue_range(topic.name, queue_id)
            if high > low:
                await looks.take(_READ_LOOKS)
                figures.messages += high - low
                newest_ms = self._store.reading.store_time(topic.name, queue_id, high - 1)
                figures.newest_ms = max(figures.newest_ms, newest_ms)
        if figures.sent:
            figures.sent_per_s = self._stats.topic_put_tps(topic.name)


class _StatsReads:
    """Counts work units, and pauses for other requests."""

    def __init__(self) -> None:
        self._count = 0

    async def take(self, count: int) -> None:
        self._count += count
        if self._count >= _LOOKS_PER_TURN:
            self._count = 0
            await next_slice()
