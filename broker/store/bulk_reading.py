"""Bulk reads: thousands of records of one queue in one answer, for jobs that decode many at once.

A bulk read returns the same records as an ordinary one, back to back, under limits of its own.  Two
things differ.  Of records that an earlier process wrote, size and place are checked but not the
body's CRC: whoever decodes thousands of them checks that as fast as we could.  And messages are
not counted against the pull's limits for consumers, 32 messages or 256 KiB.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from broker.store.commit_log import CommitLog
from broker.store.consume_queue import ConsumeQueue
from broker.store.get_result import GetResult, GetStatus
from protocol.queue_layout import CONSUME_QUEUE_UNIT

COUNT_MAX = 16_384
_SIZE_AND_PLACE = struct.Struct(">i24xq")


def read_bulk(
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    count_max: int,
    size_max: int,
    trusted_from: int,
    report: Callable[[int, int], bytes],
) -> GetResult:
    """Read up to *count_max* messages or *size_max* bytes from *offset*, which is in the queue.

    The first message always passes.  *report* is given the queue offset and the place of a record
    that is not what its entry says, and returns the record if it is good after all.
    """
    low, high = queue.min_offset, queue.max_offset
    units = queue.read_units(offset, min(count_max, COUNT_MAX, high - offset))
    if not units:
        return GetResult(GetStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset), low, high)
    places = [(position, size) for position, size, _ in CONSUME_QUEUE_UNIT.iter_unpack(units)]
    ends = list(accumulate(size for _, size in places))
    count = max(bisect_right(ends, size_max), 1)
    del places[count:]
    if places[0][0] >= trusted_from and (whole := _side_by_side(log, places)):
        return GetResult(GetStatus.FOUND, offset + count, low, high, whole, count)
    records = _records(log, places)
    if places[0][0] < trusted_from:
        for index, (position, size) in enumerate(places):
            if position >= trusted_from:
                break
            record = records[index]
            if record and (len(record), position) != _head(record, size):
                records[index] = report(offset + index, position)
    body = b"".join(records)
    status = GetStatus.FOUND if body else GetStatus.MESSAGE_WAS_REMOVING
    return GetResult(status, offset + count, low, high, body, sum(map(bool, records)))


def _head(record: bytes, size: int) -> tuple[int, int]:
    """The size and the place that a record states; impossible ones if it is cut short."""
    if len(record) < _SIZE_AND_PLACE.size or len(record) != size:
        return -1, -1
    stated_size, position = _SIZE_AND_PLACE.unpack_from(record)
    return stated_size, position


def _side_by_side(log: CommitLog, places: list[tuple[int, int]]) -> bytes:
    """All records with one read, if nothing stands between them; empty otherwise."""
    start, (last, last_size) = places[0][0], places[-1]
    if last + last_size - start != sum(size for _, size in places):
        return b""
    return log.read(start, last + last_size)


def _records(log: CommitLog, places: list[tuple[int, int]]) -> list[bytes]:
    """The bytes at each place, empty where they are gone.  Places ascend, as they do in a queue."""
    records: list[bytes] = []
    index = 0
    while index < len(places):
        mapping, start, end = log.mapped(places[index][0])
        inside: list[tuple[int, int]] = []
        for place in places[index:]:
            if place[0] + place[1] > end:
                break
            inside.append(place)
        if mapping is None or not inside:
            records.append(b"")
            index += 1
            continue
        records += [
            mapping[position - start : position - start + size] for position, size in inside
        ]
        index += len(inside)
    return records
