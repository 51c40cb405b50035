"""IndexChains: the right slots and links of an index file, computed from its entries in order.

An entry links to the newest one before it with the same slot, and a slot holds the newest of all.
So one pass over the entries, with a table of slots in memory, shows what each link and, at the end,
each slot must be. The table has the same layout as the file's, so that whole pages of both are
compared at once. Memory is used only for slots in use: 4 bytes each, 20 MB at most for a file of
RocketMQ's default size.

Example: entries 1, 2 and 3 have slots 7, 9 and 7. The links must be 0, 0 and 1; in the end slot 7
must hold 3, and slot 9 must hold 2.
"""

import mmap

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.index.index_file import (
    ENTRY_SIZE_BYTES,
    HEADER_SIZE_BYTES,
    SLOT_SIZE_BYTES,
    IndexFile,
)
from rockhopper.protocol.store.queue_layout import (
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SECONDS_MAX,
    INDEX_SLOT,
)

SLOT_SLICE_BYTES = 64 << 10
_STEPS_MAX = 10_000

_read_slot = INDEX_SLOT.unpack_from
_write_slot = INDEX_SLOT.pack_into


class IndexChains:
    """One pass over the entries of *file*; ``number`` is the next one."""

    def __init__(self, file: IndexFile) -> None:
        self.file = file
        self.number = 1
        self._slots = mmap.mmap(-1, file.slot_count * SLOT_SIZE_BYTES)
        self._slots_at = 0
        self._is_begin_proven = False
        self.has_wrong_times = False
        """Whether the header's times were not those of its records; they are corrected now."""

    def repair_entry(
        self, key_hash: int, commit_log_offset: int, store_time_ms: int | None = None
    ) -> bool:
        """Step over an entry, and repair it; return whether it was wrong.

        The entry must hold *key_hash* and *commit_log_offset*. Without a store time its time is
        left as it is.
        """
        file, number = self.file, self.number
        held = file.entry(number)
        seconds = held[2] if store_time_ms is None else self._seconds(held[2], store_time_ms)
        slot_at = key_hash % file.slot_count * SLOT_SIZE_BYTES
        right = key_hash, commit_log_offset, seconds, _read_slot(self._slots, slot_at)[0]
        _write_slot(self._slots, slot_at, number)
        self.number = number + 1
        if held == right:
            return False
        at = file.entries_at + number * ENTRY_SIZE_BYTES
        disk.reserve(file.descriptor, at, at + ENTRY_SIZE_BYTES)
        INDEX_ENTRY.pack_into(file.mapping, at, *right)
        file.note_change()
        return True

    def _seconds(self, held: int, store_time_ms: int) -> int:
        """Return the corrected time of the next entry.

        While the file's begin time is in doubt, return the entry's own time.
        """
        file = self.file
        if self.number == 1:
            self._is_begin_proven = True
            if file.begin_ms != store_time_ms:
                file.begin_ms = store_time_ms
                self.has_wrong_times = True
            return max(held, 0)  # The first entry counts from the time that the header had before.
        is_last = file.is_full and self.number == file.next_number - 1
        # A crash leaves whole seconds.
        if is_last and not store_time_ms <= file.end_ms <= store_time_ms + 999:
            file.end_ms = store_time_ms
            self.has_wrong_times = True
        right = min(max((store_time_ms - file.begin_ms) // 1000, 0), INDEX_SECONDS_MAX)
        self._is_begin_proven |= right == held
        return right if self._is_begin_proven else held

    def take_as_it_is(self) -> bool:
        """Step over an entry whose record is unknown; return whether its link was repaired."""
        key_hash, offset, _, _ = self.file.entry(self.number)
        return self.repair_entry(key_hash, offset)

    def is_reachable_without(self, key_hash: int) -> bool:
        """Return whether the next entry is in the chain of its own hash, not of *key_hash*.

        Then its own hash is right: it was added under that.
        """
        file = self.file
        slot = file.entry(self.number)[0] % file.slot_count
        if slot == key_hash % file.slot_count:
            return False
        at: int = _read_slot(file.mapping, HEADER_SIZE_BYTES + slot * SLOT_SIZE_BYTES)[0]
        for _ in range(_STEPS_MAX):
            if not self.number < at < file.next_number:
                break
            at = file.entry(at)[3]
        return at == self.number

    def place(self) -> tuple[str, int, int]:
        """Return path, start and size of the slots that are compared next."""
        start = HEADER_SIZE_BYTES + self._slots_at
        return str(self.file.path), start, min(SLOT_SLICE_BYTES, self.file.entries_at - start)

    @property
    def is_compared(self) -> bool:
        """Whether all slots have been compared."""
        return self._slots_at >= len(self._slots)

    def compare_slots(self) -> int:
        """Compare a slice of the slots; return how many were repaired.

        The pass over all entries of the file must be complete.
        """
        file = self.file
        start = self._slots_at
        self._slots_at = end = min(start + SLOT_SLICE_BYTES, len(self._slots))
        right = self._slots[start:end]
        held = file.mapping[HEADER_SIZE_BYTES + start : HEADER_SIZE_BYTES + end]
        if held == right:
            return 0
        disk.reserve(file.descriptor, HEADER_SIZE_BYTES + start, HEADER_SIZE_BYTES + end)
        file.mapping[HEADER_SIZE_BYTES + start : HEADER_SIZE_BYTES + end] = right
        file.note_change()
        pairs = zip(INDEX_SLOT.iter_unpack(held), INDEX_SLOT.iter_unpack(right), strict=True)
        return sum(one != other for one, other in pairs)

    def mend_header(self) -> bool:
        """Have the next flush rewrite the header if it is wrong; return whether it is."""
        file = self.file
        if self.has_wrong_times:
            self.has_wrong_times = False
            file.note_change()
            return True
        if file.is_empty or not file.is_flushed:
            return False  # The next flush writes it anyway.
        fields = INDEX_HEADER.unpack_from(file.mapping)
        right = (file.begin_ms, file.end_ms, file.begin_offset, file.end_offset)
        if fields == (*right, file.used_slot_count, file.next_number):
            return False
        file.note_change()
        return True

    def close(self) -> None:
        """Free the memory."""
        self._slots.close()
