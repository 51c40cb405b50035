"""State: data that is kept beside the log, and its way to the followers of a replica set.

A broker creates the states of the kernel and of all features before it opens the store. A follower
creates nothing else of them. It applies the changes of its master to the same files. So a broker
that is promoted finds these files in the same condition as after a restart.
"""

from collections.abc import Collection, Iterator, Mapping

from rockhopper.broker.kernel.state_channels import Channel
from rockhopper.broker.kernel.state_records import Entry
from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import ResourceKind


class State:
    """The state of one owner; a subclass overrides the methods that it needs."""

    tables: Mapping[JsonTable, Channel | None] = {}
    """The tables, each with the channel of its changed entries: CONFIRMED, GATHERED or ALONE; None
    if records of the state's own ``kinds`` replicate the changes.

    They are loaded, saved, scrubbed and replicated together. Their file names are unique in the
    store.
    """

    slave_tables: Mapping[str, tuple[str, JsonTable]] = {}
    """Those of ``tables`` that RocketMQ has, too: the name of the request code by which a slave
    asks for one → its name in errors, and the table."""

    resource_kinds: Collection[ResourceKind] = ()
    """Kinds of resources, beside the kernel's, that rules of users may name."""

    kinds: Collection[int] = ()
    """The kinds of records that ``apply`` accepts, unique among all states (state_records.py)."""

    def attach(self, topics: TopicTable, groups: SubscriptionGroupTable) -> None:
        """Listen to the topics, or extend these tables; called before any table is loaded."""

    def known_offsets(self) -> dict[tuple[str, int], int]:
        """Return queues that recovery must find: (topic, queue id) -> how far each was read."""
        return {}

    def agree_with(self, store: MessageStore) -> None:
        """Correct the state where the recovered *store* contradicts it."""

    def follow(self, store: MessageStore) -> None:
        """Read the files that ``apply`` changes, on a follower; blocks. Raises OSError."""

    async def leave(self) -> None:
        """Close these files: the follower closes its store or is promoted. Raises OSError."""

    def catch_up(self) -> bool:
        """Process a part of the log on a follower; return whether there may be more.

        Raises OSError.
        """
        return False

    async def save(self) -> None:
        """Write to disk what ``apply`` has changed besides ``tables``. Raises OSError."""

    def document(self, table: JsonTable) -> JsonObject:
        """Return the content of one of ``tables`` for a snapshot."""
        return table.to_json()

    def snapshot(self) -> Iterator[Entry]:
        """Return the entries that a new follower applies: everything that is not in ``tables``."""
        return iter(())

    def gathered(self) -> list[Entry]:
        """Return the changes that the followers lack, and forget them.

        The state's channel is GATHERED: ``StateChannel.gather`` was called with each change.
        """
        return []

    def apply(self, kind: int, payload: bytes, log_offset: int) -> None:
        """Apply a master's change on a follower.

        The follower may apply the same changes again, in the same order, without effect.
        *log_offset* is the log offset of the change's record. Blocks while it writes to disk.

        Raises:
            StateRecordError: the payload is invalid; it is not applied.
            OSError: a file cannot be written.
        """


class NoState(State):
    """The state of a feature that has none."""
