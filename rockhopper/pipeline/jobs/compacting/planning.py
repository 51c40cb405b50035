"""Select the files of an archive to merge.

A group has small files of one topic and day that are neighbours in the order of their messages. The
merged file takes the place of the first one. So each other file must be free to move there: no file
in between may hold older messages of its queues.

Example: a topic has four small files, in this order:

    A  day 1, queue 0, offsets 0 to 9
    B  day 2, queue 0, offsets 10 to 19
    C  day 1, queue 1, offsets 0 to 9
    D  day 1, queue 0, offsets 20 to 29

A and C are merged, because B has no messages of queue 1. D stays apart: with A it would come before
B, which has older messages of queue 0.
"""

from collections.abc import Iterable, Iterator, Sequence

from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile, make_stored_key
from rockhopper.pipeline.jobs.body_hash import CRC_BITS

# All files of a group are read into memory, together with their Arrow tables.
BODY_BYTES_MAX = 512 << 20

Group = tuple[ArchivedFile, ...]


def groups(
    files: Iterable[ArchivedFile], target_bytes: int, topics: Sequence[str] = ()
) -> list[Group]:
    """Return the groups of files to merge, each with at least two files."""
    by_topic: dict[str, list[ArchivedFile]] = {}
    for file in sorted(files, key=make_stored_key):
        by_topic.setdefault(file.topic, []).append(file)
    return [
        tuple(group)
        for topic, of_topic in sorted(by_topic.items())
        if not topics or topic in topics
        for group in _of_topic(of_topic, target_bytes)
        if len(group) > 1
    ]


def _of_topic(files: Sequence[ArchivedFile], target_bytes: int) -> Iterator[list[ArchivedFile]]:
    is_open: dict[str, list[ArchivedFile]] = {}
    passed: dict[str, list[ArchivedFile]] = {}
    """By day: the files after the first one of the open group that are not in it."""
    for file in files:
        group = is_open.get(file.date)
        if _is_small(file, target_bytes):
            if group is not None and _fits(file, group, target_bytes, passed[file.date]):
                group.append(file)
            else:
                if group is not None:
                    yield group
                is_open[file.date], passed[file.date] = [file], []
        for day, others in passed.items():
            if is_open[day][-1] is not file:
                others.append(file)
    yield from is_open.values()


def _is_small(file: ArchivedFile, target_bytes: int) -> bool:
    # Hashes of older archives cannot be added to current ones.
    is_of_today = all(queue.crc_bits == CRC_BITS for queue in file.queues)
    return is_of_today and file.bytes < target_bytes / 2


def _fits(
    file: ArchivedFile, group: list[ArchivedFile], target_bytes: int, passed: list[ArchivedFile]
) -> bool:
    together = [*group, file]
    if sum(each.bytes for each in together) > target_bytes:
        return False
    if sum(queue.body_bytes for each in together for queue in each.queues) > BODY_BYTES_MAX:
        return False
    last = {queue.queue: queue.last_offset for queue in file.queues}
    return all(
        queue.first_offset > last.get(queue.queue, -1) for each in passed for queue in each.queues
    )
