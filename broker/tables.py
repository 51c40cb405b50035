"""The persisted tables of a broker, read and saved together."""

from collections.abc import Callable

from broker.config import BrokerConfig
from broker.consumer_offsets import ConsumerOffsetTable
from broker.delayed import DelayOffsetTable
from broker.json_table import JsonTable
from broker.store.message_store import MessageStore
from broker.subscription_groups import SubscriptionGroupTable
from broker.topics import TopicTable, queue_directories


class Tables:
    """What ``config/`` of a store directory holds."""

    def __init__(self, config: BrokerConfig, *, now_ms: Callable[[], int]) -> None:
        self._root = config.store.root
        directory = self._root / "config"
        self.topics = TopicTable(directory / "topics.json", config, now_ms=now_ms)
        self.groups = SubscriptionGroupTable(
            directory / "subscriptionGroup.json", config, now_ms=now_ms
        )
        self.offsets = ConsumerOffsetTable(
            directory / "consumerOffset.json",
            version_step=config.offsets_version_step,
            now_ms=now_ms,
        )
        self.delay_offsets = DelayOffsetTable(directory / "delayOffset.json", now_ms=now_ms)

    @property
    def _all(self) -> tuple[JsonTable, ...]:
        return self.topics, self.groups, self.offsets, self.delay_offsets

    def load(self) -> None:
        """Read the files, and the topics that only their queues tell of; writes nothing.

        The store needs to know topics of type BatchCQ before it recovers.

        Raises:
            CorruptFileError: a file and its backup are damaged.
            OSError: a file cannot be read.
        """
        for table in self._all:
            table.load()
        self.topics.restore_from_queue_directories(queue_directories(self._root))

    def agree_with(self, store: MessageStore) -> None:
        """Correct what the recovered store contradicts, and add what every broker has."""
        self.topics.restore_from_queue_directories(queue_directories(self._root))
        self.topics.seed_system_topics()
        self.groups.seed_system_groups()
        self.offsets.clamp(lambda topic, queue_id: store.queue_range(topic, queue_id)[1])

    def start_saving(self) -> None:
        """From now on write changes: the store is locked."""
        for table in self._all:
            table.start_saving()

    async def saved(self) -> None:
        """Return when everything is on disk.  Raises OSError, after having tried every table."""
        failure: OSError | None = None
        for table in self._all:
            try:
                await table.saved()
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure
