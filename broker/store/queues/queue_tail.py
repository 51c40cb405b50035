"""QueueTail: where the next message of one queue goes, and what waits there for it."""

from rockhopper.broker.store.log.encoding import QueueConstants, queue_constants
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


class Run:
    """Consecutive messages of one queue in one pass, written by one call and dispatched by one.

    For a record that holds a whole batch ``batch_count`` says how many messages that is.
    """

    __slots__ = (
        "batch_count",
        "count",
        "end",
        "first_offset",
        "packed_keys",
        "start",
        "tail",
        "units",
    )

    def __init__(self, tail: QueueTail, start: int) -> None:
        self.tail = tail
        self.first_offset = tail.next_offset
        self.start = self.end = start
        self.count = 0
        self.batch_count = 0
        self.units: list[bytes] = []
        self.packed_keys = bytearray()
