"""``store backup``: copy a store, stopped or running; each run adds a point.

The order of the steps makes a point consistent. First the run reads the tables, notes and queue
ends. Then it determines the end of the log, and copies the log up to there. So the copied log
contains everything that the tables and notes refer to, and everything that was acknowledged before
the run began. At the end the run reads the topics again, because the log may have messages of a
topic that was created during the run.
"""

import fcntl
import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rockhopper.broker.settings.store_layout import file_name
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.disk import backup_path
from rockhopper.broker.store.files.errors import CorruptFileError, StoreError
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.log.log_scan import last_store_time_ms, record_start
from rockhopper.broker.store.recovering import log_identity
from rockhopper.broker.tools.repair import manifest as manifests
from rockhopper.broker.tools.repair import recovered
from rockhopper.broker.tools.repair.copying import companions, copy_range, crc_of
from rockhopper.broker.tools.repair.manifest import BackupManifest, CopiedLogFile, Point
from rockhopper.broker.tools.repair.objects import Objects, snapshot
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.broker.tools.table_checking import unreadable_tables

_SAVE_EVERY_BYTES = 256 << 20
# Files that an interrupted first run may have left.
_OWN_NAMES = {"log", "objects", *(f"{manifests.FILE_NAME}{end}" for end in (".tmp", ".bak.tmp"))}
_OWN_NAMES |= {f"{manifests.FILE_NAME}.bak"}
_COMPARED_BYTES = 64 << 10
_NEWER_COUNTS = ("config/topics.json", "config/subscriptionGroup.json")


class BackupPlan(NamedTuple):
    """The plan of a run."""

    new_bytes: int
    new_from: int
    """The log offset of the first new byte."""
    log_end: int
    differs_at: int | None
    """The log offset from which the log differs from the copy, so that a new line begins."""
    is_gap: bool
    """Whether the reason is that older parts of the log expired before they were copied."""
    unreadable: dict[str, bytes | None]
    """The result of ``unreadable_tables``; sound copies replace the tables."""

    @property
    def lost_tables(self) -> list[str]:
        """The names of unreadable tables without a sound copy."""
        return [name for name, copy in self.unreadable.items() if copy is None]


