"""The commit log: the messages of all topics in one sequence, in files of one size.

Records are staged while the requests of a turn are handled, and written by one ``pwrite``; those
that compiled code has encoded are written without being staged. With pwrite a full or failing disk
raises an exception; writing through a mapping would kill the process instead. Reads go through the
mapping.
protocol/store/message_codec has the record layout.

A file ends with a blank record of at least 8 bytes, so no record spans two files:

    offset  size  field
         0     4  bytes from here to the end of the file
         4     4  0xCBD43194
         8     …  undefined

A follower copies its master's log in pieces that may be cut anywhere. Then ``written_offset`` is
the end of the last whole record, so that no reader sees part of one, and ``received_offset`` is the
end of the received bytes. If the process is killed, recovery treats the bytes between the two as a
torn end and cuts them off; the follower requests them again.
"""

import contextlib
import mmap
import os
import sys
from collections.abc import Iterable
from concurrent.futures import Executor, Future
from typing import Protocol

from rockhopper.broker.store.files.disk import DISK_FULL_ERRNOS
from rockhopper.broker.store.files.errors import (
    DiskFullError,
    LogMismatchError,
    RecordTooLargeError,
    StoreError,
    StoreFailedError,
    TooManyOpenFilesError,
)
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.protocol.store.fast_walking import whole_end
from rockhopper.protocol.store.record_head import (
    BLANK_RECORD,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_BYTES_MIN,
)

STEP_BYTES = 16 << 20
"""The log grows by this much between two calls of ``passed``."""


class ReadAhead:
    """Advises the kernel on the mappings of one log."""

    def __init__(self) -> None:
        """Until ``passed`` is called the log has no end: opening a log reads all of it."""
        self._is_off = False
        self._written_offset = sys.maxsize

    def advise(self, mapping: mmap.mmap, base_offset: int) -> None:
        """Advise the kernel on a mapping of the file that begins at *base_offset*."""
        size = len(mapping)
        behind = 0 if self._is_off else min(max(self._written_offset - base_offset, 0), size)
        behind -= behind % mmap.PAGESIZE
        if behind:
            mapping.madvise(mmap.MADV_NORMAL, 0, behind)
        if behind < size:
            mapping.madvise(mmap.MADV_RANDOM, behind)

    def passed(self, files: Iterable[MappedFile], written_offset: int) -> None:
        """Move the end of the log to *written_offset*; *files* are those it may affect."""
        self._written_offset = written_offset
        self._advise(files)

    def turn(self, files: Iterable[MappedFile], *, enabled: bool) -> None:
        """Turn read-ahead on or off for *files*, and for later mappings."""
        self._is_off = not enabled
        self._advise(files)

    def _advise(self, files: Iterable[MappedFile]) -> None:
        for file in files:
            if file.is_mapped:
                self.advise(file.mapping, file.base_offset)


class Room(Protocol):
    """Frees space on the disk of the log."""

    def log_cannot_grow(self, reason: str) -> None:
        """Free space, because the next file is needed and the disk is full."""


class NextFile:
    """The file after the newest one, made by *executor* ahead of need."""

    def __init__(self, files: MappedFileQueue, executor: Executor) -> None:
        self._files = files
        self._executor = executor
        self.made: Future[MappedFile] | None = None

    def make(self) -> Future[MappedFile]:
        """Start making it, unless it exists or is being made."""
        made = self.made
        if made is None or (made.done() and made.exception() is not None):
            made = self.made = self._executor.submit(self._files.create_next)
        return made

    def take_over(self) -> MappedFile:
        """Return it to the caller, who attaches it; make it first if need be. Raises OSError."""
        ahead, self.made = self.made, None
        if ahead is not None:
            with contextlib.suppress(OSError):  # There may be room again: try once more.
                return ahead.result()
        return self._files.create_next()

    def give_back(self, file: MappedFile) -> None:
        """Keep an unused file for later."""
        self.made = Future()
        self.made.set_result(file)

    def discard(self) -> None:
        """Delete the file if it was made."""
        if self.made is not None:
            with contextlib.suppress(OSError):  # Then it was never made.
                self.made.result().delete()
            self.made = None


