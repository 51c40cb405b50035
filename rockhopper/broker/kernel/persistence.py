"""Everything that a broker keeps beside the log: tables and other states, each declared once.

A state creates its tables and lists them with their channels. ``Tables`` creates the states of the
kernel, and takes those of features. All of them are loaded, saved, scrubbed and replicated by
iterating over the states.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import structlog

from rockhopper.broker.kernel.deletions import Deletions
from rockhopper.broker.kernel.members.queue_locks import LockState
from rockhopper.broker.kernel.scheduled.delayed import DelayState
from rockhopper.broker.kernel.scheduled.timers.timers import TimerState
from rockhopper.broker.kernel.state import State
from rockhopper.broker.kernel.state_channels import Channel, StateChannels
from rockhopper.broker.kernel.state_records import Entry, StateKind, join
from rockhopper.broker.kernel.tables.accounts import AclTable, UserTable
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.json_table import JsonTable
from rockhopper.broker.kernel.tables.log_history import LogHistory
from rockhopper.broker.kernel.tables.offset_journal import (
    GatheredChanges,
    OffsetJournal,
    decode_changes,
    encode_changes,
)
from rockhopper.broker.kernel.tables.remembered_subscriptions import RememberedSubscriptions
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.table_journal import TableJournal
from rockhopper.broker.kernel.tables.topic_ends import TopicEnds
from rockhopper.broker.kernel.tables.topic_ids import TopicIds
from rockhopper.broker.kernel.tables.topics import TopicTable, queue_directories
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.deleted_topics import DeletedTopics
from rockhopper.broker.users.access import KINDS, ResourceKind
from rockhopper.protocol.store.store_paths import DELETED_TOPICS_FILE

log = structlog.get_logger("broker.tables")

TOPICS_NAMED_MAX = 20

Table = TypeVar("Table", bound=JsonTable)
OneState = TypeVar("OneState", bound=State)

_SNAPSHOT_ORDER = {Channel.GATHERED: 1, None: 2}


class CatalogState(State):
    """The topics and groups that exist, and the past of topics and of the log."""

    def __init__(
        self, config: BrokerConfig, layout: StoreLayout, *, now_ms: Callable[[], int]
    ) -> None:
        self._layout = layout
        self.topics = _journaled(
            layout, TopicTable(layout.config / "topics.json", config, now_ms=now_ms)
        )
        self.groups = _journaled(
            layout,
            SubscriptionGroupTable(
                layout.config / "subscriptionGroup.json",
                config,
                self.topics.listeners,
                now_ms=now_ms,
            ),
        )
        self.topic_ids = _journaled(layout, TopicIds(layout.topic_ids, now_ms=now_ms))
        self.topic_ends = TopicEnds(layout.topic_ends, now_ms=now_ms)
        self.history = LogHistory(layout.log_history, now_ms=now_ms)
        self.tables = {
            # A follower must know a topic's queues before messages enter them.
            self.topics: Channel.ALONE,
            self.groups: Channel.CONFIRMED,
            self.topic_ids: Channel.CONFIRMED,
            self.topic_ends: Channel.CONFIRMED,
            self.history: Channel.CONFIRMED,
        }

    def restore_topics(self) -> None:
        """Restore topics that only have queue directories; writes nothing."""
        found = queue_directories(self._layout, known=self.topics.configs)
        self.topics.restore_from_queue_directories(found)

    def known_offsets(self) -> dict[tuple[str, int], int]:
        """Return the queues of all topics."""
        return {
            (name, queue_id): 0
            for name, topic in self.topics.configs.items()
            for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums))
        }

    def agree_with(self, store: MessageStore) -> None:
        """Restore topics, drop ids of topics that are gone, and add the built-in entries."""
        self.restore_topics()
        layout = self._layout
        deletions = DeletedTopics(layout.own / DELETED_TOPICS_FILE, layout.quarantine)
        self.topic_ids.agree_with(self.topics, deletions)
        self.topics.listeners.append(self.topic_ids)
        self.topics.seed_system_topics()
        self.groups.seed_system_groups()
        self._warn_of_compaction()
        store.opened.topic_ends = self.topic_ends

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


class AccountState(State):
    """The users, and the rules about them."""

    def __init__(
        self,
        layout: StoreLayout,
        kinds: Sequence[ResourceKind] | None,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """Rules may be about *kinds* of resources; None: about any."""
        self.users = _journaled(layout, UserTable(layout.config / "users.json", now_ms=now_ms))
        self.acls = _journaled(
            layout, AclTable(layout.config / "acls.json", now_ms=now_ms, kinds=kinds)
        )
        self.tables = {self.users: Channel.CONFIRMED, self.acls: Channel.CONFIRMED}


class SubscriptionState(State):
    """The subscriptions of groups, for the time until their members come back."""

    def __init__(self, layout: StoreLayout, *, now_ms: Callable[[], int]) -> None:
        self.table = RememberedSubscriptions(layout.remembered_subscriptions, now_ms=now_ms)
        self.tables = {self.table: Channel.GATHERED}

    async def leave(self) -> None:
        """Expect members of groups from now on."""
        self.table.begin_anew()


class OffsetState(State):
    """The committed offsets.

    kind  payload
      4   OFFSETS: lines of the journal (kernel/tables/offset_journal.py)
    """

    kinds = (StateKind.OFFSETS,)

    def __init__(
        self, config: BrokerConfig, channels: StateChannels, *, now_ms: Callable[[], int]
    ) -> None:
        layout = StoreLayout.from_config(config.store)
        self._changes = GatheredChanges(channels.channel(StateKind.OFFSETS, Channel.GATHERED))
        self.table = ConsumerOffsetTable(
            layout.config / "consumerOffset.json",
            version_step=config.offsets_version_step,
            now_ms=now_ms,
            journal=OffsetJournal(layout.offset_journal, layout.quarantine, self._changes),
            with_light_queues=config.store.light_queues_enabled,
        )
        self.tables = {self.table: None}

    def known_offsets(self) -> dict[tuple[str, int], int]:
        """Return the queues with offsets, with the highest of any group."""
        known: dict[tuple[str, int], int] = {}
        for name, _, offsets in self.table.entries():
            for queue_id, offset in offsets.items():
                known[name, queue_id] = max(offset, known.get((name, queue_id), 0))
        return known

    def agree_with(self, store: MessageStore) -> None:
        """Reduce offsets beyond the end of their queue."""
        self.table.clamp(lambda topic, queue_id: store.reading.queue_range(topic, queue_id)[1])

    def gathered(self) -> list[Entry]:
        """Return the last change of each queue."""
        return join(
            StateKind.OFFSETS, [encode_changes([change]) for change in self._changes.take_all()]
        )

    def apply(self, kind: int, payload: bytes, log_offset: int) -> None:
        """Apply changes, and append them to the journal here."""
        self.table.take_changes(decode_changes(payload))


class Tables(Part):
    """Everything that a broker keeps beside the log: the states of the kernel and of features."""

    def __init__(
        self, config: BrokerConfig, clock: BrokerClock, features: Mapping[str, State] | None = None
    ) -> None:
        """*features* are the states of features, by their names.

        An offline tool has none, and reads rules about any kind of resource.
        """
        now_ms = clock.wall_ms
        self.config = config
        layout = StoreLayout.from_config(config.store)
        self.channels = channels = StateChannels()
        self.features = features or {}
        """The state of each feature, by its name."""
        self._kernel: list[State] = []
        self._names = State()
        self.catalog = self._state(CatalogState(config, layout, now_ms=now_ms))
        self.topics, self.groups = self.catalog.topics, self.catalog.groups
        kinds = [kind for state in self.features.values() for kind in state.resource_kinds]
        accounts = self._state(
            AccountState(layout, (*KINDS, *kinds) if self.features else None, now_ms=now_ms)
        )
        self.users, self.acls = accounts.users, accounts.acls
        self.subscriptions = self._state(SubscriptionState(layout, now_ms=now_ms)).table
        self.offsets = self._state(OffsetState(config, channels, now_ms=now_ms)).table
        self.delays = self._state(DelayState(config, channels, now_ms=now_ms))
        self.deletions = self._state(Deletions(self.topics, channels))
        self.timers = self._state(TimerState(config, self.topics, channels, clock))
        self.locks = self._state(LockState(channels, clock.passed_ms))
        for state in self.features.values():
            self._give_channels(state)
            state.attach(self.topics, self.groups)

    def _state(self, state: OneState) -> OneState:
        self._give_channels(state)
        self._kernel.append(state)
        return state

    def _give_channels(self, state: State) -> None:
        for table, channel in state.tables.items():
            if channel is not None:
                table.channel = self.channels.table_channel(table, channel)

    def include_names(self, values: JsonTable) -> None:
        """Scrub and replicate the values of this process's name server, which saves them."""
        self._names.tables = {values: Channel.CONFIRMED}
        self._give_channels(self._names)

    @property
    def states(self) -> tuple[State, ...]:
        """The states of the kernel and of features."""
        return (*self._kernel, *self.features.values())

    @property
    def all(self) -> tuple[JsonTable, ...]:
        """The tables of these states."""
        return tuple(table for state in self.states for table in state.tables)

    @property
    def every(self) -> tuple[JsonTable, ...]:
        """All tables, including the values of the name server."""
        return (*self.all, *self._names.tables)

    @property
    def replicated(self) -> dict[str, tuple[JsonTable, State]]:
        """All replicated tables by the names of their files, in the order of snapshots.

        CONFIRMED tables come first, those that records of other kinds replicate last.
        """
        states = (*self._kernel, self._names, *self.features.values())
        found = [(table, state) for state in states for table in state.tables]
        found.sort(key=lambda each: _SNAPSHOT_ORDER.get(each[1].tables[each[0]], 0))
        return {table.path.name: (table, state) for table, state in found}

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
        self.catalog.restore_topics()

    def known_offsets(self) -> dict[tuple[str, int], int]:
        """Return the queues of all topics, with the highest offset that consumers read."""
        known: dict[tuple[str, int], int] = {}
        for state in self.states:
            for queue, offset in state.known_offsets().items():
                known[queue] = max(offset, known.get(queue, 0))
        return known

    def agree_with(self, store: MessageStore) -> None:
        """Correct entries that contradict the recovered store, and add the built-in entries."""
        for state in self.states:
            state.agree_with(store)

    def start(self) -> None:
        """Begin to write changes; call it once the store is locked and all files are open."""
        for table in self.all:
            table.start_saving()

    def stop_saving(self) -> None:
        """Stop writing, because the store was removed."""
        for table in self.all:
            table.stop_saving()

    async def saved(self) -> None:
        """Return when all tables are on disk. Raises OSError after trying all of them."""
        failure: OSError | None = None
        for table in self.all:
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


def _journaled(layout: StoreLayout, table: Table) -> Table:
    """Give *table* a journal, so that a change of a large one need not write its file."""
    table.changes_journal = TableJournal(
        layout.table_changes(table.path), layout.quarantine, mode=table.file_mode
    )
    return table
