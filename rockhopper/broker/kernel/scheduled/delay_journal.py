"""The journal of the delay levels: the deliveries in progress, so that a crash repeats nothing.

``<store>/rockhopper/delay/<20-digit number>.records``, records (protocol/store/journal_records.py)
of one kind, 1, with this big-endian payload:

    offset  size  field
         0     8  level
         8     8  queue offset of the first message of a pass
        16     8  queue offset behind the last one
        24     8  end of the commit log just before the pass was written

Each save of delayOffset.json starts another file. A file is deleted once a delayOffset.json on disk
covers its content. The writer has the files synced soon afterwards
(broker/kernel/scheduled/journal_sync.py). After a power cut the log may be shorter than the journal
assumes, so a start compares the two.

Builds before 0.2.0 wrote the same 32 bytes bare into ``journal.0`` and ``journal.1``. Such entries
are read, compared with the log, and deleted like present ones.
"""

import struct
from pathlib import Path
from typing import NamedTuple

import structlog

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.record_journal import RecordJournal
from rockhopper.protocol.store.journal_records import encode_record

log = structlog.get_logger("broker.delayed")

PASS = 1
_NOTE = struct.Struct(">qqqq")
_BARE_FILES = ("journal.0", "journal.1")


class Pass(NamedTuple):
    """One pass of one level."""

    level: int
    first_offset: int
    end_offset: int
    log_end: int


class DelayJournal:
    """The journal's files; entries can be added once ``open`` was called."""

    def __init__(self, directory: Path, quarantine: Path) -> None:
        self._directory = directory
        self._journal = RecordJournal(directory, quarantine, what="delay levels", suffix=".records")
        self._is_open = False
        self._is_failing = False
        # The number of a file, and the end of the log before which the passes of older files ended.
        self._ended: list[tuple[int, int]] = []

    def take_unsynced_notes(self) -> list[Path]:
        """See UnsyncedFiles."""
        return self._journal.take_unsynced()

    def unsynced_again(self, paths: list[Path]) -> None:
        """See UnsyncedFiles."""
        self._journal.unsynced_again(paths)

    def open(self) -> list[Pass]:
        """Return the passes of all files, unordered; from now on passes can be recorded.

        Raises:
            OSError: the files cannot be read or created.
        """
        passes = [
            Pass(*_NOTE.unpack(payload))
            for kind, payload in self._journal.read()
            if kind == PASS and len(payload) == _NOTE.size
        ]
        self._journal.repair()
        for path in self._list_bare_files():
            data = path.read_bytes()
            whole = len(data) - len(data) % _NOTE.size
            passes += [Pass(*note) for note in _NOTE.iter_unpack(data[:whole])]
        self._is_open = True
        return passes

    def _list_bare_files(self) -> list[Path]:
        paths = [self._directory / name for name in _BARE_FILES]
        return [path for path in paths if path.exists()]

    def note(self, about: Pass) -> bool:
        """Record a pass before it is written; return whether there is anything to sync.

        If this fails, a crash may repeat the delivery.
        """
        if not self._is_open:
            return False
        try:
            self._journal.append(encode_record(PASS, _NOTE.pack(*about)))
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                log.warning("deliveries of delayed messages cannot be recorded", reason=str(error))
            return False
        self._is_failing = False
        return True

    def turn(self, end_offset: int) -> None:
        """Continue in another file, before delayOffset.json is saved.

        The recorded passes all end before *end_offset* of the log. Raises OSError.
        """
        is_empty = self._journal.size_bytes == 0
        if not self._is_open or (is_empty and (self._ended or not self._list_bare_files())):
            return
        self._journal.rotate()
        self._ended.append((self._journal.number, end_offset))

    def forget(self, settled_offset: int) -> None:
        """Delete the entries of passes before *settled_offset*: the saved file covers them.

        Blocks, so call it in a thread. Raises OSError.
        """
        over = [number for number, end in self._ended if end <= settled_offset]
        if not over:
            return
        self._journal.forget_before(over[-1])
        disk.remove_files(self._list_bare_files())
        self._ended = [ended for ended in self._ended if ended[0] > over[-1]]

    def close(self) -> None:
        """Close the files."""
        self._is_open = False
        self._journal.close()
