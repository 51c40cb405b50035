"""State: what a feature keeps beside the log, and how the followers of a replica set get it.

A broker makes the states of all features before it opens the store. A follower makes nothing else
of a feature: it applies what its master notes to the same files, so that a broker that is promoted
finds them as a broker does that was restarted.
"""

from collections.abc import Collection, Iterator, Mapping

from rockhopper.broker.kernel.state_channels import Channel
from rockhopper.broker.kernel.state_records import Entry
from rockhopper.broker.kernel.tables.json_table import JsonTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.store.message_store import MessageStore


class State:
    """The state of one feature; it overrides what it needs."""

    tables: Mapping[JsonTable, Channel]
    """Its tables, each with the channel of its changes: CONFIRMED or GATHERED. They are loaded,
    saved, scrubbed and replicated with the kernel's; their file names are unique in the store."""

    kinds: Collection[int] = ()
    """The kinds of records that ``apply`` takes, unique among all features (state_records.py)."""

    def attach(self, topics: TopicTable) -> None:
        """Listen to the topics, or extend them; called before any table is loaded."""

    def known_offsets(self) -> dict[tuple[str, int], int]:
        """Return queues that recovery must find, by topic and queue, and how far each was read."""
        return {}

    def agree_with(self, store: MessageStore) -> None:
        """Correct what the recovered store contradicts."""

    def snapshot(self) -> Iterator[Entry]:
        """Return what a new follower applies: all that is not in ``tables``."""
        return iter(())

    def apply(self, kind: int, payload: bytes, log_offset: int) -> None:
        """Apply a master's change on a follower; the same change again, in order, changes nothing.

        *log_offset* is where the record of the change stands in the log. Blocks for the disk.

        Raises:
            StateRecordError: the payload makes no sense; it is not applied.
            OSError: a file cannot be written.
        """


class NoState(State):
    """The state of a feature that keeps nothing."""

    tables: Mapping[JsonTable, Channel] = {}
