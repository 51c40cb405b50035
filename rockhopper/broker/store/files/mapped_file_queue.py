"""MappedFileQueue: the files of one directory as one address space.

Each file is named by the offset of its first byte and all have the same size, so a division finds
the file of an offset. Older files may have been deleted, and a file in the middle may be missing
after an accident (``gaps``); offsets never change.

RocketMQ refuses a directory with a file of another name or size. We refuse other sizes too; a file
with another name is logged, left alone and not read.
"""

import os
import stat
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import structlog

from rockhopper.broker.settings.store_layout import file_name
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.files.mapped_file import MapFile, MappedFile

log = structlog.get_logger("broker.store")

_FIRST_NAME = file_name(0)


class MappedFileQueue:
    """The files of *directory*, oldest first in ``files``.

    Belongs to the thread that appends, except ``flush``, ``flush_range`` and ``create_next``.
    """

    __slots__ = (
        "_directory",
        "_is_writable",
        "_map_file",
        "_unit_size_bytes",
        "file_size_bytes",
        "files",
        "flushed_offset",
        "reserve_step_bytes",
    )

    def __init__(
        self,
        directory: Path | str,
        file_size_bytes: int,
        *,
        writable: bool = False,
        unit_size_bytes: int = 1,
        map_file: MapFile | None = None,
    ) -> None:
        """*file_size_bytes* applies to an empty directory only: existing files keep their size.

        With *writable* the mappings can be written through. File sizes must be whole units.
        *map_file* works as for MappedFile.
        """
        self._directory = os.fspath(directory)
        self.file_size_bytes = file_size_bytes
        self.files: list[MappedFile] = []
        self.flushed_offset = 0
        self._is_writable = writable
        self._unit_size_bytes = unit_size_bytes
        self._map_file = map_file
        self.reserve_step_bytes: int | None = None
        """How many bytes of a file are allocated at a time; None allocates the whole file."""

    @property
    def path(self) -> str:
        """The path of the directory, as it was given."""
        return self._directory

    @property
    def directory(self) -> Path:
        """The path of the directory."""
        return Path(self._directory)

    def load(self) -> None:
        """Find the files. Positions are set as if all were full; recovery corrects them.

        An empty last file, which RocketMQ leaves if it dies while making one, is deleted.

        Raises:
            CorruptFileError: sizes differ, or a name does not fit the size; the message says which.
        """
        found = self._list_numbered_files()
        if found and found[-1][1] == 0:
            _, _, path = found.pop()
            log.warning("deleting an empty file at the end", path=path)
            disk.remove_files([Path(path)])
        self.files = [
            MappedFile(
                path, offset, size_bytes, writable=self._is_writable, map_file=self._map_file
            )
            for offset, size_bytes, path in found
        ]
        if found:
            self.file_size_bytes = self.files[0].size_bytes
        for file in self.files:
            self._check(file)
            file.write_position = file.size_bytes
        for start, end in self.gaps:
            log.error(
                "files are missing", directory=str(self.directory), from_offset=start, to_offset=end
            )
        self.flushed_offset = self.min_offset

    def load_first(self, size_bytes: int, device: int, data: bytes) -> None:
        """Load a first file that is the only one, and holds *data* and zeros."""
        self.file_size_bytes = size_bytes
        self.restore_first(len(data))
        self.files[0].note_read(device, data)

    def restore_first(self, write_position: int) -> None:
        """Load a first file that is the only one; bytes up to *write_position* were written."""
        file = MappedFile(
            f"{self._directory}/{_FIRST_NAME}",
            0,
            self.file_size_bytes,
            writable=self._is_writable,
            map_file=self._map_file,
        )
        file.write_position = write_position
        self.files = [file]

    def _list_numbered_files(self) -> list[tuple[int, int, str]]:
        found = []
        try:
            entries = list(os.scandir(self._directory))
        except FileNotFoundError:
            return []
        for entry in entries:
            status = entry.stat()
            if stat.S_ISDIR(status.st_mode):
                continue
            if not entry.name.isdecimal():
                log.warning("ignoring a file that does not belong here", path=entry.path)
                continue
            found.append((int(entry.name), status.st_size, entry.path))
        return sorted(found)

    def _check(self, file: MappedFile) -> None:
        size_bytes = self.file_size_bytes
        if file.size_bytes != size_bytes:
            raise CorruptFileError(
                file.path,
                f"{file.size_bytes} bytes long, but {self.files[0].path.name} next to it has "
                f"{size_bytes}; all files of the directory must have one size: restore the file, "
                "or move it away to continue without its content",
            )
        if size_bytes == 0:
            raise CorruptFileError(
                file.path,
                "empty, though other files follow it: restore it, or move it away to continue "
                "without its content",
            )
        if size_bytes % self._unit_size_bytes:
            raise CorruptFileError(
                file.path, f"{size_bytes} bytes long, not whole units of {self._unit_size_bytes}"
            )
        if file.base_offset % size_bytes:
            raise CorruptFileError(
                file.path,
                f"a file of {size_bytes} bytes cannot start at that offset; is it truncated?",
            )

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The ranges between the files that no file covers: files were lost."""
        return [
            (before.end_offset, after.base_offset)
            for before, after in zip(self.files, self.files[1:], strict=False)
            if before.end_offset != after.base_offset
        ]

    @property
    def min_offset(self) -> int:
        """The offset of the first byte of the oldest file; 0 without files."""
        return self.files[0].base_offset if self.files else 0

    @property
    def write_offset(self) -> int:
        """The offset of the next append."""
        return self.files[-1].base_offset + self.files[-1].write_position if self.files else 0

    @property
    def next_base_offset(self) -> int:
        """The offset at which the next file starts."""
        return self.files[-1].end_offset if self.files else 0

    def file_at(self, offset: int) -> MappedFile | None:
        """Return the file that holds the byte at *offset*, or None."""
        files = self.files
        if not files:
            return None
        first = files[0]
        if len(files) == 1:  # most queues
            start = first.base_offset
            return first if start <= offset < start + first.size_bytes else None
        index = (offset - first.base_offset) // self.file_size_bytes
        if 0 <= index < len(files):
            file = files[index]
            if file.base_offset <= offset < file.end_offset:
                return file
        index = bisect_right(files, offset, key=lambda file: file.base_offset) - 1
        if index >= 0 and offset < files[index].end_offset:
            return files[index]
        return None

    def create_next(self) -> MappedFile:
        """Make the file after the last one, without adding it; another thread calls it in advance.

        Raises:
            OSError: the disk is full, or another failure; nothing is left behind.
        """
        return self._create(self.next_base_offset)

    def attach(self, file: MappedFile) -> None:
        """Add a file that ``create_next`` made."""
        assert not self.files or file.base_offset >= self.files[-1].end_offset, file.path
        if not self.files:
            self.flushed_offset = file.base_offset
        self.files.append(file)

    def append_file(self, base_offset: int | None = None) -> MappedFile:
        """Make and add the next file; in an empty queue it may start at *base_offset*.

        Raises:
            OSError: the disk is full, or another failure; nothing has changed.
        """
        file = self._create(self.next_base_offset if base_offset is None else base_offset)
        self.attach(file)
        return file

    def append_draft(self, base_offset: int) -> MappedFile:
        """Add a next file that is made later, by ``MappedFile.write_draft``."""
        file = MappedFile(
            f"{self._directory}/{file_name(base_offset)}",
            base_offset,
            self.file_size_bytes,
            writable=self._is_writable,
            map_file=self._map_file,
        )
        file.begin_draft()
        self.attach(file)
        return file

    def _create(self, base_offset: int) -> MappedFile:
        changed = disk.make_directories(self.directory)
        try:
            return MappedFile.create(
                self.directory / file_name(base_offset),
                base_offset,
                self.file_size_bytes,
                writable=self._is_writable,
                map_file=self._map_file,
                unsynced_directories=changed,
                reserved_bytes=self.reserve_step_bytes,
            )
        except OSError:
            # Otherwise the next attempt would find them and see no reason to sync them.
            disk.unmake_directories(self.directory, len(changed))
            raise

    def flush(self) -> bool:
        """Make everything written durable; return whether there was anything to do.

        Raises:
            OSError: the content on disk is unknown; ``flushed_offset`` stays.
        """
        before = self.flushed_offset
        self.flush_range(before, self.write_offset)
        return self.flushed_offset != before

    def flush_range(self, start: int, end: int) -> None:
        """Make the bytes of [start, end) durable, regardless of the files' write positions.

        Blocks; for the flush thread.

        Raises:
            OSError: the content on disk is unknown.
        """
        for file, position in self._files_of(start, end):
            file.sync(position)
        self._note_flushed(start, end)

    def note_synced(self, start: int, end: int, device: int) -> bool:
        """Note that the file system *device* was synced after [start, end) was written.

        Returns whether all files of the range are in it; if not, they must be flushed.
        """
        is_synced = all(
            file.note_synced(position, device) for file, position in self._files_of(start, end)
        )
        if is_synced:
            self._note_flushed(start, end)
        return is_synced

    def _files_of(self, start: int, end: int) -> Iterator[tuple[MappedFile, int]]:
        """Yield the files of [start, end), and where the range ends in each."""
        for file in tuple(self.files):
            if file.base_offset >= end:
                break
            if file.end_offset > start:
                yield file, min(end, file.end_offset) - file.base_offset

    def _note_flushed(self, start: int, end: int) -> None:
        if end > self.flushed_offset and start <= self.flushed_offset:
            self.flushed_offset = end

    def truncate_to(self, offset: int) -> None:
        """End the address space at *offset*: delete later files, zero the rest of its file.

        A later recovery would read stale bytes after the end as records or units; hence the zeros,
        which are durable on return. The first file stays even if nothing of it is left, and so does
        the first file after a gap: their names show where appends continue.

        Raises:
            OSError: the disk is failing; the files may still have their old content.
        """
        kept = [file for file in self.files if file.base_offset < offset]
        if not kept or kept[-1].end_offset < offset:
            kept = self.files[: len(kept) + 1]
        later = self.files[len(kept) :]
        self.files = kept
        for file in reversed(later):
            file.delete()
        if later:
            disk.sync_directory(self.directory)
        if kept:
            last = kept[-1]
            last.write_position = min(max(offset - last.base_offset, 0), last.size_bytes)
            last.zero_from(last.write_position)
            last.flushed_position = min(last.flushed_position, last.write_position)
        self.flushed_offset = min(self.flushed_offset, self.write_offset)

    def delete_files_before(self, offset: int) -> int:
        """Delete the files that end at or before *offset*, never the last; return how many."""
        expired = [file for file in self.files[:-1] if file.end_offset <= offset]
        return self._delete_first(len(expired))

    def detach_first(self, count: int) -> list[MappedFile]:
        """Remove the oldest *count* files from the queue; the caller deletes them.

        The caller syncs the directory afterwards.
        """
        expired, self.files = self.files[:count], self.files[count:]
        if expired:
            self.flushed_offset = max(self.flushed_offset, self.min_offset)
        return expired

    def _delete_first(self, count: int) -> int:
        expired = self.detach_first(count)
        was_made = any(file.is_made for file in expired)
        for file in expired:
            file.delete()
        if was_made:
            disk.sync_directory(self.directory)
        return len(expired)

    def destroy(self) -> None:
        """Delete all files, and the directory unless it holds other files."""
        self._delete_first(len(self.files))
        disk.remove_directory_if_empty(self.directory)

    def has_grown(self, file: MappedFile) -> bool:
        """Return whether *file* is the newest, which is in use."""
        return file in self.files[-1:]

    def let_go(self, file: MappedFile) -> None:
        """Unmap *file*; the next access maps it again."""
        file.unmap()

    def unmap(self) -> None:
        """Drop every mapping; the next access makes a new one."""
        for file in self.files:
            file.unmap()

    def close(self) -> None:
        """Release mappings and descriptors. Flushes nothing."""
        for file in self.files:
            file.close()
