"""The journal of pop consumption: what must be known again after a crash of the process.

Files ``<store>/rockhopper/pop/<20-digit number>``, read in the order of their numbers.  Each holds
records, big-endian, back to back:

    offset  size  field
         0     4  size of the payload
         4     4  CRC-32 of kind and payload
         8     1  kind, see lanes.py
         9     …  payload

Records are appended with one write(2) for each request and never synced on the way: a crash of the
process loses nothing, a power cut the newest ones, and then messages repeat (the committed offset
of a group is never beyond its oldest message that is not settled).

To get rid of what has become obsolete, the owner begins another file (``rotate``), writes all that
still counts into it while new records go there too, and has the older files deleted
(``forget_older``) when the new one is on disk.

A damaged tail is cut off at the start and kept as ``<number>.damaged``.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import structlog

from broker.store import disk
from broker.store.layout import file_name

log = structlog.get_logger("broker.pop")

_HEAD = struct.Struct(">IIB")


def encode_record(kind: int, payload: bytes) -> bytes:
    """The bytes of one record."""
    return _HEAD.pack(len(payload), crc32(payload, crc32(bytes((kind,)))), kind) + payload


def decode_records(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """(kind, payload, end) of each record up to the first that is damaged or not whole."""
    position = 0
    while position + _HEAD.size <= len(data):
        size, crc, kind = _HEAD.unpack_from(data, position)
        start = position + _HEAD.size
        payload = data[start : start + size]
        if len(payload) < size or crc32(payload, crc32(bytes((kind,)))) != crc:
            return
        position = start + size
        yield kind, payload, position


class PopJournal:
    """The files.  No file exists until the first record is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1
        self._number = 0
        self.size_bytes = 0
        """The bytes in the newest file."""

    def read(self) -> Iterator[tuple[int, bytes]]:
        """(kind, payload) of every record; afterwards new ones go behind the last.  OSError."""
        for path in self._files():
            data = path.read_bytes()
            end = 0
            for kind, payload, record_end in decode_records(data):
                end = record_end
                yield kind, payload
            if end < len(data):
                self._cut(path, data, end)
            self._number, self.size_bytes = int(path.name), end

    def _files(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return sorted(path for path in self._directory.iterdir() if path.name.isdigit())

    def _cut(self, path: Path, data: bytes, end: int) -> None:
        aside = path.with_name(path.name + ".damaged")
        log.warning(
            "the end of a pop journal is damaged: messages may be delivered again",
            file=str(path),
            cut_bytes=len(data) - end,
            kept_as=aside.name,
        )
        disk.write_atomically(aside, data[end:])
        os.truncate(path, end)

    def append(self, data: bytes) -> None:
        """Write records, all or none of them.  Raises OSError."""
        if self._descriptor < 0:
            self._open()
        descriptor = self._descriptor
        try:
            disk.write_fully(descriptor, self.size_bytes, data)
        except OSError:
            # What follows must not stand behind half a record.
            os.ftruncate(descriptor, self.size_bytes)
            raise
        self.size_bytes += len(data)

    def _open(self) -> None:
        for changed in disk.make_directories(self._directory):
            disk.sync_directory(changed)
        path = self._directory / file_name(self._number)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def rotate(self) -> None:
        """Let further records go to another file.  Raises OSError."""
        number, size_bytes, descriptor = self._number, self.size_bytes, self._descriptor
        self._number, self.size_bytes = number + 1, 0
        try:
            self._open()
        except OSError:
            self._number, self.size_bytes, self._descriptor = number, size_bytes, descriptor
            raise
        if descriptor >= 0:
            os.close(descriptor)

    def forget_older(self) -> None:
        """Delete all files but the newest, once that is on disk.  Any thread; blocks.  OSError."""
        number = self._number
        disk.sync_file(self._descriptor)
        disk.sync_directory(self._directory)
        disk.remove_files(path for path in self._files() if int(path.name) < number)

    def close(self) -> None:
        """Close the newest file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
