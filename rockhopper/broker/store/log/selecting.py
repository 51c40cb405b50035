"""Select the records of a queue whose properties match a test, many at once.

``select_sound`` has a compiled twin (_selecting.c), which fast_encoding.py prefers. The verdict of
a test depends only on the values of the few properties that it uses. So each combination of values
is judged once; later it is looked up in a dict under its key:

    for each property that the test uses, in order:
        2  the size of the value, 0xFFFF if the property is missing
        …  the value
"""

from collections.abc import Callable, Sequence
from mmap import mmap
from typing import TypeAlias

from rockhopper.broker.store.log.checking import is_sound
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import (
    MAGIC_V1,
    RECORD_SIZE_BYTES_MIN,
    body_start,
    head_struct,
)

Test: TypeAlias = tuple[tuple[bytes, ...], dict[bytes, bool], Callable[[bytes], bool | None]]
"""Property names, verdicts by key, and the judge of unknown keys, which returns None to defer."""

NAMES_MAX = 64
KEY_SIZE_BYTES_MAX = 4096
_NOT_THERE = b"\xff\xff"
_HEAD = head_struct("magic", "sys_flag")


def select_sound(
    owner: tuple[bytes, int, int],
    units: bytes,
    count_max: int,
    size_max: int,
    log: tuple[mmap | bytes, int, int],
    unchecked_from: int,
    test: Test,
) -> tuple[int, int, bytes] | None:
    """Return the records that match *test* and fit a response, back to back.

    Returns how many units were scanned, how many of their records match, and these records. *owner*
    is topic field, queue id, and the queue offset of the first unit. The first match always fits.
    The scan ends before a record that cannot be judged now. *log* is a part of the log with its
    start and end offsets.

    Returns None if one of the records is not sound, is outside *log*, or has values that are too
    long.
    """
    field, queue_id, queue_offset = owner
    stretch, base_offset, end_offset = log
    names, verdicts, judge = test
    records: list[bytes] = []
    scanned = size_all = 0
    for log_offset, size, _ in CONSUME_QUEUE_UNIT.iter_unpack(units):
        if records and (len(records) >= count_max or size_all + size > size_max):
            break
        is_there = base_offset <= log_offset and log_offset + size <= end_offset
        if size < RECORD_SIZE_BYTES_MIN or not is_there:
            return None
        record = stretch[log_offset - base_offset : log_offset - base_offset + size]
        whose = field, queue_id, queue_offset + scanned
        if not is_sound(record, log_offset, whose, False):
            return None
        key = key_of(_properties_in(record), names)
        if len(key) > KEY_SIZE_BYTES_MAX:
            return None
        verdict = verdicts.get(key)
        if verdict is None:
            verdict = judge(key)
        if verdict is None:
            break
        if verdict:
            if log_offset < unchecked_from and not is_sound(record, log_offset, whose, True):
                return None
            records.append(record)
            size_all += size
        scanned += 1
    return scanned, len(records), b"".join(records)


def key_of(properties: bytes, names: Sequence[bytes]) -> bytes:
    """Return the key of a verdict: the values of *names*. The last of two equal names counts."""
    values = {}
    for pair in properties.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if name and value:
            values[name] = value
    found = map(values.get, names)
    return b"".join(
        _NOT_THERE if value is None else len(value).to_bytes(2, "big") + value for value in found
    )


def values_in(key: bytes, names: Sequence[str]) -> dict[str, str]:
    """Return the properties that a key of *names* stands for."""
    properties = {}
    at = 0
    for name in names:
        size = key[at : at + 2]
        at += 2
        if size != _NOT_THERE:
            end = at + int.from_bytes(size, "big")
            properties[name] = key[at:end].decode("utf-8", "replace")
            at = end
    return properties


def _properties_in(record: bytes) -> bytes:
    magic, sys_flag = _HEAD.unpack_from(record)
    at = body_start(sys_flag)
    at += int.from_bytes(record[at - 4 : at], "big")
    width = 1 if magic == MAGIC_V1 else 2
    return record[at + width + int.from_bytes(record[at : at + width], "big") + 2 :]
