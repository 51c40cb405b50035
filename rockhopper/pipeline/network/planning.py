"""Limit the size of a batch, and distribute its messages over tasks."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.network.positions import Offsets

# Below this number of messages, starting a task costs more than it saves.
RECORDS_WORTH_A_TASK = 20_000

# The assumed record size before any sample.
RECORD_BYTES = 1024.0


@dataclass(frozen=True)
class Range:
    """Messages [begin, end) of a queue."""

    queue: MessageQueue
    begin: int
    end: int
    topic_id: str = ""
    """The id of the topic; blank if the broker has no ids."""

    @property
    def count(self) -> int:
        """The number of messages."""
        return self.end - self.begin


@dataclass
class NetworkPartition(InputPartition):
    """The ranges that one task reads."""

    ranges: tuple[Range, ...]

    def __post_init__(self) -> None:
        super().__init__(self.ranges)


def limited(begin: Offsets, end: Offsets, count_max: int) -> Offsets:
    """Limit *end* to *count_max* messages in all, in proportion to each queue's backlog.

    Example: of backlogs of 900 and 100 messages, a *count_max* of 500 takes 450 and 50.

    Every queue with messages gets at least one, so that no queue starves. With more queues than
    *count_max*, the result therefore exceeds *count_max*.
    """
    backlog = {queue: at - begin[queue] for queue, at in end.items() if at > begin[queue]}
    total = sum(backlog.values())
    if total <= count_max:
        return end
    taken = dict(begin)
    for queue in end:
        taken.setdefault(queue, end[queue])
    for queue, waiting in backlog.items():
        taken[queue] = begin[queue] + max(waiting * count_max // total, 1)
    return taken


def limited_by_bytes(
    begin: Offsets, end: Offsets, bytes_max: int, record_bytes: Mapping[MessageQueue, float]
) -> Offsets:
    """Limit *end* to *bytes_max* bytes in all, by the mean record size of each queue."""
    usual = sum(record_bytes.values()) / len(record_bytes) if record_bytes else RECORD_BYTES
    backlog = {
        queue: (at - begin[queue]) * record_bytes.get(queue, usual)
        for queue, at in end.items()
        if at > begin[queue]
    }
    total = sum(backlog.values())
    if total <= bytes_max:
        return end
    taken = dict(begin)
    for queue in end:
        taken.setdefault(queue, end[queue])
    for queue in backlog:
        count = int((end[queue] - begin[queue]) * (bytes_max / total))
        taken[queue] = begin[queue] + max(count, 1)
    return taken


def plan(
    ranges: list[Range], min_partitions: int | None, max_records: int | None
) -> list[NetworkPartition]:
    """Distribute ranges over tasks: split long ranges, combine short ones."""
    ranges = [each for each in ranges if each.count > 0]
    total = sum(each.count for each in ranges)
    if not total:
        return []
    share = _share(total, min_partitions, max_records)
    filled: list[list[Range]] = [[]]
    room = share
    for each in sorted(ranges, key=lambda one: one.queue):
        begin = each.begin
        while begin < each.end:
            if not room:
                filled.append([])
                room = share
            end = min(begin + room, each.end)
            filled[-1].append(replace(each, begin=begin, end=end))
            room -= end - begin
            begin = end
    return [NetworkPartition(tuple(part)) for part in filled]


def _share(total: int, min_partitions: int | None, max_records: int | None) -> int:
    """Return how many of *total* messages one task reads."""
    tasks = min_partitions or min(os.cpu_count() or 1, -(-total // RECORDS_WORTH_A_TASK))
    if max_records is not None:
        tasks = max(tasks, -(-total // max_records))
    return min(-(-total // tasks), max_records or total)
