"""IndexFile: one file of the index: an on-disk hash table from keys to commit log offsets.

The layout is in protocol/store/queue_layout.py; RocketMQ (IndexFile, IndexHeader) reads and writes
the same. New entries become the head of their slot's chain, so that a search finds the newest
message first. A file of S slots and N entries is 40 + 4·S + 20·N bytes long and takes N − 1
entries, because entry 0 is unused.

The file has its full length from the start, but not its blocks: those of the slot table are
allocated when the file is made, those of the entries in steps ahead of writing. So a write through
the mapping never meets a full disk, which would kill the process; the allocation does, and raises
an OSError that changes nothing.

After a crash, the header on disk only counts entries that were synced before it. Every byte after
the last counted entry is either zero or what a put wrote there. index_repair.py relies on that.
"""

import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.descriptors import descriptor_needed
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.log.encoding import INDEX_KEY
from rockhopper.broker.store.log.fast_encoding import put_entries, put_timed_entries
from rockhopper.protocol.store.queue_layout import (
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SECONDS_MAX,
    INDEX_SLOT,
    index_file_size_bytes,
)
from rockhopper.protocol.store.walking import TIMED_KEY

HEADER_SIZE_BYTES = INDEX_HEADER.size
SLOT_SIZE_BYTES = INDEX_SLOT.size
ENTRY_SIZE_BYTES = INDEX_ENTRY.size
# Entries are allocated 4 MB at a time.
STEP_ENTRY_COUNT = 200_000
# A millisecond of following a chain.
ENTRIES_PER_STEP = 4096

_read_slot = INDEX_SLOT.unpack_from
_write_slot = INDEX_SLOT.pack_into
_read_entry = INDEX_ENTRY.unpack_from
_write_entry = INDEX_ENTRY.pack_into


