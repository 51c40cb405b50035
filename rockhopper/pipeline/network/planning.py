"""How much of a backlog a batch takes, and which task reads what."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.network.positions import Offsets

# Below so many messages a task costs more to start than it saves.
RECORDS_WORTH_A_TASK = 20_000

# Assumed of records that nobody has seen.
RECORD_BYTES = 1024.0


@dataclass(frozen=True)
class Range:
    """Messages [begin, end) of a queue."""

    queue: MessageQueue
    begin: int
    end: int
    topic_id: str = ""
    """What tells the topic from others of its name, blank where the broker has no ids."""

    @property
    def count(self) -> int:
        """How many messages that is."""
        return self.end - self.begin


@dataclass
class NetworkPartition(InputPartition):
    """What one task reads."""

    ranges: tuple[Range, ...]

    def __post_init__(self) -> None:
        super().__init__(self.ranges)


def limited(begin: Offsets, end: Offsets, count_max: int) -> Offsets:
    """Ends that take at most *count_max* messages, shared out by backlog.

    A queue that has any gets at least one, so that none starves; with more queues than *count_max*
    that is more in all.
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
    """The same for bytes, by the mean size of a queue's records."""
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
    """Share ranges out over tasks: long ones are cut, short ones go together."""
    ranges = [each for each in ranges if each.count > 0]
    total = sum(each.count for each in ranges)
    if not total:
        return []
    tasks = min_partitions or min(os.cpu_count() or 1, -(-total // RECORDS_WORTH_A_TASK))
    if max_records is not None:
        tasks = max(tasks, -(-total // max_records))
    share = min(-(-total // tasks), max_records or total)
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
