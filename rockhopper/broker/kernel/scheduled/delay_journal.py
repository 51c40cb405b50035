"""The journal of the delay levels: what they were about to deliver; a crash then repeats nothing.

``<store>/rockhopper/delay/<20-digit number>.records``, records (protocol/store/note_records.py) of
one kind, 1, whose payload is, big-endian:

    offset  size  field
         0     8  level
         8     8  queue offset of the first message of a pass
        16     8  queue offset behind the last one
        24     8  end of the commit log when the pass was about to be written

Each time that delayOffset.json is saved another file is begun; a file goes when all that it tells
is in a delayOffset.json that is on disk. Whoever notes passes has the files synced soon
(broker/kernel/scheduled/note_sync.py): after a power cut less of the log may be left than they tell
of, and they are compared with it.

Builds before 0.2.0 wrote the same 32 bytes bare into ``journal.0`` and ``journal.1``; such notes
are read, and compared with the log, and go as those of this release do.
"""

import struct
from pathlib import Path
from typing import NamedTuple

import structlog

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.record_journal import RecordJournal
from rockhopper.protocol.store.note_records import encode_record

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
    """The files; passes can be noted once ``open`` was called."""

    def __init__(self, directory: Path, quarantine: Path) -> None:
        self._directory = directory
        self._journal = RecordJournal(directory, quarantine, what="delay levels", suffix=".records")
        self.take_unsynced = self._journal.take_unsynced
        self.unsynced_again = self._journal.unsynced_again
        self._is_open = False
        self._is_failing = False
        # The number of a file, and the log's end in front of which passes of older ones ended.
        self._ended: list[tuple[int, int]] = []

    def open(self) -> list[Pass]:
        """What all files tell, in no order; from now on passes can be noted.

        Raises:
            OSError: they cannot be read or made.
        """
        passes = [
            Pass(*_NOTE.unpack(payload))
            for kind, payload in self._journal.read()
            if kind == PASS and len(payload) == _NOTE.size
        ]
        self._journal.mend()
        for path in self._bare_files():
            data = path.read_bytes()
            whole = len(data) - len(data) % _NOTE.size
            passes += [Pass(*note) for note in _NOTE.iter_unpack(data[:whole])]
        self._is_open = True
        return passes

    def _bare_files(self) -> list[Path]:
        paths = [self._directory / name for name in _BARE_FILES]
        return [path for path in paths if path.exists()]

    def note(self, about: Pass) -> bool:
        """Note a pass before it is written; whether there is anything to sync.

        A note that cannot be made costs a repetition.
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
        """Go on in another file: delayOffset.json is to be saved.

        What is noted by now ends in front of *end_offset* of the log. Raises OSError.
        """
        is_empty = self._journal.size_bytes == 0
        if not self._is_open or (is_empty and (self._ended or not self._bare_files())):
            return
        self._journal.rotate()
        self._ended.append((self._journal.number, end_offset))

    def forget(self, settled_offset: int) -> None:
        """Delete what is told of passes in front of *settled_offset*: the saved file has it.

        Blocks: for a thread. Raises OSError.
        """
        over = [number for number, end in self._ended if end <= settled_offset]
        if not over:
            return
        self._journal.forget_before(over[-1])
        disk.remove_files(self._bare_files())
        self._ended = [ended for ended in self._ended if ended[0] > over[-1]]

    def close(self) -> None:
        """Close the files."""
        self._is_open = False
        self._journal.close()
