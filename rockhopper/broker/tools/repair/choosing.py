"""Choose the points of a backup to restore from, and the last message to restore.

A backup may cover a time more than once. A new line of points begins after a power cut, or when a
restored store is backed up to the same backup: it is another log with the same beginning. For a
given time, the choice is the line that was served at that time: the line of the points around it.
If these points are of two lines, it is the newer line, provided that its first own message was
stored before that time.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.recovering.log_walk import LogWalk
from rockhopper.broker.tools.output import time_text
from rockhopper.broker.tools.repair.backing_up import Backup
from rockhopper.broker.tools.repair.copying import STEP_BYTES
from rockhopper.broker.tools.repair.manifest import CopiedLogFile, Point
from rockhopper.protocol.store.expected import Record


class RestorePoints(NamedTuple):
    """The points to restore from."""

    tables: Point
    log: Point
    before_ms: int | None = None
    """Restore only messages stored before this time."""


class Last(NamedTuple):
    """The last restored message."""

    store_time_ms: int
    log_end: int
    """Its end in the log."""


def choose(backup: Backup, number: int | None, before_ms: int | None) -> RestorePoints:
    """Choose what to restore. Raises StoreError.

    For a time, the log is that of the newest point that covers it. The tables are those of the last
    point before the time. So the tables lag behind the log, as after a crash, and later deletions
    are undone. If there is no earlier point, the first point of the line is used, without its
    delivery notes.
    """
    newest = backup.manifest.point(number)
    if number is not None or before_ms is None:
        return RestorePoints(newest, newest, before_ms)
    wanted = _point_around(backup, before_ms)
    of_line = [point for point in backup.manifest.points if point.line == wanted.line]
    earlier = [point for point in of_line if point.time_ms <= before_ms]
    start = _start(backup, wanted)
    whole = [
        point
        for point in of_line
        if point.number >= wanted.number and _start(backup, point) <= start
    ]
    return RestorePoints(earlier[-1] if earlier else of_line[0], whole[-1], before_ms)


def _point_around(backup: Backup, before_ms: int) -> Point:
    points = backup.manifest.points
    count = max((at for at, each in enumerate(points, 1) if each.time_ms <= before_ms), default=0)
    if not count or count == len(points):
        return points[max(count - 1, 0)]
    former, later = points[count - 1 : count + 1]
    if former.line != later.line:
        own_ms = _first_own_time_ms(backup, former, later)
        if own_ms is None or own_ms >= before_ms:
            return former
    return later


def _first_own_time_ms(backup: Backup, former: Point, later: Point) -> int | None:
    """Return the store time of the first message that only the log of *later* has."""
    others = {segment.base: segment for segment in backup.manifest.lines[str(former.line)]}
    for segment in segments_of(backup, later):
        other = others.get(segment.base)
        if other is not None and other.name == segment.name:
            continue
        shared_bytes = 0 if other is None else _count_shared_bytes(backup, segment, other)
        for record in _records(backup, segment):
            if record.end_offset > segment.base + shared_bytes:
                return record.store_time_ms
    return None


def _count_shared_bytes(backup: Backup, one: CopiedLogFile, other: CopiedLogFile) -> int:
    """Return the length of the common beginning of two log files."""
    at, size_bytes = 0, min(one.size, other.size)
    with (
        (backup.log / one.name).open("rb") as first,
        (backup.log / other.name).open("rb") as second,
    ):
        while at < size_bytes:
            count = min(STEP_BYTES, size_bytes - at)
            pieces = first.read(count), second.read(count)
            if pieces[0] != pieces[1]:
                pairs = enumerate(zip(*pieces, strict=False))
                return at + next((n for n, pair in pairs if pair[0] != pair[1]), 0)
            at += count
    return size_bytes


def segments_of(backup: Backup, point: Point) -> list[CopiedLogFile]:
    """Return the log files of a point."""
    return [each for each in backup.manifest.lines[str(point.line)] if each.base < point.log_end]


def missing_of(backup: Backup, point: Point) -> list[tuple[int, int]]:
    """Return the gaps between the log files of a point."""
    return [
        (former.end, later.base)
        for former, later in pairwise(segments_of(backup, point))
        if former.end < later.base
    ]


def _start(backup: Backup, point: Point) -> int:
    segments = segments_of(backup, point)
    return segments[0].base if segments else 0


def last_of(backup: Backup, choice: RestorePoints) -> Last:
    """Return the last message of a choice.

    Raises:
        StoreError: there is none from before the time.
        OSError: the backup cannot be read.
    """
    point, before_ms = choice.log, choice.before_ms
    if before_ms is None:
        return Last(point.last_store_time_ms, point.log_end)
    first_ms = 0
    for segment in reversed(segments_of(backup, point)):
        last = None
        for record in _records(backup, segment, point.log_end):
            if record.store_time_ms >= before_ms:
                first_ms = record.store_time_ms if last is None else first_ms
                break
            last = Last(record.store_time_ms, record.end_offset)
        if last is not None:
            return last
    raise StoreError(
        f"the backup has no message from before {time_text(before_ms)}: the first one of point "
        f"{point.number} was stored at {time_text(first_ms)}. Leave out --to to restore all of "
        "it"
    )


def _records(backup: Backup, segment: CopiedLogFile, end: int | None = None) -> Iterator[Record]:
    """Yield the records in the copied part of a file that begin before *end*."""
    if not segment.size:
        return
    file = MappedFile(backup.log / segment.name, segment.base, segment.size)
    walk = LogWalk([file], segment.base, proven_end=segment.end, check_crc=False)
    for record in walk.records():
        if end is not None and record.offset >= end:
            break
        yield record
    file.unmap()
