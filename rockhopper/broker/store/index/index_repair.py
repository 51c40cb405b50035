"""Repair of an index file after a crash.

A file on disk counts only entries that were synced before its header. After them there may be
more: all of them if the process was killed, some of the pages if the power failed. Every page is
either zeros or holds what was put, because each recovery zeroes the uncounted rest.

So the entries after the count are added up to the first gap; slots that point after the new end
are set to the newest remaining entry of their chain; the rest is zeroed. Entries that are still
missing are added again from the commit log.

Example: the header counts 100 entries, and entries 101, 102 and 104 reached the disk. The repair
counts 102 entries. A slot that points to 104 gets the next older entry of its chain, and entry 104
is zeroed.
"""

import struct
from collections.abc import Iterator

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.index.index_file import (
    ENTRY_SIZE_BYTES,
    HEADER_SIZE_BYTES,
    SLOT_SIZE_BYTES,
    IndexFile,
)
from rockhopper.protocol.store.queue_layout import INDEX_ENTRY, INDEX_SLOT

_PAGE_SIZE_BYTES = 4096
_ZERO_ENTRY = bytes(ENTRY_SIZE_BYTES)

_read_slot = INDEX_SLOT.unpack_from
_write_slot = INDEX_SLOT.pack_into
_read_entry = INDEX_ENTRY.unpack_from


def repair(file: IndexFile) -> int:
    """Repair the file after a crash; return how many entries the header did not count.

    Blocks: reads the slot table, and all entries if the power failed at a bad moment.

    Raises:
        OSError: the file could not be read or written.
    """
    counted = file.next_number
    # The header's begin is written with the first entry; without it entries would have no time.
    if file.begin_ms > 0:
        _take_uncounted(file)
    _repair_slots(file)
    end = file.entries_at + file.next_number * ENTRY_SIZE_BYTES
    disk.zero_tail(file.descriptor, end, len(file.mapping))
    file.flushed_number = 0
    file.flush()
    return file.next_number - counted


def _slot_at(slot: int) -> int:
    return HEADER_SIZE_BYTES + slot * SLOT_SIZE_BYTES


def _take_uncounted(file: IndexFile) -> None:
    """Count the valid entries after the counted end, up to the first invalid one."""
    number = file.next_number
    mapping = file.mapping
    position = file.entries_at + number * ENTRY_SIZE_BYTES
    while number < file.entry_count_max:
        key_hash, offset, seconds, previous = _read_entry(mapping, position)
        is_zero = mapping[position : position + ENTRY_SIZE_BYTES] == _ZERO_ENTRY
        if is_zero or key_hash < 0 or seconds < 0 or not 0 <= previous < number:
            break
        if offset < file.end_offset or (number == 1 and offset != file.begin_offset):
            break
        slot_at = _slot_at(key_hash % file.slot_count)
        if _read_slot(mapping, slot_at)[0] < number:
            _write_slot(mapping, slot_at, number)
        file.used_slot_count += previous == 0
        file.end_offset = offset
        file.end_ms = max(file.end_ms, file.begin_ms + seconds * 1000 + 999)
        number += 1
        position += ENTRY_SIZE_BYTES
    file.next_number = number


def _repair_slots(file: IndexFile) -> None:
    """Set slots that point after the end to the newest remaining entry of their chain."""
    unknown = set()
    for slot, head in _slots_behind_end(file):
        number: int | None = head
        while number is not None and number >= file.next_number:
            number = _older_of_lost(file, slot, number)
        if number is None:
            unknown.add(slot)
        else:
            _write_slot(file.mapping, _slot_at(slot), number)
    if unknown:
        heads = dict.fromkeys(unknown, 0)
        for number in range(1, file.next_number):
            slot = file.entry(number)[0] % file.slot_count
            if slot in unknown:
                heads[slot] = number
        for slot, number in heads.items():
            _write_slot(file.mapping, _slot_at(slot), number)


def _slots_behind_end(file: IndexFile) -> Iterator[tuple[int, int]]:
    end = file.next_number
    zeros = bytes(_PAGE_SIZE_BYTES)
    for start in range(HEADER_SIZE_BYTES, file.entries_at, _PAGE_SIZE_BYTES):
        page = file.mapping[start : min(start + _PAGE_SIZE_BYTES, file.entries_at)]
        if page == zeros:
            continue
        numbers = struct.unpack(f">{len(page) // SLOT_SIZE_BYTES}i", page)
        if max(numbers) < end:
            continue
        first_slot = (start - HEADER_SIZE_BYTES) // SLOT_SIZE_BYTES
        for index, number in enumerate(numbers):
            if number >= end:
                yield first_slot + index, number


def _older_of_lost(file: IndexFile, slot: int, number: int) -> int | None:
    """Return the entry before *number* in its chain; None if *number* never reached the disk."""
    if number >= file.entry_count_max:
        return None
    key_hash, offset, _, previous = file.entry(number)
    is_plausible = offset >= file.end_offset and 0 <= previous < number
    if not is_plausible or key_hash % file.slot_count != slot:
        return None
    return previous
