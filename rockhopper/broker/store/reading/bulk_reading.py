"""Bulk reads: thousands of records of one queue in one response, for batch jobs.

A bulk read returns the same records as an ordinary one, back to back and with the same checks, but
has its own limits: those of a consumer's pull, 32 messages or 256 KiB, do not apply.
"""

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from rockhopper.broker.store.log.checking import ANY_MESSAGE
from rockhopper.broker.store.log.commit_log import CommitLog
from rockhopper.broker.store.log.fast_encoding import count_sound, gather_sound
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.reading.get_result import GetResult, GetStatus
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT

COUNT_MAX = 16_384


def read_bulk(
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    count_max: int,
    size_max: int,
    unchecked_from: int,
    look_closer: Callable[[int, int, int], bytes | None],
) -> GetResult:
    """Read up to *count_max* messages or *size_max* bytes from *offset*, which is in the queue.

    The first message always fits. *look_closer* is called with queue offset, place and size of a
    record that does not match its entry; it returns the record if it can be found, and None if the
    response must end before it. The CRCs of bodies from *unchecked_from* on are not checked.
    """
    low, high = queue.min_offset, queue.max_offset
    units = queue.read_units(offset, min(count_max, COUNT_MAX, high - offset))
    if not units:
        return GetResult(GetStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset), low, high)
    if not queue.is_light:
        gathered = gather(log, queue, units, offset, COUNT_MAX, size_max, unchecked_from)
        if gathered is not None:
            count, body = gathered
            return GetResult(GetStatus.FOUND, offset + count, low, high, body, count)
    places = [(log_offset, size) for log_offset, size, _ in CONSUME_QUEUE_UNIT.iter_unpack(units)]
    ends = list(accumulate(size for _, size in places))
    count = max(bisect_right(ends, size_max), 1)
    del places[count:]
    records = [whole] if (whole := _side_by_side(log, places)) else _records(log, places)
    body = b"".join(records)
    number = ANY_MESSAGE if queue.is_light else offset
    field, queue_id = queue.topic_field, queue.queue_id
    sound = count_sound(field, queue_id, number, units, count, body, unchecked_from)
    if sound == count:
        return GetResult(GetStatus.FOUND, offset + count, low, high, body, count)
    records = _records(log, places[:sound])
    for log_offset, size in places[sound:]:
        record = look_closer(offset + len(records), log_offset, size)
        if record is None:
            break
        records.append(record)
    body = b"".join(records)
    status = GetStatus.FOUND if body else GetStatus.MESSAGE_WAS_REMOVING
    if not records:
        status = GetStatus.NO_MATCHED_MESSAGE
    next_offset = offset + len(records)
    return GetResult(status, next_offset, low, high, body, sum(map(bool, records)))


def gather(
    log: CommitLog,
    queue: ConsumeQueue,
    units: bytes,
    offset: int,
    count_max: int,
    size_max: int,
    unchecked_from: int,
) -> tuple[int, bytes] | None:
    """Return how many messages of *units* fit, and their records; None if it cannot.

    It cannot if one of them is not sound, or is in another file of the log than the first.
    """
    stretch = log.find_mapping(CONSUME_QUEUE_UNIT.unpack_from(units)[0])
    if stretch is None:
        return None
    field, number = queue.topic_field, queue.queue_id
    return gather_sound(field, number, offset, units, count_max, size_max, stretch, unchecked_from)


def _side_by_side(log: CommitLog, places: list[tuple[int, int]]) -> bytes:
    """Return all records with one read if they are adjacent; empty otherwise."""
    start, (last, last_size) = places[0][0], places[-1]
    if last + last_size - start != sum(size for _, size in places):
        return b""
    return log.read(start, last + last_size)


def _records(log: CommitLog, places: list[tuple[int, int]]) -> list[bytes]:
    """Return the bytes at each place, empty if deleted. Places must ascend, as in a queue."""
    records: list[bytes] = []
    index = 0
    while index < len(places):
        first = index
        stretch = log.find_mapping(places[index][0])
        if stretch is not None:
            mapping, start, end = stretch
            while index < len(places) and sum(places[index]) <= end:
                log_offset, size = places[index]
                records.append(mapping[log_offset - start : log_offset - start + size])
                index += 1
        if index == first:
            records.append(b"")
            index += 1
    return records
