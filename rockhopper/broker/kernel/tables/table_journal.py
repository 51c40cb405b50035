"""TableJournal: the changes of one table since its file was written (protocol: table_changes.py).

A table of 30,000 topics has 12 MB, and a change of one topic some hundred bytes. Until the file is
written again, changes are appended here, and each is durable before its request is answered. After
a kill or a power cut, the next start reads the file and the changes, and writes a new file.
"""

from collections.abc import Iterable
from pathlib import Path

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.record_journal import RecordJournal
from rockhopper.protocol.store.table_changes import (
    SUFFIX,
    TableChange,
    changes_of,
    encode_change,
    encode_file,
)


class TableJournal:
    """The journal's directory. Usable from any thread, one at a time."""

    def __init__(
        self, directory: Path, quarantine: Path, *, mode: int = disk.DEFAULT_FILE_MODE
    ) -> None:
        self._journal = RecordJournal(
            directory, quarantine, what="changes of a table", suffix=SUFFIX, mode=mode
        )
        self._is_begun = False
        self.directory = directory

    @property
    def size_bytes(self) -> int:
        """The size of the recorded changes; 0 if the file contains everything."""
        return self._journal.size_bytes if self._is_begun else 0

    @property
    def has_files(self) -> bool:
        """Whether there are journal files, whose changes may already be in the table's file."""
        return bool(self._journal.files())

    def read(self, shas: Iterable[str]) -> list[TableChange]:
        """Return the changes after a file with one of these fingerprints; modifies nothing.

        Raises:
            OSError: a journal file cannot be read.
            ValueError: its content is invalid.
        """
        return changes_of(self._journal.read(), shas)

    @property
    def is_rotten(self) -> bool:
        """Whether changes were lost that had been durable."""
        return self._journal.is_rotten

    def append(self, file_sha: str, changes: Iterable[TableChange]) -> None:
        """Append changes of a file with this fingerprint, durably. Raises OSError."""
        data = b"".join(map(encode_change, changes))
        if not self._is_begun:
            self._journal.repair()
            self._journal.rotate()
            data = encode_file(file_sha) + data
        self._journal.append(data)
        self._is_begun = True
        paths = self._journal.take_unsynced()
        try:
            disk.sync_paths(paths)
        except OSError:
            self._journal.unsynced_again(paths)
            raise

    def drop(self) -> None:
        """Delete the journal, because the file contains everything. Raises OSError."""
        self._journal.repair()
        self._journal.close()
        self._is_begun = False
        disk.remove_files(self._journal.files())
