"""From which points of a backup a store is restored, and how far that goes.

A backup may tell of a time more than once. After a power cut, and when a store that was restored
from it is backed up to it again, a new line of points begins: another log, from the same beginning.
For a time it is asked which of them was served then: the line of the points around it; where they
are of two lines, the newer one if it had stored a message of its own by then.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.log.log_scan import Record
from rockhopper.broker.store.recovering.log_walk import LogWalk
from rockhopper.broker.tools.mending.backing_up import Backup
from rockhopper.broker.tools.mending.copying import STEP_BYTES
from rockhopper.broker.tools.mending.manifest import Point, Segment
from rockhopper.broker.tools.output import time_text


class Choice(NamedTuple):
    """From where a store is restored."""

    tables: Point
    log: Point
    before_ms: int | None = None
    """Only what was stored before this time."""


class Last(NamedTuple):
    """The last message that comes back."""

    store_time_ms: int
    log_end: int
    """Where it ends in the log."""


def choose(backup: Backup, number: int | None, before_ms: int | None) -> Choice:
    """What to restore. Raises StoreError.

    For a time, that is the log of the newest point that has it, with the tables of the last point
    that was made before the time: so notes lag behind the log, as after a crash, and what was
    deleted later comes back. Without such a point the first one of the line has to do, without its
    notes of deliveries.
    """
    newest = backup.manifest.point(number)
    if number is not None or before_ms is None:
        return Choice(newest, newest, before_ms)
    wanted = _point_around(backup, before_ms)
    of_line = [point for point in backup.manifest.points if point.line == wanted.line]
    earlier = [point for point in of_line if point.time_ms <= before_ms]
    start = _start(backup, wanted)
    whole = [
        point
        for point in of_line
        if point.number >= wanted.number and _start(backup, point) <= start
    ]
    return Choice(earlier[-1] if earlier else of_line[0], whole[-1], before_ms)


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
    """When the first message was stored that is in the log of *later* and not in the other's."""
    others = {segment.base: segment for segment in backup.manifest.lines[str(former.line)]}
    for segment in segments_of(backup, later):
        other = others.get(segment.base)
        if other is not None and other.name == segment.name:
            continue
        shared_bytes = 0 if other is None else _shared_bytes(backup, segment, other)
        for record in _records(backup, segment):
            if record.end_offset > segment.base + shared_bytes:
                return record.store_time_ms
    return None


def _shared_bytes(backup: Backup, one: Segment, other: Segment) -> int:
    """How long two files of the log are the same."""
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


def segments_of(backup: Backup, point: Point) -> list[Segment]:
    """The files of the log that belong to a point."""
    return [each for each in backup.manifest.lines[str(point.line)] if each.base < point.log_end]


def missing_of(backup: Backup, point: Point) -> list[tuple[int, int]]:
    """The ranges of the log between its files that a point has nothing of."""
    return [
        (former.end, later.base)
        for former, later in pairwise(segments_of(backup, point))
        if former.end < later.base
    ]


def _start(backup: Backup, point: Point) -> int:
    segments = segments_of(backup, point)
    return segments[0].base if segments else 0


def last_of(backup: Backup, choice: Choice) -> Last:
    """The last message of what was chosen.

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
        f"the backup has no message from before {time_text(before_ms)}: the first of point "
        f"{point.number} is of {time_text(first_ms)}. Without --to all of it is restored"
    )


def _records(backup: Backup, segment: Segment, end: int | None = None) -> Iterator[Record]:
    """The records of a file, as far as it was copied, those that begin in front of *end*."""
    if not segment.size:
        return
    file = MappedFile(backup.log / segment.name, segment.base, segment.size)
    walk = LogWalk([file], segment.base, proven_end=segment.end, check_crc=False)
    for record in walk.records():
        if end is not None and record.offset >= end:
            break
        yield record
    file.unmap()
