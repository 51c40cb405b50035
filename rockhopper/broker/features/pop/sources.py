"""Which queues a pop reads, and in which order."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from rockhopper.broker.features.pop.reading import PopRequest
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicConfig, TopicTable
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.errors import TopicNotFound
from rockhopper.protocol.names import pop_retry_topics, retry_topic

# The number of queues that one step of a pop reads; a topic with more queues is "wide".
QUEUES_PER_SLICE = 256

# (topic, queue id); the id −1 is all of them
ANY_QUEUE = -1
Queue = tuple[str, int]


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
        self._settings = config.pop
        self._topics = topics
        self._groups = groups
        self._chance = chance

    def list_sources(
        self, wanted: PopRequest, near: Queue | None = None
    ) -> Iterator[tuple[str, int, bool]]:
        """Return (topic, queue id, is a retry topic) in the order in which the pop reads them.

        In a wide topic the queue *near* comes first. Raises Refusal: the topic does not exist.
        """
        topic = self.topic(wanted)
        sources = [(topic, False)]
        by_priority = self._is_by_priority(wanted, topic)
        retry_topics = [] if wanted.order else self.retry_topics(wanted)
        if retry_topics:
            percent = self._settings.from_retry_percent
            if by_priority:
                percent = self._settings.from_retry_percent_for_priority
            is_first = self._chance() * 100 < percent or any(
                _is_near(near, each, topic) for each in retry_topics
            )
            place = 0 if is_first else 1
            sources[place:place] = [(each, True) for each in retry_topics]
        for config, retry in sources:
            if retry or wanted.queue_id < 0:
                for queue_id in self._queue_order(config, near, by_priority=by_priority):
                    yield config.name, queue_id, retry
            else:
                yield config.name, wanted.queue_id, retry

    def retry_queues(self, wanted: PopRequest) -> list[tuple[str, int, bool]]:
        """The same for the retry topics only."""
        return [
            (topic.name, queue_id, True)
            for topic in self.retry_topics(wanted)
            for queue_id in range(topic.read_queue_nums)
        ]

    def retry_topics(self, wanted: PopRequest) -> list[TopicConfig]:
        """The existing retry topics of messages that were popped and failed."""
        named = pop_retry_topics(wanted.group, wanted.topic)
        return [found for name in named if (found := self._topics.get(name)) is not None]

    def list_waited_queues(self, wanted: PopRequest) -> list[Queue]:
        """The queues that a waiting pop waits for; −1 means all queues of a topic."""
        queues = [(wanted.topic, max(wanted.queue_id, ANY_QUEUE))]
        # The first retry topic may be created later.
        usual, other = pop_retry_topics(wanted.group, wanted.topic)
        queues.append((usual, ANY_QUEUE))
        queues += [
            (each, ANY_QUEUE) for each in (other, retry_topic(wanted.group)) if each in self._topics
        ]
        return queues

    def topic(self, wanted: PopRequest) -> TopicConfig:
        """The topic that a pop names. Raises Refusal: it does not exist."""
        topic = self._topics.get(wanted.topic)
        if topic is None:
            raise TopicNotFound(f"topic[{wanted.topic}] not exist, apply first please!")
        return topic

    def _is_by_priority(self, wanted: PopRequest, topic: TopicConfig) -> bool:
        """Whether the pop reads the queues in the order of their priority."""
        if not topic.is_prioritised or wanted.order:
            return False
        group = self._groups.get(wanted.group)
        return self._chance() * 100 < (100 if group is None else group.priority_factor)

    def _queue_order(
        self, topic: TopicConfig, near: Queue | None, *, by_priority: bool
    ) -> Iterable[int]:
        count = topic.read_queue_nums
        if by_priority:
            return range(count - 1, -1, -1) if self._settings.priority_order_asc else range(count)
        first = int(self._chance() * count)
        if near is not None and _is_near(near, topic, topic) and near[1] < count:
            first = near[1]
        return chain(range(first, count), range(first))


def _is_near(near: Queue | None, source: TopicConfig, topic: TopicConfig) -> bool:
    """Whether reading *source* begins at *near*, because *topic* is wide."""
    return near is not None and near[0] == source.name and topic.read_queue_nums > QUEUES_PER_SLICE