class CommitLog:
    """Stages, writes and reads records. Belongs to the event loop's thread, except ``flush``."""

    def __init__(
        self,
        files: MappedFileQueue,
        read_ahead: ReadAhead,
        write_offset: int,
        store_host: bytes,
        next_file: NextFile,
        room: Room | None = None,
    ) -> None:
        """*store_host* is 8 or 20 bytes as in the record; *next_file* makes the files of *files*.

        *room* frees space if the next file is needed and the disk is full.
        """
        self._files = files
        self._read_ahead = read_ahead
        self.next_file = next_file
        self._room = room
        self._parts: list[bytes] = []
        # The error that lost the staged records before the end of their pass, until ``write``
        # raises it.
        self._lost: StoreError | None = None
        # On a follower: the size of the incomplete record after ``written_offset``.
        self._torn_size_bytes = 0
        # The error that all writes raise once the log is sealed.
        self._sealed: StoreError | None = None
        self.store_host = store_host
        self.store_time_ms = 0
        self.staged_offset = self.written_offset = self.flushed_offset = write_offset
        # Position and newest store time, replaced as a whole: the flush thread reads it.
        self.written_mark = (write_offset, 0)
        self.flushed_time_ms = 0
        self._file: MappedFile | None = files.files[-1] if files.files else None
        self._file_end = 0
        self._preallocate_at = 0
        # A write beyond this offset triggers read-ahead advice and the making of the next file.
        self._mark_offset = 0
        if self._file is not None:
            self._enter(self._file)

    def _enter(self, file: MappedFile) -> None:
        self._file = file
        self._file_end = file.base_offset + file.size_bytes
        self._preallocate_at = file.base_offset + file.size_bytes // 2
        self._mark_offset = file.base_offset

    @property
    def file_size_bytes(self) -> int:
        """The size of each file."""
        return self._files.file_size_bytes

    @property
    def room_end(self) -> int:
        """The offset that records may reach in the current file; a blank record follows them."""
        return self._file_end - BLANK_RECORD.size

    @property
    def min_offset(self) -> int:
        """The offset of the oldest file's first byte."""
        return self._files.min_offset

    def stage_encoded(self, records: bytes) -> bool:
        """Stage records that were encoded for ``staged_offset``; they stay in one file.

        Returns False if the current file has no room for them. Then all staged records are written,
        the log continues at the start of the next file, and the caller must encode the records
        again for that offset.

        Raises:
            RecordTooLargeError: no file can hold them.
            StoreError: there is no next file, or the staged records could not be written;
            ``write``,
                at the end of the pass, raises the cause.
        """
        end = self.staged_offset + len(records)
        if end > self.room_end:
            self._roll(len(records))
            return False
        self._parts.append(records)
        self.staged_offset = end
        return True

    def check_fits(self, size_bytes: int) -> None:
        """Raise RecordTooLargeError if no file can hold records of this size."""
        if size_bytes + 8 > self.file_size_bytes:
            raise RecordTooLargeError(
                f"{size_bytes} bytes of records do not fit into a commit log file of "
                f"{self.file_size_bytes} bytes (mappedFileSizeCommitLog)"
            )

    def _roll(self, size_bytes: int) -> None:
        """Write the staged records, close the file with a blank record, and start the next one."""
        self.check_fits(size_bytes)
        try:
            self.write()
        except StoreError as error:
            self._lost = error
            raise
        next_file = self._take_next_file()
        try:
            self._write_blank()
        except StoreError:
            self.next_file.give_back(next_file)
            raise
        self._files.attach(next_file)
        self._enter(next_file)
        self.staged_offset = self.written_offset = next_file.base_offset
        self.written_mark = (self.written_offset, self.written_mark[1])

    def _write_blank(self) -> None:
        if self._file is not None and self.written_offset < self._file_end:
            remaining = self._file_end - self.written_offset
            self._pwrite(self._file, self.written_offset, BLANK_RECORD.pack(remaining, MAGIC_BLANK))

    def _take_next_file(self) -> MappedFile:
        try:
            return self.next_file.take_over()
        except OSError as error:
            refusal = _store_error(error, "make the next commit log file")
            if isinstance(refusal, DiskFullError) and self._room is not None:
                self._room.log_cannot_grow(str(refusal))
            raise refusal from error

    def write(self) -> None:
        """Write all staged records, with one call.

        Raises:
            StoreError: the records staged beyond ``written_offset`` are not in the log.
        """
        if self._lost is not None:
            lost, self._lost = self._lost, None
            self.discard()
            raise lost
        parts = self._parts
        if parts:
            self._parts = []
            self._write_staged(b"".join(parts))

    def append_encoded(self, records: bytes) -> None:
        """Write records that were encoded for ``staged_offset`` and fit before ``room_end``.

        Nothing may be staged.

        Raises:
            StoreError: they are not in the log.
        """
        assert not self._parts
        assert self._lost is None
        self.staged_offset += len(records)
        self._write_staged(records)

    def _write_staged(self, records: bytes) -> None:
        file = self._file
        assert file is not None
        try:
            self._pwrite(file, self.written_offset, records)
        except StoreError:
            self._forget_staged(file)
            raise
        self.written_offset = self.staged_offset
        self.written_mark = (self.written_offset, self.store_time_ms)
        if self.written_offset > self._mark_offset:
            self._pass_mark(self.written_offset)

    def _pass_mark(self, offset: int) -> None:
        self._read_ahead.passed(self._files.files[-2:], offset)
        if offset > self._preallocate_at:
            self._preallocate_at = self._file_end
            self.next_file.make()
        self._mark_offset = min(offset + STEP_BYTES, self._preallocate_at)

    @property
    def received_offset(self) -> int:
        """Where a follower's copy of the master's log ends, possibly in the middle of a record."""
        return self.written_offset + self._torn_size_bytes

    def append_raw(self, offset: int, data: bytes) -> None:
        """Append bytes of a master's log as they arrive: a follower's way to write.

        They may begin and end in the middle of a record, and may reach into the next files.

        Raises:
            LogMismatchError: *offset* is not ``received_offset``, or no record can be at that
            offset.
            StoreError: only the bytes before ``received_offset`` are in the log.
        """
        if offset != self.received_offset or self._parts:
            raise LogMismatchError(
                f"bytes from offset {offset} on do not continue a log that ends at "
                f"{self.received_offset}"
            )
        rest = memoryview(data)
        while rest:
            if self._file is None or self.received_offset == self._file_end:
                self._go_to_next_file()
            room = self._file_end - self.received_offset
            self._append_to_file(rest[:room])
            rest = rest[room:]

    def _go_to_next_file(self) -> None:
        next_file = self._take_next_file()
        self._files.attach(next_file)
        self._enter(next_file)

    def _append_to_file(self, data: memoryview) -> None:
        file = self._file
        assert file is not None
        self._pwrite(file, self.received_offset, data)
        end = self.received_offset + len(data)
        base = file.base_offset
        whole = base + whole_end(file.mapping, self.written_offset - base, end - base)
        self._torn_size_bytes = end - whole
        self.staged_offset = self.written_offset = whole
        self.written_mark = (whole, self.store_time_ms)
        self._check_torn(file)
        if end > self._mark_offset:
            self._pass_mark(end)

    def _check_torn(self, file: MappedFile) -> None:
        """Raise LogMismatchError if the bytes after the whole records cannot begin a record."""
        position, torn = self.written_offset - file.base_offset, self._torn_size_bytes
        left = file.size_bytes - position
        size, magic = torn and left, MAGIC_BLANK
        if torn >= BLANK_RECORD.size:
            size, magic = BLANK_RECORD.unpack_from(file.mapping, position)
        if magic not in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK) or not torn <= size <= left:
            raise LogMismatchError(
                f"the master's log has no record at offset {self.written_offset}: it is damaged "
                "there, or does not continue this store's log"
            )

    def drop_torn(self) -> None:
        """Overwrite an incomplete last record with zeros. Raises StoreError."""
        if self._torn_size_bytes and self._file is not None:
            self._pwrite(self._file, self.written_offset, bytes(self._torn_size_bytes))
            self._torn_size_bytes = 0

    def discard(self) -> None:
        """Drop the records that are staged but not written."""
        self._parts = []
        self.staged_offset = self.written_offset

    def _forget_staged(self, file: MappedFile) -> None:
        size = self.staged_offset - self.written_offset
        self.discard()
        # Any part of the group may be in the file, and recovery would find whole records in it. If
        # the disk cannot even write zeros, some rejected messages may reappear.
        with contextlib.suppress(OSError):
            file.pwrite(self.written_offset - file.base_offset, bytes(size))

    def seal(self, error: StoreError) -> None:
        """Reject all further writes: they raise *error*."""
        self._sealed = error

    def _pwrite(self, file: MappedFile, offset: int, data: bytes | memoryview) -> None:
        if self._sealed is not None:
            raise self._sealed
        try:
            file.pwrite(offset - file.base_offset, data)
        except OSError as error:
            raise _store_error(error, f"write the commit log at {offset}") from error

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of [start, end), which must be in one file; empty if they were deleted.

        Returns a copy, which stays valid when the file is deleted.
        """
        file = self._file
        if file is None:
            return b""
        if not file.base_offset <= start:
            file = self._files.file_at(start)
            if file is None:
                return b""
        base = file.base_offset
        if end > self.written_offset or end > base + file.size_bytes or end < start:
            return b""
        return file.read(start - base, end - base)

    def read_written(self, start: int, end: int) -> bytes:
        """Return the written bytes of [start, end), which must be in one file; perhaps fewer."""
        return self.read(start, min(end, self.written_offset))

    def last_bytes(self, size_bytes_max: int) -> tuple[int, bytes]:
        """Return the last bytes of the log, from one file, and the offset at which they start.

        For a follower that compares them with its master's.
        """
        end, last = self.written_offset, max(self.written_offset - 1, 0)
        start = max(end - size_bytes_max, last - last % self.file_size_bytes, self.min_offset)
        return start, self.read(start, end)

    def find_mapping(self, offset: int) -> tuple[mmap.mmap, int, int] | None:
        """Return the mapping of the file that holds *offset*, and its [start, end); or None.

        For many reads within one iteration of the loop: it may be closed in the next.
        """
        file = self._file
        if file is None or not file.base_offset <= offset:
            file = self._files.file_at(offset)
        if file is None or offset >= self.written_offset:
            return None
        end = min(file.base_offset + file.size_bytes, self.written_offset)
        return file.mapping, file.base_offset, end

    def newest(self) -> tuple[mmap.mmap, int, int] | None:
        """Return the same as ``find_mapping``, for the file that is written to."""
        file = self._file
        return None if file is None else (file.mapping, file.base_offset, self.written_offset)

    def place_of(self, offset: int, size_bytes: int) -> tuple[str, int, int] | None:
        """Return path, position and size of the bytes from *offset* on; None if they were deleted.

        The size is at most *size_bytes*, and ends with the file.
        """
        file = self._files.file_at(offset)
        if file is None:
            return None
        return str(file.path), offset - file.base_offset, min(size_bytes, file.end_offset - offset)

    def record_at(self, offset: int) -> bytes:
        """Return the bytes of the record at *offset*, by its stated size; empty if invalid."""
        stretch = self.find_mapping(offset)
        if stretch is None:
            return b""
        mapping, base, end = stretch
        if offset + 8 > end:
            return b""
        size, magic = BLANK_RECORD.unpack_from(mapping, offset - base)
        if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_SIZE_BYTES_MIN <= size <= end - offset:
            return b""
        return mapping[offset - base : offset - base + size]

    def flush(self) -> int:
        """Make everything written durable and return its end. Blocks: for the flush thread.

        Raises:
            TooManyOpenFilesError: no descriptor is free; ``flushed_offset`` stays.
            StoreFailedError: an fsync failed; the content on disk is unknown until a restart reads
            it.
        """
        target, store_time_ms = self.written_mark
        if target > self.flushed_offset:
            try:
                self._files.flush_range(self.flushed_offset, target)
            except TooManyOpenFilesError:
                raise
            except OSError as error:
                raise StoreFailedError(
                    f"the commit log could not be flushed ({os.strerror(error.errno or 0)}), so "
                    "messages are refused from now on: check the disk, then restart the broker"
                ) from error
            self.flushed_offset = target
            self.flushed_time_ms = store_time_ms
        return target

    def next_file_offset(self, offset: int) -> int:
        """Return the start of the file after the one that holds *offset*."""
        file = self._files.file_at(offset)
        return self.written_offset if file is None else file.base_offset + file.size_bytes

    def drop_files_before(self, offset: int) -> None:
        """Delete the files that end at or before *offset*; never the newest."""
        self._files.delete_files_before(offset)

    def close(self) -> None:
        """Close the files, and delete a file made in advance that is still unused."""
        self.next_file.discard()
        self._files.close()


def _store_error(error: OSError, what: str) -> StoreError:
    if isinstance(error, TooManyOpenFilesError):
        return TooManyOpenFilesError(error.errno, f"cannot {what}: {error}")
    reason = os.strerror(error.errno or 0)
    if error.errno in DISK_FULL_ERRNOS:
        return DiskFullError(
            f"the disk is full: cannot {what} ({reason}); free space, or lower fileReservedTime"
        )
    return StoreError(f"cannot {what}: {reason}")
