"""A table that lives in memory and is kept in one JSON file under ``config/`` of the store.

The file is RocketMQ's: fastjson's dialect, pretty printed, with a ``dataVersion``. It is replaced
atomically, and ``<name>.bak`` holds the same with a seal (table_seal.py), by which rot in either is
noticed, at the next start or by the scrub. Writing happens in a thread, and changes that come
while a write is running share the next one.

Of a large table that has a journal (table_journal.py) a change costs what the change is: it is
appended there, and the file is written when the journal has become as long, some minutes after the
first change in it, and at the end. Until then the file is behind.

At load, a file that is missing or empty gives way to its backup; so does a damaged one, which is
kept aside as ``<name>.damaged`` before the first save. When neither can be read, load refuses:
starting with an empty table would lose what the operator can still repair.

A file that can be read and is not as it was saved counts: somebody may have edited it. What
differs is named in the log, and what had been saved is kept aside as ``<name>.saved``.
"""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import structlog

from rockhopper.broker.kernel.tables.table_journal import TableJournal
from rockhopper.broker.kernel.tables.table_seal import Saved, differences, is_damaged, seal, unseal
from rockhopper.broker.server.loop.clock import wall_clock_ms
from rockhopper.broker.store.files.descriptors import descriptor_needed
from rockhopper.broker.store.files.disk import (
    DEFAULT_FILE_MODE,
    backup_path,
    write_atomically,
)
from rockhopper.broker.store.files.errors import CorruptFileError, StoreError, TooManyOpenFilesError
from rockhopper.protocol import fastjson
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.store.table_changes import TableChange, fingerprint
from rockhopper.tasks import run_in_background

log = structlog.get_logger("broker.tables")

SAVE_RETRY_S = 5.0
JOURNALED_FROM_BYTES = 64 << 10
"""A smaller file is written with each change."""
NAMED_MAX = 1000
"""With more changes at once the file is written: in a thread, which a journal's entries are not."""
REWRITE_AFTER_S = 300.0
"""So long the file may be behind the journal."""
DIFFERENCES_NAMED_MAX = 50
SAVE_ERRORS = OSError, StoreError
"""What ``saved`` raises."""

JsonObject = dict[str, Any]


class DataVersion:
    """How often and when a table changed; RocketMQ compares it to notice changes."""

    __slots__ = ("counter", "state_version", "timestamp_ms")

    def __init__(self, counter: int = 0, timestamp_ms: int = 0, state_version: int = 0) -> None:
        self.counter = counter
        self.timestamp_ms = timestamp_ms
        self.state_version = state_version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DataVersion) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def advance(self, now_ms: int) -> None:
        """Count one change."""
        self.counter += 1
        self.timestamp_ms = now_ms

    def to_json(self) -> dict[str, int]:
        """The object as it stands in files and bodies."""
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp_ms,
        }

    @classmethod
    def from_json(cls, value: object) -> "DataVersion":
        """The version in *value*; what is missing is 0."""
        if not isinstance(value, dict):
            return cls()
        counter, timestamp_ms, state_version = (
            number if isinstance(number := value.get(name), int) else 0
            for name in ("counter", "timestamp", "stateVersion")
        )
        return cls(counter, timestamp_ms, state_version)


