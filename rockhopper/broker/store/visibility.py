"""Which messages are visible: not those of queues on hold, nor those of deleted topics."""

from collections.abc import Collection

from rockhopper.broker.store.dispatch import Dispatch
from rockhopper.broker.store.opening import OpenedStore
from rockhopper.broker.store.queues.deleted_topics import DeletedQueues
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.broker.store.staging import Staging


class Visibility:
    """Holds, deletes and purges the queues of one store. Belongs to the event loop's thread."""

    def __init__(self, opened: OpenedStore, dispatch: Dispatch, staging: Staging) -> None:
        self.opened = opened
        self._log = opened.commit_log
        self._dispatch = dispatch
        self._staging = staging
        # Where the log ended when the first of the queues now on hold was held.
        self._held_from_offset: int | None = None

    def hold(self, tail: QueueTail) -> None:
        """Hide new messages of a queue until ``release``.

        Messages are accepted and acknowledged as before, and their entries are written, so the cost
        of ``release`` does not depend on their number. For queues of type SimpleCQ.
        """
        if self._held_from_offset is None:
            self._held_from_offset = self._log.written_offset
        self._dispatch.hold(tail)

    def release(self) -> None:
        """Make the dispatched messages of all queues on hold visible at once."""
        self._held_from_offset = None
        self._dispatch.release()

    def queue_ends(self, topic: str) -> dict[int, int]:
        """Return the offset of the next message by queue id, for the queues of a topic."""
        ids = {*self.opened.queues.queues_of(topic), *self._staging.queue_ids(topic)}
        return {queue_id: self._staging.tail(topic, queue_id).next_offset for queue_id in ids}

    def delete_topics(self, topics: Collection[str]) -> DeletedQueues:
        """Forget the queues of topics; their records stay in the log until they expire.

        The caller must remove the files, and may do so in a thread.

        Raises:
            OSError: the deletion could not be recorded; nothing is forgotten.
        """
        deleted = self.opened.delete_topics(topics, self._log.written_offset)
        for topic in topics:
            self._staging.forget_topic(topic)
        return deleted

    def delete_in_front_of(self, topics: Collection[str], end: int) -> DeletedQueues | None:
        """Delete topics as another replica did when its log ended at *end*; None if already done.

        Call it when the log is dispatched exactly up to *end*. Raises OSError.
        """
        hides = self.opened.deleted_topics.hides
        left = [topic for topic in topics if not hides(topic, end - 1)]
        if not left:
            return None
        deleted = self.opened.delete_topics(left, end)
        for topic in left:
            self._staging.forget_topic(topic)
        return deleted

    def purge_in_front_of(self, topics: Collection[str], end: int) -> None:
        """Empty topics as another replica did, up to *end*. Raises OSError."""
        hides = self.opened.purged_topics.hides
        left = [topic for topic in topics if not hides(topic, end - 1)]
        if left:
            self.opened.purge_topics(left, end)

    def ends(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the deleted and the purged topics, with the end of the log at that time."""
        return dict(self.opened.deleted_topics), dict(self.opened.purged_topics)

    def purge_topics(self, topics: Collection[str]) -> int:
        """Empty topics, which keep their offsets; return how many messages that removes.

        Messages that no consumer could have seen yet stay: they count as sent later.
        """
        return sum(self.purge_before(part, end) for part, end in self.purge_ends(topics))

    def purge_before(self, topics: Collection[str], end: int) -> int:
        """Empty topics up to *end*, one of ``purge_ends``; return how many messages that removes.

        Raises OSError.
        """
        return self.opened.purge_topics(topics, end)

    def purge_ends(self, topics: Collection[str]) -> list[tuple[Collection[str], int]]:
        """Return up to which offset of the log a purge now empties the topics, in groups."""
        end = self._dispatch.offset
        held_from = self._held_from_offset
        if held_from is None:
            return [(topics, end)]
        held = {topic for topic in topics if self._dispatch.is_held(topic)}
        return [(held, min(held_from, end)), (set(topics) - held, end)]
