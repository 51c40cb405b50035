"""Deletions: deleted and purged topics, here and on the followers of a replica set.

The store records them in files (store/queues/deleted_topics.py). A follower records the same
positions of the log, so after a failover the same messages are gone:

    kind  payload
     11   DELETED: topics as JSON: their messages before this record are deleted
     12   PURGED: [topics, log offset before which their messages are purged] as JSON
     13   ENDS: [{topic: log offset} of deletions, the same of purges] as JSON
"""

from collections.abc import Collection, Iterator

from rockhopper.broker.kernel.state import State
from rockhopper.broker.kernel.state_channels import Channel, StateChannels
from rockhopper.broker.kernel.state_records import Entry, StateKind
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.deleted_topics import DeletedQueues
from rockhopper.protocol import fastjson


class Deletions(State):
    """Deletes and purges topics. Belongs to the event loop."""

    kinds = (StateKind.DELETED, StateKind.PURGED, StateKind.ENDS)

    def __init__(self, topics: TopicTable, channels: StateChannels) -> None:
        self._topics = topics
        self._deleted = channels.channel(StateKind.DELETED, Channel.ALONE)
        self._purged = channels.channel(StateKind.PURGED, Channel.ALONE)
        self._store: MessageStore

    def agree_with(self, store: MessageStore) -> None:
        """Use this store."""
        self._store = store

    def delete_topics(self, topics: Collection[str]) -> DeletedQueues:
        """Forget the queues of topics, before the log has any later message for them.

        The caller must remove the files, and may do so in a thread.

        Raises:
            OSError: the deletion could not be recorded; nothing is forgotten.
        """
        queues = self._store.visibility.delete_topics(topics)
        self._deleted.note(fastjson.dumps(list(topics)).encode())
        return queues

    def purge_topics(self, topics: Collection[str]) -> None:
        """Empty the queues of topics, which keep their offsets. Raises OSError."""
        visibility = self._store.visibility
        for part, end in visibility.purge_ends(topics):
            visibility.purge_before(part, end)
            if part:
                self._purged.note(fastjson.dumps([list(part), end]).encode())

    def snapshot(self) -> Iterator[Entry]:
        """Return where deletions and purges ended."""
        yield StateKind.ENDS, fastjson.dumps(self._store.visibility.ends()).encode()

    def apply(self, kind: int, payload: bytes, log_offset: int) -> None:
        """Delete or purge as the master did. Raises OSError."""
        match kind:
            case StateKind.DELETED:
                self._delete(fastjson.loads(payload), log_offset)
            case StateKind.PURGED:
                topics, end = fastjson.loads(payload)
                self._store.visibility.purge_in_front_of(topics, end)
            case StateKind.ENDS:
                self._apply_ends(*fastjson.loads(payload))

    def _delete(self, topics: Collection[str], end: int) -> None:
        queues = self._store.visibility.delete_in_front_of(topics, end)
        if queues is not None:
            queues.remove()

    def _apply_ends(self, deleted: dict[str, int], purged: dict[str, int]) -> None:
        visibility = self._store.visibility
        for topic, end in deleted.items():
            if topic in self._topics:
                # The topic was created again, so its queues may contain later messages.
                visibility.purge_in_front_of([topic], end)
            else:
                self._delete([topic], end)
        for topic, end in purged.items():
            visibility.purge_in_front_of([topic], end)
