"""Files of journal entries (protocol/store/journal_records.py), which the broker appends to.

An append is whole or not at all, however the disk fails. Records that a power cut tore off, or that
are damaged, are logged and copied to the quarantine before the file is rewritten. (Pop journals of
builds before 0.2.0 hold each record once, and are read in the same way.)
"""

import os
from pathlib import Path

import structlog

from rockhopper.broker.store.files import disk
from rockhopper.protocol.store.journal_records import RecordsRead, decode_records, encode_record

log = structlog.get_logger("broker.store")


RECORDS_MODE = 0o644


def read_records(path: Path, *, strict: bool = False) -> RecordsRead:
    """Return the records of a file; with *strict* none after a lost one.

    Changes nothing; ``repair`` does. Raises OSError.
    """
    read = decode_records(path.read_bytes())
    return read._replace(records=read.records[: read.sound_count]) if strict else read


def repair(
    path: Path,
    read: RecordsRead,
    quarantine: Path,
    *,
    what: str,
    mode: int = disk.DEFAULT_FILE_MODE,
) -> int:
    """Rewrite a damaged file with the records *read* from it; return its new size.

    Its old content is copied to *quarantine* first. *what* describes the file in the log.

    Raises:
        OSError: the file is unchanged.
    """
    if not read.damages and not read.is_lossy:
        return read.size_bytes
    kept_as = disk.copy_aside(path, quarantine / f"{path.parent.name}-{path.name}")
    tell = log.error if read.is_lossy else log.warning
    tell(
        "a record file is damaged: entries that could not be read are lost"
        if read.is_lossy
        else "a record file was damaged, and has been repaired from its second copies",
        what=what,
        file=str(path),
        damaged_at=read.damages[0][0] if read.damages else None,
        damaged_bytes=sum(end - start for start, end in read.damages),
        records=len(read.records),
        kept_as=str(kept_as),
    )
    data = b"".join([encode_record(*record) for record in read.records])
    disk.write_atomically(path, data, mode=mode)
    return len(data)


class RecordFile:
    """A file of records, open for appending after *size_bytes*."""

    def __init__(self, path: Path, size_bytes: int = 0, mode: int = disk.DEFAULT_FILE_MODE) -> None:
        """Open *path*, or create it. Raises OSError."""
        self.path = path
        self.size_bytes = size_bytes
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, mode & RECORDS_MODE)

    def append(self, data: bytes) -> None:
        """Write records, all of them or none. Raises OSError."""
        disk.append_whole(self._descriptor, self.size_bytes, data)
        self.size_bytes += len(data)

    def cut(self, size_bytes: int) -> None:
        """Remove what was appended since the file had *size_bytes*. Raises OSError."""
        if size_bytes < self.size_bytes:
            os.ftruncate(self._descriptor, size_bytes)
            self.size_bytes = size_bytes

    def close(self) -> None:
        os.close(self._descriptor)
