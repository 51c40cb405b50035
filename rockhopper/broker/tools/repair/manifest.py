"""The contents of a backup: ``manifest.json``, a line of JSON and one with its CRC-32.

    log/<20-digit offset>-<line>    a file of the commit log, as far as it has been copied
    objects/<sha-256>               contents of tables and notes, compressed; shared by points
    manifest.json, manifest.json.bak

A *point* is the store at one time: the log up to an offset, and the tables. All points of a *line*
share the log files, which only grow. A new line begins where a store's log differs from the copy,
for example after a power cut lost its end. It shares the files before that place.

The manifest is replaced after each durably copied piece of the log, and the point is added last. So
an interrupted backup continues where it stopped.
"""

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rockhopper.broker.store.files import checked_line, disk
from rockhopper.broker.store.files.errors import CorruptFileError, StoreError
from rockhopper.paths import check_relative

FILE_NAME = "manifest.json"
FORMAT = 1
_SEGMENT_NAME = re.compile(r"\d+-\d+")
_OBJECT_NAME = re.compile(r"[0-9a-f]+")


@dataclass
class CopiedLogFile:
    """A log file: its first *size* bytes are copied, and *crc* is their CRC-32."""

    base: int
    name: str
    size: int = 0
    crc: int = 0

    @property
    def end(self) -> int:
        """The log offset after it."""
        return self.base + self.size


@dataclass
class Point:
    """The store at one time."""

    number: int
    time_ms: int
    line: int
    log_start: int
    log_end: int
    last_store_time_ms: int
    tables: dict[str, list[Any]]
    """Path below the root -> object and size."""
    ends: str
    """The object with the ends of the queues."""
    sizes: list[int]
    """File sizes of log, queues and batch queues; index slots and entries; 0: unknown."""


@dataclass
class BackupManifest:
    """The whole backup."""

    source: str
    lines: dict[str, list[CopiedLogFile]] = field(default_factory=lambda: {"1": []})
    points: list[Point] = field(default_factory=list)
    origin: str | None = None
    """The head of the first record that the store is known to have had, in hex."""

    @property
    def line(self) -> int:
        """The current line."""
        return max(map(int, self.lines))

    @property
    def segments(self) -> list[CopiedLogFile]:
        """The log files of the current line, oldest first."""
        return self.lines[str(self.line)]

    def point(self, number: int | None) -> Point:
        """Return a point by its number, or the newest. Raises StoreError."""
        if not self.points:
            raise StoreError("the backup has no point yet: its first run was cut off; run it again")
        if number is None:
            return self.points[-1]
        for point in self.points:
            if point.number == number:
                return point
        known = ", ".join(str(point.number) for point in self.points[-20:])
        raise StoreError(f"the backup has no point {number}; it has {known}")

    def save(self, directory: Path) -> None:
        """Replace the manifest durably. On OSError, the old one remains."""
        data = checked_line.encode({"format": FORMAT, **asdict(self)})
        disk.write_atomically(directory / FILE_NAME, data, backup=data)


def load(directory: Path) -> BackupManifest | None:
    """Load the manifest of a backup; return None if there is none.

    Raises:
        CorruptFileError: it is damaged, and its copy as well.
        StoreError: a later release has written it.
        OSError: it cannot be read.
    """
    path = directory / FILE_NAME
    damages = []
    for each in (path, disk.backup_path(path)):
        try:
            return _manifest_of(checked_line.decode(each.read_bytes()))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError) as error:
            damages.append(str(error))
    if damages:
        raise CorruptFileError(
            path,
            f"the manifest of the backup and its copy are damaged ({damages[0]}): restore it "
            "from a copy of the backup, or start a new backup in another directory",
        )
    return None


def _manifest_of(document: Any) -> BackupManifest:
    if document["format"] != FORMAT:
        raise StoreError("a later release wrote this backup: use that release")
    lines = {
        line: [CopiedLogFile(**segment) for segment in segments]
        for line, segments in document["lines"].items()
    }
    points = [Point(**point) for point in document["points"]]
    for segment in (each for segments in lines.values() for each in segments):
        _check_name(_SEGMENT_NAME, segment.name)
    for point in points:
        _check_name(_OBJECT_NAME, point.ends)
        for path, (name, _) in point.tables.items():
            check_relative(path)
            _check_name(_OBJECT_NAME, name)
    return BackupManifest(document["source"], lines, points, document.get("origin"))


def _check_name(form: re.Pattern[str], name: str) -> None:
    """Raise ValueError for a name that no backup uses."""
    if not form.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a backup file")
