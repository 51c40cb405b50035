"""The persisted tables of a broker, read and saved together."""

from collections.abc import Callable, Sequence

import structlog

from rockhopper.broker.kernel.scheduled.delayed import DelayOffsetTable
from rockhopper.broker.kernel.state import State
from rockhopper.broker.kernel.tables.accounts import AclTable, UserTable
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.json_table import JsonTable
from rockhopper.broker.kernel.tables.log_history import LogHistory
from rockhopper.broker.kernel.tables.offset_journal import OffsetJournal
from rockhopper.broker.kernel.tables.remembered_subscriptions import RememberedSubscriptions
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.table_journal import TableJournal
from rockhopper.broker.kernel.tables.topic_ends import TopicEnds
from rockhopper.broker.kernel.tables.topic_ids import TopicIds
from rockhopper.broker.kernel.tables.topics import TopicTable, queue_directories
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.deleted_topics import DeletedTopics
from rockhopper.protocol.names import SCHEDULE_TOPIC
from rockhopper.protocol.store.store_paths import DELETED_TOPICS_FILE

log = structlog.get_logger("broker.tables")


TOPICS_NAMED_MAX = 20


class Tables(Part):
    """The tables in ``config/`` of a store directory."""

    def __init__(
        self, config: BrokerConfig, *, now_ms: Callable[[], int], states: Sequence[State] = ()
    ) -> None:
        self.states = tuple(states)
        """The features' states: their tables are loaded, saved and scrubbed with the kernel's."""
        layout = self._layout = StoreLayout.of(config.store)
        directory = layout.config
        self.topics = TopicTable(directory / "topics.json", config, now_ms=now_ms)
        self.groups = SubscriptionGroupTable(
            directory / "subscriptionGroup.json", config, now_ms=now_ms
        )
        self.offsets = ConsumerOffsetTable(
            directory / "consumerOffset.json",
            version_step=config.offsets_version_step,
            now_ms=now_ms,
            journal=OffsetJournal(layout.offset_journal, layout.quarantine),
            with_light_queues=config.store.light_queues_enabled,
        )
        for state in self.states:
            state.attach(self.topics, self.groups)
        self.subscriptions = RememberedSubscriptions(layout.remembered_subscriptions, now_ms=now_ms)
        self.topic_ids = TopicIds(layout.topic_ids, now_ms=now_ms)
        self.topic_ends = TopicEnds(layout.topic_ends, now_ms=now_ms)
        self.history = LogHistory(layout.log_history, now_ms=now_ms)
        self.delay_offsets = DelayOffsetTable(directory / "delayOffset.json", now_ms=now_ms)
        self.users = UserTable(directory / "users.json", now_ms=now_ms)
        self.acls = AclTable(directory / "acls.json", now_ms=now_ms)
        for table in (
            self.topics,
            self.groups,
            self.users,
            self.acls,
            self.topic_ids,
        ):
            table.changes_journal = TableJournal(
                layout.table_changes(table.path), layout.quarantine, mode=table.file_mode
            )
        self.others: tuple[JsonTable, ...] = ()
        """Tables that other parts load and save; they are only scrubbed here."""

    @property
    def all(self) -> tuple[JsonTable, ...]:
        return (
            self.topics,
            self.groups,
            self.offsets,
            self.delay_offsets,
            self.topic_ids,
            self.topic_ends,
            self.history,
            self.users,
            self.acls,
            *(table for state in self.states for table in state.tables),
        )

    @property
    def every(self) -> tuple[JsonTable, ...]:
        """All tables with files, including those of other parts."""
        return (*self.all, self.subscriptions, *self.others)

    async def scrub(self) -> None:
        """Check the files on disk; log and rewrite those that differ from the saved content."""
        for table in self.every:
            await table.scrub()

    @property
    def altered_count(self) -> int:
        """The number of files found since the start that differed from the saved content."""
        return sum(table.altered_count for table in self.every)

    def load(self) -> None:
        """Read the files, and restore topics that only have queue directories; writes nothing.

        The store needs to know topics of type BatchCQ before it recovers.

        Raises:
            CorruptFileError: a file and its backup are damaged.
            OSError: a file cannot be read.
        """
        for table in self.all:
            table.load()
        try:
            self.subscriptions.load()
        except CorruptFileError as error:
            # The next heartbeats restore the lost subscriptions.
            log.warning("remembered subscriptions of groups are lost", reason=str(error))
        self._restore_topics()

    def _restore_topics(self) -> None:
        found = queue_directories(self._layout, known=self.topics.configs)
        self.topics.restore_from_queue_directories(found)

    def known_offsets(self) -> dict[tuple[str, int], int]:
        """Return the queues of all topics, with the highest offset that consumers read."""
        known: dict[tuple[str, int], int] = {}
        for name, topic in self.topics.configs.items():
            count = max(topic.read_queue_nums, topic.write_queue_nums)
            known |= {(name, queue_id): 0 for queue_id in range(count)}
        for name, _, offsets in self.offsets.entries():
            for queue_id, offset in offsets.items():
                known[name, queue_id] = max(offset, known.get((name, queue_id), 0))
        for level, offset in self.delay_offsets.offsets.items():
            known[SCHEDULE_TOPIC, level - 1] = offset
        for state in self.states:
            for queue, offset in state.known_offsets().items():
                known[queue] = max(offset, known.get(queue, 0))
        return known

    def agree_with(self, store: MessageStore) -> None:
        """Correct entries that contradict the recovered store, and add the built-in entries."""
        self._restore_topics()
        layout = self._layout
        deletions = DeletedTopics(layout.own / DELETED_TOPICS_FILE, layout.quarantine)
        self.topic_ids.agree_with(self.topics, deletions)
        self.topics.listeners.append(self.topic_ids.topic_changed)
        self.topics.seed_system_topics()
        self.groups.seed_system_groups()
        self._warn_of_compaction()
        store.opened.former_end = self.topic_ends.end_of
        self.offsets.clamp(lambda topic, queue_id: store.queue_range(topic, queue_id)[1])
        for state in self.states:
            state.agree_with(store)

    def _warn_of_compaction(self) -> None:
        names = [name for name, topic in self.topics.configs.items() if topic.is_to_be_compacted]
        if names:
            log.warning(
                "topics have cleanup.policy=COMPACTION, which this broker does not support: "
                "retention deletes the last value of a key like any other message; keep these "
                "topics on a RocketMQ broker, or raise fileReservedTime",
                topics=names[:TOPICS_NAMED_MAX],
                count=len(names),
            )

    def start(self) -> None:
        """Begin to write changes; call it once the store is locked and all files are open."""
        for table in (*self.all, self.subscriptions):
            table.start_saving()

    def stop_saving(self) -> None:
        """Stop writing, because the store was removed."""
        for table in (*self.all, self.subscriptions):
            table.stop_saving()

    async def saved(self) -> None:
        """Return when all tables are on disk. Raises OSError after trying all of them."""
        failure: OSError | None = None
        for table in (*self.all, self.subscriptions):
            try:
                await table.on_disk()
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Save nothing."""
        self.stop_saving()
        self.offsets.close_journal()

    async def close(self) -> None:
        """Save all tables and stop writing. Raises OSError after trying all of them."""
        for table in self.all:
            table.fold_journal()
        try:
            await self.saved()
        finally:
            self.stop_saving()
            self.offsets.close_journal()
