"""The commit log: every message of every topic, one after the other, in files of one size.

Records are staged while the requests of one read of a socket are handled, and written by one
``pwrite`` at the end of the pass. Writing with pwrite rather than through the mapping turns a full
or failing disk into an exception, where a mapping would kill the process; reading goes through the
mapping. The record layout is in protocol/message_codec.py.

A file ends with a blank record of at least 8 bytes, so no record crosses from one file to the next:

    offset  size  field
         0     4  bytes from here to the end of the file
         4     4  0xCBD43194
         8     …  whatever was there

A follower copies its master's log as it comes, cut anywhere. ``written_offset`` then is where the
last whole record ends, so that nobody else ever sees a part of one; ``received_offset`` is the end
of what came. What is between the two when the process is killed is a torn end to recovery, and is
cut off; the follower asks for it again.
"""

import contextlib
import mmap
import os
from collections.abc import Callable
from concurrent.futures import Executor, Future

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
from rockhopper.broker.store.log.fast_encoding import whole_end
from rockhopper.broker.store.log.read_ahead import STEP_BYTES, ReadAhead
from rockhopper.protocol.store.record_head import (
    BLANK_RECORD,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_BYTES_MIN,
)


class CommitLog:
    """Collects, writes and reads records. Belongs to the event loop's thread but for ``flush``."""

    def __init__(
        self,
        files: MappedFileQueue,
        read_ahead: ReadAhead,
        write_offset: int,
        store_host: bytes,
        executor: Executor,
    ) -> None:
        """*store_host* is 8 or 20 bytes as in the record; *executor* makes files ahead of need."""
        self._files = files
        self._read_ahead = read_ahead
        self._executor = executor
        self.next_file: Future[MappedFile] | None = None
        self.on_no_room: Callable[[str], None] = _ignore_no_room
        """Is told why there is no next file when one is needed and the disk is full."""
        self._parts: list[bytes] = []
        # Why staged records were lost before the end of their pass, until ``write`` has said so.
        self._lost: StoreError | None = None
        # What a follower has behind ``written_offset`` of a record whose rest is to come.
        self._torn_size_bytes = 0
        # Why nothing may be written any more.
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
        # Writing beyond it is the time for what is to be done now and then.
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
        """The offset that records may reach in the current file; a blank one goes behind them."""
        return self._file_end - BLANK_RECORD.size

    @property
    def min_offset(self) -> int:
        """The offset of the oldest file's first byte."""
        return self._files.min_offset

    def add(self, records: bytes) -> bool:
        """Add records that were made for ``staged_offset`` to the pass; they stay in one file.

        False when the current file has no room for them: everything staged is then written, the
        log stands at the start of the next file, and the records are to be made again for there.

        Raises:
            RecordTooLargeError: no file can hold them.
            StoreError: there is no next file, or what was staged could not be written; the end of
                the pass, ``write``, says which.
        """
        end = self.staged_offset + len(records)
        if end > self.room_end:
            self._roll(len(records))
            return False
        self._parts.append(records)
        self.staged_offset = end
        return True

    def check_fits(self, size_bytes: int) -> None:
        """Refuse what no file can hold. Raises RecordTooLargeError."""
        if size_bytes + 8 > self.file_size_bytes:
            raise RecordTooLargeError(
                f"{size_bytes} bytes of records do not fit a commit log file of "
                f"{self.file_size_bytes} bytes (mappedFileSizeCommitLog)"
            )

    def _roll(self, size_bytes: int) -> None:
        """Write what is staged, close the file with a blank record, and go to the next one."""
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
            self.next_file = Future()
            self.next_file.set_result(next_file)
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
        ahead, self.next_file = self.next_file, None
        try:
            if ahead is not None:
                try:
                    return ahead.result()
                except OSError:
                    pass  # There may be room again: try once more, here.
            return self._files.create_next()
        except OSError as error:
            told = _store_error(error, "make the next commit log file")
            if isinstance(told, DiskFullError):
                self.on_no_room(str(told))
            raise told from error

    def write(self) -> None:
        """Write everything staged, with one call.

        Raises:
            StoreError: what was staged beyond ``written_offset`` is not in the log.
        """
        if self._lost is not None:
            lost, self._lost = self._lost, None
            self.discard()
            raise lost
        parts = self._parts
        if not parts:
            return
        self._parts = []
        file = self._file
        assert file is not None
        try:
            self._pwrite(file, self.written_offset, b"".join(parts))
        except StoreError:
            self._forget_staged(file)
            raise
        self.written_offset = self.staged_offset
        self.written_mark = (self.written_offset, self.store_time_ms)
        if self.written_offset > self._mark_offset:
            self._passed_mark(self.written_offset)

    def _passed_mark(self, offset: int) -> None:
        self._read_ahead.passed(self._files.files[-2:], offset)
        if offset > self._preallocate_at:
            self._preallocate_at = self._file_end
            self.make_next_file()
        self._mark_offset = min(offset + STEP_BYTES, self._preallocate_at)

    def make_next_file(self) -> Future[MappedFile]:
        """Have the next file made ahead of need, unless it is there or under way."""
        made = self.next_file
        if made is None or (made.done() and made.exception() is not None):
            made = self.next_file = self._executor.submit(self._files.create_next)
        return made

    @property
    def received_offset(self) -> int:
        """Where what a follower has of its master's log ends, be it in the middle of a record."""
        return self.written_offset + self._torn_size_bytes

    def append_raw(self, offset: int, data: bytes) -> None:
        """Append bytes of a master's log as they come: a follower's way to write.

        They may begin and end in the middle of a record, and may reach into the next files.

        Raises:
            LogMismatchError: *offset* is not ``received_offset``, or no record can stand there.
            StoreError: ``received_offset`` says how much of them is in the log.
        """
        if offset != self.received_offset or self._parts:
            raise LogMismatchError(
                f"bytes from offset {offset} on do not go on with a log that ends at "
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
            self._passed_mark(end)

    def _check_torn(self, file: MappedFile) -> None:
        """Raise LogMismatchError if what stands behind the whole records never becomes one."""
        position, torn = self.written_offset - file.base_offset, self._torn_size_bytes
        left = file.size_bytes - position
        size, magic = torn and left, MAGIC_BLANK
        if torn >= BLANK_RECORD.size:
            size, magic = BLANK_RECORD.unpack_from(file.mapping, position)
        if magic not in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK) or not torn <= size <= left:
            raise LogMismatchError(
                f"the master's log holds no record at offset {self.written_offset}: it is damaged "
                "there, or not the log that this store has the beginning of"
            )

    def drop_torn(self) -> None:
        """Forget a record whose rest has not come; zeros stand in its place. Raises StoreError."""
        if self._torn_size_bytes and self._file is not None:
            self._pwrite(self._file, self.written_offset, bytes(self._torn_size_bytes))
            self._torn_size_bytes = 0

    def discard(self) -> None:
        """Forget what is staged and not written."""
        self._parts = []
        self.staged_offset = self.written_offset

    def _forget_staged(self, file: MappedFile) -> None:
        size = self.staged_offset - self.written_offset
        self.discard()
        # Any part of the group may be in the file, and recovery would find whole records in it.
        # If the disk takes not even zeros, some messages that were refused may come back.
        with contextlib.suppress(OSError):
            file.pwrite(self.written_offset - file.base_offset, bytes(size))

    def seal(self, error: StoreError) -> None:
        """Let nothing more into the log: whoever tries gets *error*."""
        self._sealed = error

    def _pwrite(self, file: MappedFile, offset: int, data: bytes | memoryview) -> None:
        if self._sealed is not None:
            raise self._sealed
        try:
            file.pwrite(offset - file.base_offset, data)
        except OSError as error:
            raise _store_error(error, f"write the commit log at {offset}") from error

    def read(self, start: int, end: int) -> bytes:
        """The bytes of [start, end), which must lie in one file; empty when they are gone.

        A copy: it stays valid when the file is deleted.
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

    def mapped(self, offset: int) -> tuple[mmap.mmap, int, int] | None:
        """The mapping of the file that holds *offset*, and [start, end) of what it holds; or None.

        For many reads within one turn of the loop: it may be closed in the next.
        """
        file = self._file
        if file is None or not file.base_offset <= offset:
            file = self._files.file_at(offset)
        if file is None or offset >= self.written_offset:
            return None
        end = min(file.base_offset + file.size_bytes, self.written_offset)
        return file.mapping, file.base_offset, end

    def newest(self) -> tuple[mmap.mmap, int, int] | None:
        """As ``mapped``, for the file that is written to."""
        file = self._file
        return None if file is None else (file.mapping, file.base_offset, self.written_offset)

    def place_of(self, offset: int, size_bytes: int) -> tuple[str, int, int] | None:
        """File, position in it and size of so many bytes from *offset* on; None if it is gone."""
        file = self._files.file_at(offset)
        if file is None:
            return None
        return str(file.path), offset - file.base_offset, min(size_bytes, file.end_offset - offset)

    def record_at(self, offset: int) -> bytes:
        """The bytes that a record at *offset* claims for itself; empty when they cannot be one."""
        stretch = self.mapped(offset)
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
        """Make everything written durable and return up to where. Blocks: for the flush thread.

        Raises:
            TooManyOpenFilesError: no descriptor is free; ``flushed_offset`` stays.
            StoreFailedError: an fsync failed; what is on disk is unknown until a restart reads it.
        """
        target, store_time_ms = self.written_mark
        if target > self.flushed_offset:
            try:
                self._files.flush_range(self.flushed_offset, target)
            except TooManyOpenFilesError:
                raise
            except OSError as error:
                raise StoreFailedError(
                    f"the commit log could not be flushed ({os.strerror(error.errno or 0)}): "
                    "messages from now on are refused; check the disk, then restart the broker"
                ) from error
            self.flushed_offset = target
            self.flushed_time_ms = store_time_ms
        return target

    def next_file_offset(self, offset: int) -> int:
        """Where the file behind the one that holds *offset* starts."""
        file = self._files.file_at(offset)
        return self.written_offset if file is None else file.base_offset + file.size_bytes

    def drop_files_before(self, offset: int) -> None:
        """Delete the files that end at or before *offset*; never the newest."""
        self._files.delete_files_before(offset)

    def close(self) -> None:
        """Close the files and delete the one made ahead that nothing was written to."""
        if self.next_file is not None:
            with contextlib.suppress(OSError):  # Then it was never made.
                self.next_file.result().delete()
            self.next_file = None
        self._files.close()


def _ignore_no_room(reason: str) -> None:
    """Nobody asked to be told."""


def _store_error(error: OSError, what: str) -> StoreError:
    if isinstance(error, TooManyOpenFilesError):
        return TooManyOpenFilesError(error.errno, f"cannot {what}: {error}")
    reason = os.strerror(error.errno or 0)
    if error.errno in DISK_FULL_ERRNOS:
        return DiskFullError(
            f"the disk is full: cannot {what} ({reason}); free space, or lower fileReservedTime"
        )
    return StoreError(f"cannot {what}: {reason}")
