"""QueueTail: where the next message of one queue goes, what waits there, and what a pass adds."""

from bisect import bisect_left

import msgspec

from rockhopper.broker.store.log.encoding import INDEX_KEY, QueueConstants, queue_constants
from rockhopper.broker.store.queues.unit_queue import UnitQueue


class QueueTail:
    """One queue of one topic, as those see it who write.

    ``next_offset`` is the queue offset of the next message. ``waiters`` belongs to whoever parks
    pulls; dispatch only looks whether it is empty. ``is_deleted`` says that the topic was deleted;
    a topic of the same name that comes later has other tails.
    """

    __slots__ = (
        "constants",
        "consume_queue",
        "is_batch",
        "is_deleted",
        "next_offset",
        "queue_id",
        "topic",
        "waiters",
    )

    def __init__(self, topic: str, queue_id: int, next_offset: int, *, is_batch: bool) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.next_offset = next_offset
        self.is_batch = is_batch
        self.is_deleted = False
        self.constants: QueueConstants = queue_constants(topic, queue_id)
        self.consume_queue: UnitQueue | None = None
        self.waiters: dict[object, None] | None = None


class Run(msgspec.Struct, gc=False, eq=False):
    """Consecutive messages of one queue in one pass, dispatched by one call.

    ``start`` is the commit log offset of the first one's record, ``end`` is behind the last one's;
    in between there may be records of other queues. For a record that holds a whole batch
    ``batch_count`` says how many messages that is.
    """

    tail: QueueTail
    start: int
    end: int
    first_offset: int
    count: int
    units: list[bytes]
    batch_count: int = 0

    @classmethod
    def of(cls, tail: QueueTail, start: int) -> "Run":
        """A run without a message yet, of what comes next in a queue."""
        return cls(tail, start, start, tail.next_offset, 0, [])


class Staged:
    """What a pass has put between two commit log offsets: runs, and everybody's index keys.

    The keys stand in the order of the log, runs in that of their first records. No run goes on
    from one file of the log to the next.
    """

    __slots__ = ("end", "packed_keys", "runs", "start")

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.runs: list[Run] = []
        self.packed_keys = bytearray()

    def split_at(self, log_offset: int) -> "Staged":
        """Return what stands behind an offset that is within no run, and keep the rest."""
        behind = Staged(max(log_offset, self.start))
        behind.end = max(self.end, behind.start)
        self.end = min(self.end, behind.start)
        behind.runs = [run for run in self.runs if run.start >= log_offset]
        self.runs = [run for run in self.runs if run.start < log_offset]
        size = INDEX_KEY.size
        keys = range(0, len(self.packed_keys), size)
        cut = size * bisect_left(
            keys, log_offset, key=lambda at: INDEX_KEY.unpack_from(self.packed_keys, at)[1]
        )
        behind.packed_keys = self.packed_keys[cut:]
        del self.packed_keys[cut:]
        return behind