class IndexFile:
    """One index file, open and mapped.

    ``next_number`` is the number of the next free entry, from 1 on; ``flushed_number`` is its value
    when the header was last on disk. Belongs to the thread that puts, except ``flush``, which the
    flush thread calls.
    """

    def __init__(
        self,
        path: Path,
        descriptor: int,
        slot_count: int,
        entry_count_max: int,
    ) -> None:
        """Take over *descriptor*, open on a file of the right length."""
        self.path = path
        self.slot_count = slot_count
        self.entry_count_max = entry_count_max
        self.descriptor = descriptor
        self._lock = threading.Lock()
        self.entries_at = HEADER_SIZE_BYTES + SLOT_SIZE_BYTES * slot_count
        self.mapping = mmap.mmap(descriptor, index_file_size_bytes(slot_count, entry_count_max))
        header: tuple[int, ...] = INDEX_HEADER.unpack_from(self.mapping)
        self.begin_ms, self.end_ms, self.begin_offset, self.end_offset = header[:4]
        self.used_slot_count = header[4]
        self.next_number = max(header[5], 1)
        self.flushed_number = self.next_number
        self._reserved_number = 0
        self._is_new = False
        self._is_changed = False

    @classmethod
    def create(
        cls,
        path: Path,
        slot_count: int,
        entry_count_max: int,
        previous: "IndexFile | None",
    ) -> Self:
        """Make an empty file.

        Until its first entry the header repeats the end of the *previous* file, as RocketMQ's does.

        Raises:
            FileExistsError: the name is taken.
            OSError: no space for the slot table, or another failure; nothing is left behind.
        """
        with descriptor_needed():
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(descriptor, index_file_size_bytes(slot_count, entry_count_max))
            disk.preallocate(descriptor, HEADER_SIZE_BYTES + SLOT_SIZE_BYTES * slot_count)
            file = cls(path, descriptor, slot_count, entry_count_max)
        except BaseException:
            os.close(descriptor)
            path.unlink()
            raise
        file._is_new = True
        if previous is not None:
            file.begin_ms = file.end_ms = previous.end_ms
            file.begin_offset = file.end_offset = previous.end_offset
        return file

    @classmethod
    def open(
        cls,
        path: Path,
        slot_count: int,
        entry_count_max: int,
    ) -> Self:
        """Open the existing file *path* for reading and writing.

        Raises:
            CorruptFileError: the length does not fit the geometry.
            OSError: it cannot be opened or mapped.
        """
        with descriptor_needed():
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            expected_bytes = index_file_size_bytes(slot_count, entry_count_max)
            actual_bytes = os.fstat(descriptor).st_size
            if actual_bytes != expected_bytes:
                raise CorruptFileError(path, f"{actual_bytes} bytes long, not {expected_bytes}")
            return cls(path, descriptor, slot_count, entry_count_max)
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def is_full(self) -> bool:
        """Whether there is no free entry left."""
        return self.next_number >= self.entry_count_max

    @property
    def is_empty(self) -> bool:
        """Whether the file has no entry yet."""
        return self.next_number <= 1

    @property
    def is_flushed(self) -> bool:
        """Whether the header in the file counts all entries."""
        return self.next_number == self.flushed_number and not self._is_changed

    def damage(self) -> str | None:
        """Return why header and entries contradict each other; None if they do not."""
        number = self.next_number
        if number > self.entry_count_max:
            return (
                f"the header counts {number} entries; at most {self.entry_count_max} are possible"
            )
        if number == 1:
            return None
        if self.begin_ms <= 0 or not 0 <= self.begin_offset <= self.end_offset:
            return "the header's first time or offsets are invalid"
        for entry_number, offset in ((1, self.begin_offset), (number - 1, self.end_offset)):
            _, entry_offset, _, previous = self.entry(entry_number)
            if entry_offset != offset or not 0 <= previous < entry_number:
                return f"entry {entry_number} disagrees with the header"
        return None

    def insert_key(self, key_hash: int, commit_log_offset: int, store_time_ms: int) -> bool:
        """Add one nonnegative key; return False, and change nothing, if the file is full.

        Raises:
            OSError: the disk is full; nothing has changed, and the next call tries again.
        """
        number = self.next_number
        if number >= self._reserved_number:
            if number >= self.entry_count_max:
                return False
            self._reserve()
        mapping = self.mapping
        slot_at = 40 + key_hash % self.slot_count * 4
        (previous,) = _read_slot(mapping, slot_at)
        if not 0 < previous < number:
            previous = 0
            self.used_slot_count += 1
        begin_ms = self.begin_ms
        seconds = (store_time_ms - begin_ms) // 1000 if begin_ms > 0 else 0
        if not 0 <= seconds <= INDEX_SECONDS_MAX:
            seconds = 0 if seconds < 0 else INDEX_SECONDS_MAX
        _write_entry(
            mapping, self.entries_at + number * 20, key_hash, commit_log_offset, seconds, previous
        )
        _write_slot(mapping, slot_at, number)
        if number == 1:
            self._begin(commit_log_offset, store_time_ms)
        self.end_ms = store_time_ms
        self.end_offset = commit_log_offset
        # Last: the flush thread reads it to know how many entries are complete.
        self.next_number = number + 1
        return True

    def put_many(
        self, packed_keys: bytes | bytearray, store_time_ms: int
    ) -> bytes | bytearray | None:
        """Insert packed index keys (encoding.INDEX_KEY) of messages with one store time.

        Returns the keys for which there is no room, None if all were added.

        Raises:
            OSError: the disk is full; the entries before the failed one were added.
        """
        number = self.next_number
        count = len(packed_keys) // INDEX_KEY.size
        if number == 1 or number + count > self._reserved_number:
            return self._put_in_steps(packed_keys, store_time_ms)
        seconds = (store_time_ms - self.begin_ms) // 1000
        if not 0 <= seconds <= INDEX_SECONDS_MAX:
            seconds = 0 if seconds < 0 else INDEX_SECONDS_MAX
        self.used_slot_count += put_entries(
            self.mapping, self.slot_count, self.entries_at, number, seconds, packed_keys
        )
        if count:
            self.end_ms = store_time_ms
            self.end_offset = INDEX_KEY.unpack_from(packed_keys, -INDEX_KEY.size)[1]
            # Last: the flush thread reads it to know how many entries are complete.
            self.next_number = number + count
        return None

    def put_timed(self, packed_keys: memoryview) -> memoryview | None:
        """``put_many`` for TIMED_KEYs, in the order of the log."""
        number = self.next_number
        count = len(packed_keys) // TIMED_KEY.size
        if number == 1 or number + count > self._reserved_number:
            while packed_keys and not self.is_full:
                self.insert_key(*TIMED_KEY.unpack_from(packed_keys))
                end = 1 + self._reserved_number - self.next_number
                self.put_timed(packed_keys[TIMED_KEY.size : end * TIMED_KEY.size])
                packed_keys = packed_keys[end * TIMED_KEY.size :]
            return packed_keys or None
        self.used_slot_count += put_timed_entries(
            self.mapping, self.slot_count, self.entries_at, number, self.begin_ms, packed_keys
        )
        if count:
            at = (count - 1) * TIMED_KEY.size
            _, self.end_offset, self.end_ms = TIMED_KEY.unpack_from(packed_keys, at)
            self.next_number = number + count
        return None

    def _put_in_steps(
        self, packed_keys: bytes | bytearray, store_time_ms: int
    ) -> bytes | bytearray | None:
        """Insert keys beyond the allocated blocks: one per step allocates, the rest follows."""
        while packed_keys and not self.is_full:
            key_hash, commit_log_offset = INDEX_KEY.unpack_from(packed_keys)
            self.insert_key(key_hash, commit_log_offset, store_time_ms)
            end = 1 + self._reserved_number - self.next_number
            self.put_many(packed_keys[INDEX_KEY.size : end * INDEX_KEY.size], store_time_ms)
            packed_keys = packed_keys[end * INDEX_KEY.size :]
        return packed_keys or None

    def _begin(self, commit_log_offset: int, store_time_ms: int) -> None:
        """Set the base of all entries, and write it to the file, where it never changes again.

        As in RocketMQ, the first entry's seconds count from the former file's end.
        """
        self.begin_ms = self.end_ms = store_time_ms
        self.begin_offset = self.end_offset = commit_log_offset
        self._write_header(1)

    def _reserve(self) -> None:
        number = self.next_number
        count = min(STEP_ENTRY_COUNT, self.entry_count_max - number)
        start = self.entries_at + number * ENTRY_SIZE_BYTES
        disk.preallocate(self.descriptor, count * ENTRY_SIZE_BYTES, start)
        self._reserved_number = number + count

    def _write_header(self, number: int) -> None:
        end_offset = self.begin_offset if number == 1 else self.entry(number - 1)[1]
        INDEX_HEADER.pack_into(
            self.mapping,
            0,
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            end_offset,
            self.used_slot_count if number > 1 else 0,
            number,
        )

    def flush(self) -> bool:
        """Make all entries durable, then the header that counts them; False if nothing was new.

        Blocks, and may run in another thread than the puts.

        Raises:
            OSError: the header still counts what was durable before.
        """
        number = self.next_number
        with self._lock:
            is_clean = number == self.flushed_number and not self._is_changed
            if is_clean or self.descriptor < 0:
                return False
            self._is_changed = False
            with descriptor_needed():
                descriptor = os.dup(self.descriptor)
        try:
            disk.sync_file(descriptor)
            if self._is_new:
                # The index directory may be new as well.
                disk.sync_directory(self.path.parent)
                disk.sync_directory(self.path.parent.parent)
                self._is_new = False
            with self._lock:
                if self.descriptor < 0:
                    return False
                self._write_header(number)
            disk.sync_file(descriptor)
        except OSError:
            self._is_changed = True
            raise
        finally:
            os.close(descriptor)
        self.flushed_number = number
        return True

    def note_change(self) -> None:
        """Make the next ``flush`` sync changes made in place, including the header."""
        self._is_changed = True

    def close(self) -> None:
        """Release mapping and descriptor. Flushes nothing."""
        with self._lock:
            if self.descriptor >= 0:
                self.mapping.close()
                os.close(self.descriptor)
                self.descriptor = -1

    def delete(self) -> None:
        """Close and delete the file."""
        self.close()
        disk.remove_files([self.path])

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return key hash, commit log offset, seconds and next older number of entry *number*."""
        key_hash, offset, seconds, previous = _read_entry(
            self.mapping, self.entries_at + number * ENTRY_SIZE_BYTES
        )
        return key_hash, offset, seconds, previous

    def candidates(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Yield commit log offsets under *key_hash*, newest first; None after a while without any.

        A chain may have millions of entries newer than *end_ms*: None comes after every
        ENTRIES_PER_STEP of them. The walk ends if the file was closed in the meantime.

        Times in a file are whole seconds, and that of its first entry has another base in RocketMQ.
        So the window is a second wider on both sides, and the record itself decides.
        """
        begin_ms -= 1000
        end_ms += 1000
        if self.is_empty or self.begin_ms > end_ms or self.end_ms < begin_ms:
            return
        older_than = self.next_number
        slot_at = HEADER_SIZE_BYTES + key_hash % self.slot_count * SLOT_SIZE_BYTES
        (number,) = _read_slot(self.mapping, slot_at)
        passed_count = 0
        while 0 < number < older_than and self.descriptor >= 0:
            entry_hash, offset, seconds, previous = self.entry(number)
            time_ms = self.begin_ms if number == 1 else self.begin_ms + seconds * 1000
            if time_ms < begin_ms or seconds < 0:
                return
            if entry_hash == key_hash and time_ms <= end_ms:
                yield offset
                passed_count = 0
            else:
                passed_count += 1
                if passed_count == ENTRIES_PER_STEP:
                    yield None
                    passed_count = 0
            older_than, number = number, previous

    def hashes_at_end(self) -> list[int]:
        """Return the key hashes of the newest message's entries, in the order they were added."""
        hashes = []
        number = self.next_number - 1
        while number >= 1:
            key_hash, offset, _, _ = self.entry(number)
            if offset != self.end_offset:
                break
            hashes.append(key_hash)
            number -= 1
        return hashes[::-1]

    def discard_from(self, commit_log_offset: int) -> int:
        """Remove the entries of messages at or after *commit_log_offset*; return how many.

        For a commit log that ends there: its offsets are used again.
        """
        before = self.next_number
        self.note_change()
        number = before - 1
        while number >= 1:
            key_hash, offset, _, previous = self.entry(number)
            if offset < commit_log_offset:
                break
            slot_at = HEADER_SIZE_BYTES + key_hash % self.slot_count * SLOT_SIZE_BYTES
            if _read_slot(self.mapping, slot_at)[0] == number:
                _write_slot(self.mapping, slot_at, previous)
                self.used_slot_count -= previous == 0
            number -= 1
        self.next_number = number + 1
        if number >= 1 and self.next_number != before:
            _, self.end_offset, seconds, _ = self.entry(number)
            self.end_ms = min(self.end_ms, self.begin_ms + seconds * 1000 + 999)
            end = self.entries_at + self.next_number * ENTRY_SIZE_BYTES
            disk.zero_tail(self.descriptor, end, len(self.mapping))
        return before - self.next_number