class Backup:
    """The backup in a directory."""

    def __init__(self, directory: Path) -> None:
        """Read its manifest, if there is one. Raises CorruptFileError, StoreError, OSError."""
        self.directory = directory
        self.log = directory / "log"
        self.objects = Objects(directory / "objects")
        found = manifests.load(directory)
        self.is_new = found is None
        self.manifest = found or BackupManifest("")

    def run_locked(
        self,
        view: StoreView,
        now_ms: int,
        progress: Callable[[int], None],
        *,
        prune: bool = False,
    ) -> tuple[Point, int]:
        """Add a point, then *prune*; return the point, and the number of pruned files.

        Raises:
            StoreError: another run is writing, or the backup is damaged or of another store.
            OSError: the disk is full or failing. The next run continues.
        """
        with self._lock():
            # Another run may have ended since the manifest was read.
            self.manifest = manifests.load(self.directory) or BackupManifest("")
            point = self.run(view, now_ms, progress)
            self.is_new = False
            return point, self.prune(view.log.min_offset) if prune else 0

    @contextmanager
    def _lock(self) -> Iterator[None]:
        for directory in (self.directory, self.log, self.directory / "objects"):
            disk.make_directories_durably(directory)
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise StoreError(
                f"another run is writing to the backup in {self.directory}: wait until it ends"
            ) from None
        finally:
            os.close(descriptor)

    def _check_directory(self, view: StoreView) -> None:
        others = set(os.listdir(self.directory)) - _OWN_NAMES if self.directory.is_dir() else set()
        if self.is_new and others:
            raise StoreError(
                f"{self.directory} is not empty and is not a backup: name an empty directory, "
                "a new one, or that of the backup"
            )
        if self.directory.resolve().is_relative_to(view.layout.root.resolve()):
            raise StoreError(f"{self.directory} is inside the store: name a directory elsewhere")

    def plan(self, view: StoreView) -> BackupPlan:
        """Return what a run would copy.

        Raises:
            StoreError: the directory has another store's backup, or is not suitable.
            OSError: something cannot be read.
        """
        self._check_directory(view)
        is_gap = self._is_behind_a_gap(view)
        differs_at = view.log.min_offset if is_gap else self._first_difference(view)
        end = view.log_end()
        known = {
            segment.base: segment.size
            for segment in self.manifest.segments
            if differs_at is None or segment.base < differs_at
        }
        new = [
            (start, stop)
            for file in view.log.files
            if (start := file.base_offset + known.get(file.base_offset, 0))
            < (stop := min(file.end_offset, end))
        ]
        new_bytes = sum(stop - start for start, stop in new)
        return BackupPlan(
            new_bytes,
            new[0][0] if new else end,
            end,
            differs_at,
            is_gap,
            unreadable_tables(_tables(view)),
        )

    def _is_behind_a_gap(self, view: StoreView) -> bool:
        """Return whether the log begins after the end of the copy. Raises StoreError."""
        segments = self.manifest.segments
        present = {file.base_offset for file in view.log.files}
        if not segments or not present or not present.isdisjoint(each.base for each in segments):
            return False
        # The remaining log files do not identify the store.
        origin = self._origin(view)
        start, end = view.log.min_offset, segments[-1].end
        if start < end or origin is None or origin != self.manifest.origin:
            raise self._is_of_another_store(view)
        return start > end

    def _origin(self, view: StoreView) -> str | None:
        origin = log_identity.origin_of(view.layout, view.log)
        return None if origin is None else origin.hex()

    def _first_difference(self, view: StoreView) -> int | None:
        """Return the start of the first log file that differs from its copy."""
        present = {file.base_offset: file for file in view.log.files}
        common = [segment for segment in self.manifest.segments if segment.base in present]
        for segment in common:
            file = present[segment.base]
            try:
                if self._continues(segment, file, view.log_end()):
                    continue
                is_alike = self._begins_alike(segment, file)
            except FileNotFoundError:
                continue  # It has expired in the meantime.
            if segment is common[0] and not is_alike:
                raise self._is_of_another_store(view)
            return segment.base
        return None

    def _is_of_another_store(self, view: StoreView) -> StoreError:
        return StoreError(
            f"the backup in {self.directory} belongs to another store ({self.manifest.source}) "
            f"than {view.layout.root}, or too little of the log is left to compare them: name "
            "another directory"
        )

    def _begins_alike(self, segment: CopiedLogFile, file: MappedFile) -> bool:
        size_bytes = min(segment.size, 88)
        copied = (self.log / segment.name).read_bytes()[:size_bytes]
        return file.read(0, size_bytes) == copied

    def _continues(self, segment: CopiedLogFile, file: MappedFile, log_end: int) -> bool:
        """Return whether the log still contains the copy of a file, by comparing the copy's end."""
        path = self.log / segment.name
        size_bytes = path.stat().st_size if path.exists() else 0
        if size_bytes < segment.size:
            raise CorruptFileError(
                path,
                f"the backup has {size_bytes} bytes of this file, but {segment.size} were "
                "copied: restore the file, or start a new backup in another directory",
            )
        if segment.end > log_end or segment.size > file.size_bytes:
            return False
        start = max(segment.size - _COMPARED_BYTES, 0)
        with path.open("rb") as copied:
            copied.seek(start)
            return copied.read(segment.size - start) == file.read(start, segment.size)

    # Copying.

    def run(self, view: StoreView, now_ms: int, progress: Callable[[int], None]) -> Point:
        """Add a point. Raises StoreError, OSError: the next run continues."""
        root = view.layout.root
        self.manifest.source = str(root.resolve())
        ends = recovered.ends_to_keep(view)
        named = _tables(view)
        if view.is_live:
            view.load_log()
        plan = self.plan(view)
        if plan.differs_at is not None:
            self._begin_line(0 if plan.is_gap else plan.differs_at)
        self.manifest.origin = self._origin(view) or self.manifest.origin
        self._copy_log(view, plan.log_end, progress)
        named = _drop_newest(view, named) | _name_files(view, lambda: _newest_counts(view))
        sound = {name: copy for name, copy in unreadable_tables(named).items() if copy is not None}
        named |= sound
        newest = next(filter(None, map(last_store_time_ms, reversed(view.log.files))), 0)
        shape = view.geometry
        point = Point(
            number=max((point.number for point in self.manifest.points), default=0) + 1,
            time_ms=now_ms,
            line=self.manifest.line,
            log_start=min((segment.base for segment in self.manifest.segments), default=0),
            log_end=plan.log_end,
            last_store_time_ms=newest,
            tables={
                name: [self.objects.store_object(data), len(data)] for name, data in named.items()
            },
            ends=self.objects.store_object(_encode_ends(ends)),
            sizes=[*recovered.file_sizes(view), *(shape or (0, 0))],
        )
        self.manifest.points.append(point)
        self.manifest.save(self.directory)
        return point

    def _begin_line(self, differs_at: int) -> None:
        kept = [segment for segment in self.manifest.segments if segment.base < differs_at]
        self.manifest.lines[str(self.manifest.line + 1)] = kept
        self.manifest.save(self.directory)

    def _copy_log(self, view: StoreView, end: int, progress: Callable[[int], None]) -> None:
        known = {segment.base: segment for segment in self.manifest.segments}
        for file in view.log.files:
            segment = known.get(file.base_offset)
            if segment is None:
                name = f"{file_name(file.base_offset)}-{self.manifest.line}"
                segment = CopiedLogFile(file.base_offset, name)
                self.manifest.segments.append(segment)
                self.manifest.segments.sort(key=lambda each: each.base)
            stop = min(file.end_offset, end) - file.base_offset
            if segment.size < stop:
                try:
                    self._copy_file(file.path, segment, stop, progress)
                except FileNotFoundError:
                    if not view.is_live:
                        raise
                    # The file has expired in the meantime, and so have all files before it.
                    self.manifest.segments.remove(segment)
                    self._begin_line(0)
        disk.sync_directory(self.log)

    def _copy_file(
        self, source: Path, segment: CopiedLogFile, stop: int, progress: Callable[[int], None]
    ) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.log / segment.name, flags, 0o644)
        try:
            os.ftruncate(descriptor, segment.size)
            crc, unsaved = segment.crc, 0

            def write(position: int, data: bytes) -> None:
                nonlocal crc, unsaved
                disk.write_fully(descriptor, position, data)
                crc = zlib.crc32(data, crc)
                unsaved += len(data)

            for at in copy_range(source, segment.size, stop, write):
                progress(segment.base + at)
                if unsaved >= _SAVE_EVERY_BYTES or at == stop:
                    disk.sync_file(descriptor)
                    disk.sync_directory(self.log)
                    segment.size, segment.crc, unsaved = at, crc, 0
                    self.manifest.save(self.directory)
        finally:
            os.close(descriptor)

    # Contents.

    def verify(self, progress: Callable[[int], None]) -> list[str]:
        """Read the whole backup; return differences from the copied data as sentences.

        Raises OSError.
        """
        wrong = []
        done = 0
        segments = {s.name: s for line in self.manifest.lines.values() for s in line}
        for segment in segments.values():
            path = self.log / segment.name
            try:
                is_whole = path.stat().st_size >= segment.size
                is_alike = is_whole and crc_of(path, segment.size) == segment.crc
            except FileNotFoundError:
                is_alike = False
            if not is_alike:
                wrong.append(f"{path} differs from what was copied")
            done += segment.size
            progress(done)
        for name in sorted(self._list_used_objects()):
            try:
                self.objects.get(name)
            except (CorruptFileError, FileNotFoundError) as error:
                wrong.append(str(error))
        return wrong

    def _list_used_objects(self) -> set[str]:
        used = {point.ends for point in self.manifest.points}
        return used | {kept[0] for point in self.manifest.points for kept in point.tables.values()}

    def prune(self, log_start: int) -> int:
        """Remove copies of log files that the store no longer has; return their number.

        Points without any remaining log are removed as well. Raises OSError.
        """
        manifest = self.manifest
        _drop_before(manifest, log_start)
        manifest.save(self.directory)
        used = {segment.name for segments in manifest.lines.values() for segment in segments}
        removed = disk.remove_files([path for path in self.log.iterdir() if path.name not in used])
        self.objects.keep_only(self._list_used_objects())
        return removed