class JsonTable(ABC):
    """Loading and saving; what the table holds is its subclass's business.

    Methods belong to the event loop's thread, except ``to_json``: the writing thread calls it too,
    so it must copy each dict with ``d.copy()``, which is atomic, before it walks through it. A list
    of the items is not: a tuple is made of each, and the collection of garbage that this may begin
    gives the loop its turn.
    """

    file_mode = DEFAULT_FILE_MODE
    """Whom the files let in, but for the umask."""
    refuses_lost_changes = False
    """Whether a start is refused when the journal has lost a change, such as a denial."""
    without = ""
    """What starting with an empty table costs, for who has to decide that."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.path = path
        self.version = DataVersion(0, now_ms())
        self.save_failure: OSError | None = None
        self._now_ms = now_ms
        self._changes = 0
        self._saved_changes = 0
        self.saving: asyncio.Task[None] | None = None
        self._write_lock = threading.Lock()
        self._aside: dict[str, bytes] = {}
        # Of the file, and of what both files hold as long as that is known.
        self._file_checksum = 0
        self._checksums: tuple[int, int] | None = None
        self._is_saving_on = False
        self.changes_journal: TableJournal | None = None
        # What the journal lacks, and whether that is not all that the file lacks.
        self._named: dict[str, None] = {}
        self._is_to_be_written = False
        self._file_sha = ""
        self._file_size_bytes = 0
        self._rewriting: asyncio.TimerHandle | None = None
        self.altered_count = 0
        """How many files were found other than they had been saved since the start."""
        self.on_entry: Callable[[str], None] = _ignore_entry
        """Called with the name of an entry that has changed, or has gone."""
        self.confirmed: Callable[[], Awaitable[None]] | None = None
        """What ``saved`` waits for besides the disk: the other replicas of a set."""

    def entry(self, name: str) -> Any:
        """One entry as JSON has it, None where there is none; of tables that call ``on_entry``."""
        raise NotImplementedError

    def take_entry(self, name: str, value: Any) -> None:
        """Have *value* for an entry, as ``entry`` gave it elsewhere, or no such entry for None.

        Raises:
            ValueError: it makes no sense, and nothing is changed.
        """
        raise NotImplementedError

    def _replay(self, name: str, value: Any) -> None:
        """As ``take_entry`` at a start: nobody is told, and nothing is saved."""
        raise NotImplementedError

    @abstractmethod
    def to_json(self) -> JsonObject:
        """The whole table as its file holds it. Any thread."""

    @abstractmethod
    def from_json(self, document: JsonObject) -> None:
        """Take the table from *document*, all or nothing. Raises ValueError."""

    def load(self) -> bool:
        """Read the file or its backup; False when there is neither. Writes nothing.

        Raises:
            CorruptFileError: neither file can be read as this table.
            OSError: the file cannot be opened.
        """
        damage: str | None = None
        backup = backup_path(self.path)
        file, copy = _content_of(self.path), _content_of(backup)
        saved = None if copy is None else unseal(copy)
        if file is not None:
            self._file_checksum = crc32(file)
        for path, data in ((self.path, file), (backup, copy if saved is None else saved.content)):
            if data is None:
                continue
            try:
                self._take(data)
                if path is self.path and saved is not None:
                    self._compare(data, saved)
            except ValueError as error:
                damage = damage or f"{path.name}: {error}"
                self._aside.setdefault(".damaged", data)
                continue
            self._note_loaded(path, data, copy, saved, damage)
            if self.changes_journal is not None:
                self._read_journal(self.changes_journal, data, saved)
            return True
        if damage is not None:
            raise CorruptFileError(self.path, self._advice(damage, has_backup=backup.exists()))
        return False

    def _note_loaded(
        self, path: Path, data: bytes, copy: bytes | None, saved: Saved | None, damage: str | None
    ) -> None:
        if path is not self.path:
            log.warning("table read from its backup", file=str(self.path), reason=damage)
            self.altered_count += damage is not None
        elif copy is not None and saved is None and is_damaged(copy):
            backup = backup_path(self.path)
            log.warning("the backup of a table is damaged: writing a new one", file=str(backup))
            self.altered_count += 1
        if copy is not None and saved is not None and path is self.path and data == saved.content:
            self._checksums = self._file_checksum, crc32(copy)
        else:
            self.mark_changed()

    def _read_journal(self, journal: TableJournal, data: bytes, saved: Saved | None) -> None:
        contents = [data] if saved is None else [data, saved.content]
        self._file_sha, self._file_size_bytes = fingerprint(data), len(data)
        try:
            changes = journal.read(map(fingerprint, contents))
            for change in changes:
                self._replay(change.name, change.value)
        except (ValueError, KeyError, TypeError) as error:
            reason = f"the journal of its changes makes no sense: {error}"
            raise CorruptFileError(self.path, reason) from None
        if journal.is_rotten and self.refuses_lost_changes:
            raise CorruptFileError(
                self.path,
                "the journal of its changes is damaged, and some are lost; move "
                f"{journal.directory} away to start with what the file holds, and check all rights",
            )
        if changes:
            self.version = DataVersion.from_json(changes[-1].version)
            log.info(
                "table changes since its last save restored from its journal",
                file=str(self.path),
                changes=len(changes),
            )
        if journal.has_files:
            self.mark_changed()

    def _compare(self, file: bytes, saved: Saved) -> None:
        """Name what differs in *file* from what was saved. Raises ValueError: that counts."""
        if file == saved.content or self._file_checksum == saved.before:
            return
        different = self._differences(saved.content, file)
        if self._refuses_altered(saved.content):
            raise ValueError(f"it is not as it was saved: {'; '.join(different)}")
        self.altered_count += 1
        self._aside[".saved"] = saved.content
        log.warning(
            "a table differs from what was saved, and is used as it is: if nobody edited it, "
            "correct the differences and check the disk for corruption",
            file=str(self.path),
            different=different,
        )

    def _refuses_altered(self, saved: bytes) -> bool:
        """Whether a file that is not as it was *saved* gives way to its backup."""
        return False

    def _differences(self, saved: bytes, found: bytes) -> list[str]:
        """What differs, for people. Raises ValueError: *found* cannot be read."""
        every = differences(_decode(saved), _decode(found))
        named = list(islice(every, DIFFERENCES_NAMED_MAX))
        if more := sum(1 for _ in every):
            named.append(f"and {more} more")
        return named or ["nothing but its form"]

    def _advice(self, damage: str, *, has_backup: bool) -> str:
        unreadable = "neither the file nor its backup can be read"
        if not has_backup:
            unreadable = "the file cannot be read and has no backup yet"
        away = "move both away" if has_backup else "move it away"
        cost = self.without and f": {self.without}"
        return f"{unreadable} ({damage}); repair it, or {away} to start with an empty table{cost}"

    def _take(self, data: bytes) -> None:
        """Decode *data*. Raises ValueError for whatever is wrong with it."""
        document = _decode(data)
        try:
            self.from_json(document)
        except (ProtocolError, RecursionError, TypeError, AttributeError) as error:
            raise ValueError(str(error)) from None
        self.version = DataVersion.from_json(document.get("dataVersion"))

    def take_copy(self, data: bytes) -> None:
        """Take the table as another broker has it, from its file or its answer; it is saved soon.

        Raises:
            ValueError: it cannot be read as this table, which stays as it is.
        """
        self._take(data)
        self.mark_changed()
        self.save_soon()

    @property
    def is_saved(self) -> bool:
        """Whether the file holds every change."""
        return self._saved_changes == self._changes

    @property
    def is_saving_on(self) -> bool:
        """Whether changes are written at all."""
        return self._is_saving_on

    def start_saving(self) -> None:
        """From now on write changes; before, nothing may touch a store that is not locked yet."""
        self._is_saving_on = True
        self.save_soon()

    def stop_saving(self) -> None:
        """Write nothing more: the directory may be another broker's by now."""
        self._is_saving_on = False
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._rewriting is not None:
            self._rewriting.cancel()
            self._rewriting = None

    def mark_changed(self, name: str | None = None) -> None:
        """Note that the file is behind; ``save_soon`` or ``saved`` writes it.

        *name* is of the entry that changed, if nothing else did.
        """
        self._changes += 1
        if name is None or self.changes_journal is None:
            self._is_to_be_written = True
        else:
            self._named[name] = None

    def fold_journal(self) -> None:
        """Have the file hold what only the journal tells, soon."""
        self._stop_timer()
        if self.changes_journal is not None and self.changes_journal.size_bytes:
            self.mark_changed()
            self.save_soon()

    def save_soon(self) -> None:
        """Start writing in a thread unless that is under way or nothing changed."""
        if self._is_saving_on and self.saving is None and not self.is_saved:
            self.saving = run_in_background(self._save_in_thread(), "saving a table")

    async def saved(self) -> None:
        """Return when every change made until now is durable, if saving is on.

        Raises:
            OSError: the disk does not take it.
            StoreError: the replicas of a set did not confirm it in time.
        """
        await self.on_disk()
        if self.confirmed is not None:
            await self.confirmed()

    async def on_disk(self) -> None:
        """As ``saved``, without the other replicas. Raises OSError."""
        changes = self._changes
        while self._is_saving_on and self._saved_changes < changes:
            self.save_soon()
            if self.saving is not None:
                await asyncio.shield(self.saving)
            if self.save_failure is not None:
                raise self.save_failure

    def save(self) -> None:
        """Write now, blocking; for where no event loop runs. Raises OSError."""
        changes = self._changes
        self._named = {}
        self._write()
        self._is_to_be_written = False
        self._saved_changes = changes

    async def scrub(self) -> None:
        """Look at file and backup: what is not as it was saved is named, and written anew.

        Raises:
            TooManyOpenFilesError: nothing is known of them.
        """
        if self._is_saving_on and await asyncio.to_thread(self._find_altered):
            self.mark_changed()
            self.save_soon()

    def _find_altered(self) -> bool:
        """Name the files that are not as they were saved; whether there is one. Any thread."""
        with self._write_lock:
            if self._checksums is None:
                return False
            paths = self.path, backup_path(self.path)
            file, backup = (_bytes_of(path) for path in paths)
            saved = unseal(backup)
            altered = [
                path
                for path, data, checksum in zip(paths, (file, backup), self._checksums, strict=True)
                if crc32(data) != checksum
            ]
        for path in altered:
            different = ["unknown"]
            if path is self.path and saved is not None:
                with contextlib.suppress(ValueError):
                    different = self._differences(saved.content, file)
            log.warning(
                "a table's file was changed while the broker ran, and is overwritten",
                file=str(path),
                different=different,
            )
        self.altered_count += len(altered)
        return bool(altered)

    async def _save_in_thread(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._is_saving_on and not self.is_saved:
                changes = self._changes
                await self._save_changes()
                self._saved_changes = changes
            self.save_failure = None
        except OSError as error:
            if self.save_failure is None:
                log.error("table not saved, will retry", file=str(self.path), reason=str(error))
            self.save_failure = error
            loop.call_later(SAVE_RETRY_S, self.save_soon)
        finally:
            self.saving = None

    async def _save_changes(self) -> None:
        """Write the file, or append to the journal. Raises OSError: the file is to be written."""
        loop = asyncio.get_running_loop()
        is_to_be_written = self._is_to_be_written or not self._may_append()
        named, self._named, self._is_to_be_written = self._named, {}, False
        try:
            if is_to_be_written:
                await loop.run_in_executor(None, self._write)
                return
            version = self.version.to_json()
            changes = [TableChange(name, self.entry(name), version) for name in named]
            await loop.run_in_executor(None, self._append, changes)
        except BaseException:
            # A failed fsync is not repeated: what it was of is written to other files.
            self._is_to_be_written = True
            raise
        if self._rewriting is None:
            self._rewriting = loop.call_later(REWRITE_AFTER_S, self.fold_journal)

    def _may_append(self) -> bool:
        return self._may_append_to_file and 0 < len(self._named) <= NAMED_MAX

    @property
    def _may_append_to_file(self) -> bool:
        return (
            self.changes_journal is not None
            and self._file_size_bytes >= JOURNALED_FROM_BYTES
            and self.changes_journal.size_bytes < self._file_size_bytes
        )

    def _append(self, changes: list[TableChange]) -> None:
        with self._write_lock:
            if self.changes_journal is not None:
                self.changes_journal.append(self._file_sha, changes)

    def _begin_write(self) -> None:  # noqa: B027 - a hook
        """What else is to happen before ``to_json`` is called for a save. Any thread."""

    def _about_to_write(self, data: bytes) -> None:  # noqa: B027
        """What else is to happen before the file is replaced by *data*. Any thread."""

    def _written(self) -> None:  # noqa: B027
        """What else is to happen once the file has been replaced. Any thread."""

    def _replace(self, path: Path, data: bytes, backup: bytes | None = None) -> None:
        """Have a file hold *data*. Any thread."""
        write_atomically(path, data, backup)

    def _write(self) -> None:
        with self._write_lock:
            self._begin_write()
            data = fastjson.dumps(self.to_json(), pretty=True).encode()
            self._about_to_write(data)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for suffix, kept in self._aside.items():
                self._replace(self.path.with_name(self.path.name + suffix), kept)
            backup = seal(data, self._file_checksum)
            self._checksums = None
            self._replace(self.path, data, backup)
            self._file_checksum = crc32(data)
            self._checksums = self._file_checksum, crc32(backup)
            self._aside.clear()
            self._written()
            if self.changes_journal is not None:
                self._file_sha, self._file_size_bytes = fingerprint(data), len(data)
                # Those that stay are of another file.
                with contextlib.suppress(OSError):
                    self.changes_journal.drop()


def _content_of(path: Path) -> bytes | None:
    """What a file holds; None when it is missing or blank. Raises OSError."""
    if not path.exists():
        return None
    data = path.read_bytes()
    if not data.strip():
        log.warning("a table's file is empty", file=str(path))
        return None
    return data


def _bytes_of(path: Path) -> bytes:
    """What a file holds; nothing where it cannot be read. Raises TooManyOpenFilesError."""
    try:
        with descriptor_needed():
            return path.read_bytes()
    except TooManyOpenFilesError:
        raise
    except OSError:
        return b""


def _decode(data: bytes) -> JsonObject:
    """The document in *data*. Raises ValueError."""
    try:
        document = fastjson.loads(data)
    except (ProtocolError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(document, dict):
        raise ValueError("it holds no JSON object")
    return document


def _ignore_entry(name: str) -> None:
    """Nobody asked to be told."""
