"""What of the log is shown: not yet what comes into queues on hold, nor any more deleted topics."""

from collections.abc import Collection

from rockhopper.broker.store.dispatch import Dispatch
from rockhopper.broker.store.opening import OpenedStore
from rockhopper.broker.store.queues.deleted_queues import DeletedQueues
from rockhopper.broker.store.queues.queue_tail import QueueTail
from rockhopper.broker.store.staging import Staging


class Visibility:
    """Holds, deletes and purges the queues of one store. Belongs to the event loop's thread."""

    def __init__(self, opened: OpenedStore, dispatch: Dispatch, staging: Staging) -> None:
        self.opened = opened
        self._log = opened.commit_log
        self._dispatch = dispatch
        self._staging = staging
        # Where the log ended when the first of the queues was held that are.
        self._held_from_offset: int | None = None

    def hold(self, tail: QueueTail) -> None:
        """Show nobody what comes into a queue from now on, until ``release``.

        Messages are taken and answered as before, and their entries are written, so that it does
        not matter to ``release`` how many there are. For queues of type SimpleCQ.
        """
        if self._held_from_offset is None:
            self._held_from_offset = self._log.written_offset
        self._dispatch.hold(tail)

    def release(self) -> None:
        """Show everybody what came into the queues on hold and is dispatched, all at once."""
        self._held_from_offset = None
        self._dispatch.release()

    def delete_topics(self, topics: Collection[str]) -> DeletedQueues:
        """Forget the queues of topics; their records stay in the log until they expire.

        The files are the caller's to remove, who may do so in a thread.

        Raises:
            OSError: the deletion could not be noted; nothing is forgotten.
        """
        deleted = self.opened.delete_topics(topics, self._log.written_offset)
        for topic in topics:
            self._staging.forget_topic(topic)
        return deleted

    def purge_topics(self, topics: Collection[str]) -> int:
        """Empty the queues of topics, which keep their offsets; return how many messages went.

        What no consumer could have seen yet stays: it was sent later, as far as anybody knows.
        """
        end = self._dispatch.offset
        held_from = self._held_from_offset
        if held_from is None:
            return self.opened.purge_topics(topics, end)
        held = {topic for topic in topics if self._dispatch.is_held(topic)}
        return self.opened.purge_topics(held, min(held_from, end)) + self.opened.purge_topics(
            set(topics) - held, end
        )