def damage_from(view: StoreView, start: int) -> int:
    """Count the damaged places of the log from *start* on, except missing files.

    Raises OSError.
    """
    first = record_start(view.log, max(start, view.log.min_offset))
    for _ in view.records(first, take=lambda found: True):
        pass
    missing = view.missing
    return sum(hole.end > start and (hole.start, hole.end) not in missing for hole in view.holes)


def _tables(view: StoreView) -> dict[str, bytes]:
    return _name_files(view, lambda: companions(view.layout))


def _name_files(view: StoreView, find: Callable[[], list[Path]]) -> dict[str, bytes]:
    root = view.layout.root
    return {path.relative_to(root).as_posix(): data for path, data in snapshot(find).items()}


def _drop_newest(view: StoreView, named: dict[str, bytes]) -> dict[str, bytes]:
    """Return the tables without topics and groups, whose newer files replace file and journal."""
    root = view.layout.root
    journals = [view.layout.table_changes(root / name) for name in _NEWER_COUNTS]
    return {name: data for name, data in named.items() if (root / name).parent not in journals}


def _newest_counts(view: StoreView) -> list[Path]:
    """Return the files and journals of topics and groups, which the run reads again at its end."""
    found = []
    for name in _NEWER_COUNTS:
        path = view.layout.root / name
        changes = view.layout.table_changes(path)
        found += [path, backup_path(path), *(changes.iterdir() if changes.is_dir() else ())]
    return [path for path in found if path.is_file()]


def _encode_ends(ends: dict[tuple[str, int], int]) -> bytes:
    rows = sorted([topic, queue_id, end] for (topic, queue_id), end in ends.items())
    return json.dumps(rows, ensure_ascii=False).encode("utf-8", "surrogateescape")


def decode_ends(data: bytes) -> dict[tuple[str, int], int]:
    """Decode the ends of queues, by topic and queue id."""
    return {(topic, queue_id): end for topic, queue_id, end in json.loads(data)}


def _drop_before(manifest: BackupManifest, log_start: int) -> None:
    """Drop the log before *log_start*, and all points without any log, except the newest point."""
    newest = manifest.points[-1] if manifest.points else None
    for line, segments in manifest.lines.items():
        manifest.lines[line] = [segment for segment in segments if segment.end > log_start]
    manifest.points = [
        point for point in manifest.points if point.log_end > log_start or point is newest
    ]
    lines = {str(point.line) for point in manifest.points} | {str(manifest.line)}
    manifest.lines = {line: kept for line, kept in manifest.lines.items() if line in lines}
    for point in manifest.points:
        point.log_start = max(point.log_start, log_start)
