"""State: the data of a feature beside the log, and its way to the followers of a replica set.

A broker creates the states of all features before it opens the store. A follower creates no other
part of a feature. It applies the changes of its master to the same files. So a broker that is
promoted finds these files in the same condition as after a restart.
"""

from collections.abc import Collection, Iterator, Mapping

from rockhopper.broker.kernel.state_channels import Channel
from rockhopper.broker.kernel.state_records import Entry
from rockhopper.broker.kernel.tables.json_table import JsonTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.store.message_store import MessageStore


class State:
    """The state of one feature; a subclass overrides the methods that it needs."""

    tables: Mapping[JsonTable, Channel]
    """The tables of the feature, each with the channel of its changes: CONFIRMED or GATHERED.

    They are loaded, saved, scrubbed and replicated together with the kernel's tables. Their file
    names are unique in the store.
    """

    slave_tables: Mapping[str, tuple[str, JsonTable]] = {}
    """Those of ``tables`` that RocketMQ has, too: the name of the request code by which a slave
    asks for one → its name in errors, and the table."""

    kinds: Collection[int] = ()
    """The kinds of records that ``apply`` accepts, unique among all features (state_records.py)."""

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

    def snapshot(self) -> Iterator[Entry]:
        """Return the entries that a new follower applies: everything that is not in ``tables``."""
        return iter(())

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

    tables: Mapping[JsonTable, Channel] = {}
