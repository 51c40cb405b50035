"""Build the items of a staged part: runs of messages for one queue if possible."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rockhopper.pipeline.sink.encoding import Messages
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkRun

RUN_COUNT_MIN = 64
"""The smallest run when rows for any queue are split over several queues."""


class StageItems:
    """Makes the items of SINK_STAGE requests, for all batches of a task."""

    def __init__(self, queue_count: Callable[[str, str], int], first_turn: int = 0) -> None:
        """*queue_count* returns the number of writable queues of a topic on a broker.

        Rows for any queue go to the queues in turn, starting at number *first_turn*.
        """
        self._queue_count = queue_count
        self._turn = first_turn

    def items(
        self, messages: Messages, queue_ids: Sequence[int], rows: Any, broker: str
    ) -> list[SinkMessage | SinkRun]:
        """Return the items for some rows; rows for one queue keep their order.

        Queue −1 means any queue of *broker*. *rows* is a slice, or an array of row numbers.

        Raises:
            PipelineError: a row cannot be stored.
        """
        if messages.has_born or messages.is_delayed is not None:
            return list(_one_by_one(messages, queue_ids, rows))
        groups = _groups(messages, queue_ids, rows)
        if any(topic.startswith("%") for topic, _ in groups):
            return list(_one_by_one(messages, queue_ids, rows))
        found: list[SinkMessage | SinkRun] = []
        for (topic, queue_id), some in groups.items():
            if queue_id >= 0:
                found.append(_run(messages, topic, queue_id, some))
            else:
                found += self._spread(messages, topic, some, self._queue_count(topic, broker))
        return found

    def _spread(self, messages: Messages, topic: str, rows: Any, count: int) -> Iterator[SinkRun]:
        size = len(rows) if isinstance(rows, np.ndarray) else rows.stop - rows.start
        run_count = min(count, max(size // RUN_COUNT_MIN, 1))
        bounds = [size * number // run_count for number in range(run_count + 1)]
        for first, last in pairwise(bounds):
            if isinstance(rows, slice):
                chosen: Any = slice(rows.start + first, rows.start + last)
            else:
                chosen = rows[first:last]
            yield _run(messages, topic, self._turn % count, chosen)
            self._turn += 1


def _groups(messages: Messages, queue_ids: Sequence[int], rows: Any) -> dict[tuple[str, int], Any]:
    """Group rows by topic and queue; the rows have the form that ``Messages.batch`` takes."""
    if len(set(messages.topics)) == 1 and len(set(queue_ids)) == 1:
        return {(messages.topics[0], queue_ids[0]): rows}
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in _numbers(rows):
        groups[messages.topics[row], queue_ids[row]].append(row)
    return {key: np.array(some) for key, some in groups.items()}


def _numbers(rows: Any) -> Iterable[int]:
    if isinstance(rows, slice):
        return range(rows.start, rows.stop)
    numbers: list[int] = rows.tolist()
    return numbers


def _run(messages: Messages, topic: str, queue_id: int, rows: Any) -> SinkRun:
    first = rows.start if isinstance(rows, slice) else rows[0]
    return SinkRun(topic, queue_id, messages.born_ms[first], messages.batch(rows))


def _one_by_one(messages: Messages, queue_ids: Sequence[int], rows: Any) -> Iterator[SinkMessage]:
    for row in _numbers(rows):
        yield SinkMessage(
            messages.topics[row],
            queue_ids[row],
            messages.flags[row],
            messages.born_ms[row],
            messages.properties[row],
            messages.bodies[row],
        )
