"""Which queues a pop looks at, and in which order."""

from collections.abc import Callable, Iterable, Iterator

from broker.config import BrokerConfig
from broker.dispatcher import RequestError
from broker.pop.extra_info import pop_retry_topic
from broker.pop.reading import Wanted
from broker.subscription_groups import SubscriptionGroupTable
from broker.topics import TopicConfig, TopicTable
from protocol.codes import ResponseCode


class PopSources:
    """Spreads pops over queues and retry topics, or keeps to their priority."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        chance: Callable[[], float],
    ) -> None:
        """*chance* is uniform in [0, 1)."""
        self._config = config
        self._topics = topics
        self._groups = groups
        self._chance = chance

    def of(self, wanted: Wanted) -> Iterator[tuple[str, int, bool]]:
        """(topic, queue id, is a retry topic) in the order in which they are looked at."""
        topic = self._topics.get(wanted.topic)
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{wanted.topic}] not exist, apply first please!",
            )
        sources = [(topic, False)]
        by_priority = self._goes_by_priority(wanted, topic)
        retry_topic = self._topics.get(pop_retry_topic(wanted.group, wanted.topic))
        if retry_topic is not None and not wanted.order:
            percent = self._config.pop_from_retry_percent
            if by_priority:
                percent = self._config.pop_from_retry_percent_for_priority
            sources.insert(0 if self._chance() * 100 < percent else 1, (retry_topic, True))
        for config, retry in sources:
            if retry or wanted.queue_id < 0:
                for queue_id in self._queue_order(config.read_queue_nums, by_priority=by_priority):
                    yield config.name, queue_id, retry
            else:
                yield config.name, wanted.queue_id, retry

    def _goes_by_priority(self, wanted: Wanted, topic: TopicConfig) -> bool:
        """Whether the queues are looked at in the order of their priority."""
        if not topic.is_prioritised or wanted.order:
            return False
        group = self._groups.get(wanted.group)
        return self._chance() * 100 < (100 if group is None else group.priority_factor)

    def _queue_order(self, count: int, *, by_priority: bool) -> Iterable[int]:
        if by_priority:
            return range(count - 1, -1, -1) if self._config.priority_order_asc else range(count)
        first = int(self._chance() * count)
        return [(first + index) % count for index in range(count)]

    def queues(self, wanted: Wanted) -> list[tuple[str, int]]:
        """The queues whose messages such a pop waits for."""
        found = {(topic, queue_id) for topic, queue_id, _ in self.of(wanted)}
        if not wanted.order:
            found.add((pop_retry_topic(wanted.group, wanted.topic), 0))
        return sorted(found)
