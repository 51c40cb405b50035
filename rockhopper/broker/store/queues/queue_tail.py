"""QueueTail: next offset and waiters of a queue; Run and StagedMessages: what a pass adds.

Compiled code appends plain runs to their queues. A run is plain if it has messages and is one
piece, and its queue holds single messages, is at the run's first offset, has room for it and is not
on hold.
``ConsumeQueue.append_many`` is the oracle, and appends all other runs.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Set
from typing import Any

import msgspec

from rockhopper.broker.store.log.encoding import INDEX_KEY, QueueConstants, queue_constants
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.protocol.compiled import import_compiled


class Waiters(dict[Any, None]):
    """The readers that wait for messages of one queue, in the order of their arrival."""

    @abstractmethod
    def arrived(self, tail: "QueueTail", max_offset: int, tags_codes: Set[int]) -> None:
        """Notify them of messages with *tags_codes* in the queue, which ends at *max_offset*."""


class QueueTail:
    """One queue of one topic, from a writer's view.

    ``next_offset`` is the queue offset of the next message. The code that holds pulls owns
    ``waiters``; dispatch notifies them if there are any. ``is_deleted`` is set when the topic is
    deleted; a later topic of the same name has other tails.
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
        self.waiters: Waiters | None = None


class Run(msgspec.Struct, gc=False, eq=False):
    """Consecutive messages of one queue in one pass, dispatched by one call.

    ``start`` is the commit log offset of the first record, ``end`` is after the last one; records
    of other queues may be in between. For a record that holds a whole batch, ``batch_count`` is the
    number of its messages.
    """

    tail: QueueTail
    start: int
    end: int
    first_offset: int
    count: int
    units: list[bytes]
    batch_count: int = 0

    @classmethod
    def empty_at(cls, tail: QueueTail, start: int) -> "Run":
        """Return an empty run that starts at the next offset of a queue."""
        return cls(tail, start, start, tail.next_offset, 0, [])


class StagedMessages:
    """The messages that a pass put between two commit log offsets: runs, and all index keys.

    The keys are in the order of the log, the runs in that of their first records. No run continues
    from one file of the log to the next.
    """

    __slots__ = ("end", "packed_keys", "runs", "start")

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.runs: list[Run] = []
        self.packed_keys = bytearray()

    def split_at(self, log_offset: int) -> "StagedMessages":
        """Split at an offset that is within no run: keep the part before it, return the rest."""
        behind = StagedMessages(max(log_offset, self.start))
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


def append_plain_in_python(_runs: list[Run], first: int) -> int:
    """Append nothing: without C, ``append_many`` handles all runs."""
    return first


def take_offsets_in_python(runs: list[Run]) -> None:
    """The oracle of ``take_offsets``."""
    for run in runs:
        run.tail.next_offset = run.first_offset + run.count


def awaited_in_python(runs: list[Run], count: int) -> list[Run]:
    """The oracle of ``awaited``."""
    return [run for run in runs[:count] if run.tail.waiters]


append_plain: Callable[[list[Run], int], int] = append_plain_in_python
"""Append the plain runs from number *first* on; return the number of the first run that is not
plain."""
take_offsets: Callable[[list[Run]], None] = take_offsets_in_python
"""Advance the tails of *runs* to the ends of the runs, which begin at the tails' next offsets."""
awaited: Callable[[list[Run], int], list[Run]] = awaited_in_python
"""Return those of the first *count* of *runs* whose queues have waiters."""

_appending = import_compiled("rockhopper.broker.store.queues._appending")
if _appending is not None:
    _appending.set_classes(Run, QueueTail, ConsumeQueue)
    append_plain = _appending.append_plain
    take_offsets, awaited = _appending.take_offsets, _appending.awaited
