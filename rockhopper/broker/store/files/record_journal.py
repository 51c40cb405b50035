"""RecordJournal: a directory of numbered record files, of which the newest is appended to.

Files ``<20-digit number><suffix>`` are read in the order of their numbers. To drop obsolete
entries, the owner starts a new file (``rotate``), and deletes the older ones (``forget_before``)
once their live entries are safe elsewhere.

No file exists until the first record is written. Appends are not synced: a crash of the process
loses nothing, a power cut loses the newest records, unless the owner syncs the files that
``take_unsynced`` returns.
"""

from collections.abc import Iterator
from pathlib import Path

from rockhopper.broker.settings.store_layout import file_name
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.record_file import RecordFile, read_records, repair
from rockhopper.protocol.store.journal_records import Record, RecordsRead


class RecordJournal:
    """The record files of one directory."""

    def __init__(
        self,
        directory: Path,
        quarantine: Path,
        *,
        what: str,
        suffix: str = "",
        strict: bool = False,
        mode: int = disk.DEFAULT_FILE_MODE,
    ) -> None:
        """*what* describes the journal in the log; with *strict* a lost record ends the journal.

        *mode* is the permission bits of the files, reduced by the umask.
        """
        self._mode = mode
        self.directory = directory
        self._quarantine = quarantine
        self._what = what
        self._suffix = suffix
        self._strict = strict
        self._file: RecordFile | None = None
        self._damaged: list[tuple[Path, RecordsRead]] = []
        self._unsynced: dict[Path, None] = {}
        self.number = 0
        """The number of the newest file."""
        self.size_bytes = 0
        """The bytes in the newest file."""

    def read(self) -> Iterator[Record]:
        """Yield kind and payload of every record; change nothing. Raises OSError."""
        self._damaged.clear()
        is_cut = False
        for path in self.files():
            self.number = self._number_of(path)
            read = read_records(path, strict=self._strict)
            if is_cut:
                read = read._replace(records=[], is_lossy=True)
            if read.damages or is_cut:
                self._damaged.append((path, read))
            yield from read.records
            self.size_bytes = read.size_bytes
            is_cut |= self._strict and read.is_lossy

    def repair(self) -> None:
        """Rewrite the files that ``read`` found damaged; afterwards records can be appended.

        Raises:
            OSError: a file is unchanged.
        """
        while self._damaged:
            path, read = self._damaged[0]
            size_bytes = repair(path, read, self._quarantine, what=self._what, mode=self._mode)
            if self._number_of(path) == self.number:
                self.size_bytes = size_bytes
            del self._damaged[0]

    @property
    def is_damaged(self) -> bool:
        """Whether ``read`` found a lost record, even if it was the last one."""
        return any(read.is_lossy for _, read in self._damaged)

    @property
    def is_rotten(self) -> bool:
        """Whether more is lost than a record that a power cut tore off."""
        return any(read.is_lossy and not read.is_torn for _, read in self._damaged)

    def files(self) -> list[Path]:
        """Return the files, oldest first."""
        if not self.directory.is_dir():
            return []
        paths = [path for path in self.directory.iterdir() if self._is_ours(path.name)]
        return sorted(paths, key=self._number_of)

    def _is_ours(self, name: str) -> bool:
        return name.endswith(self._suffix) and name.removesuffix(self._suffix).isdecimal()

    def _number_of(self, path: Path) -> int:
        return int(path.name.removesuffix(self._suffix))

    def append(self, data: bytes) -> None:
        """Write records, all of them or none. Raises OSError."""
        if self._file is None:
            self._file = self._open(self.number, self.size_bytes)
        self._file.append(data)
        self.size_bytes = self._file.size_bytes
        self._unsynced[self._file.path] = None

    def _open(self, number: int, size_bytes: int) -> RecordFile:
        disk.make_directories_durably(self.directory)
        path = self.directory / (file_name(number) + self._suffix)
        return RecordFile(path, size_bytes, self._mode)

    def rotate(self) -> None:
        """Append further records to a new file. Raises OSError: the current file stays in use."""
        file = self._open(self.number + 1, 0)
        file.cut(0)
        self.close()
        self._file = file
        self.number, self.size_bytes = self.number + 1, 0

    def take_unsynced(self) -> list[Path]:
        """Return, and forget, the files appended to since the last call, for the caller to sync."""
        paths, self._unsynced = list(self._unsynced), {}
        return paths

    def unsynced_again(self, paths: list[Path]) -> None:
        """Put back files from ``take_unsynced`` that could not be synced."""
        self._unsynced |= dict.fromkeys(paths)

    def forget_before(self, number: int) -> None:
        """Delete the files with numbers below *number*. Any thread; blocks. Raises OSError."""
        disk.remove_files(path for path in self.files() if self._number_of(path) < number)

    def forget_older(self) -> None:
        """Sync the newest file, then delete all others. Any thread; blocks. Raises OSError."""
        number = self.number
        if self._file is not None:
            disk.sync_paths([self._file.path])
        self.forget_before(number)

    def close(self) -> None:
        """Close the newest file."""
        if self._file is not None:
            self._file.close()
            self._file = None
