"""An in-memory table that is saved in one JSON file under ``config/`` of the store.

The file is RocketMQ's: fastjson's dialect, pretty printed, with a ``dataVersion``. It is replaced
atomically. ``<name>.bak`` has the same content with a seal (table_seal.py), which reveals
corruption of either file, at the next start or in a scrub. A thread writes the files; changes
during a write share the next one.

If a table has a journal (table_journal.py) and is large, the cost of a change does not depend on
the table's size. The change is appended to the journal. The file is written once the journal is as
long as the file, some minutes after the first change, and on shutdown. Until then the file is
outdated.

On load, the backup replaces a missing or empty file, and a damaged one; the damaged file is kept as
``<name>.damaged`` before the first save. If neither can be read, load fails, because starting with
an empty table would destroy what the operator can still repair.

A readable file that differs from what was saved is used, because an operator may have edited it.
The log names the differences, and the saved content is kept as ``<name>.saved``.
"""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import structlog

from rockhopper.broker.kernel.state_channels import TableChannel
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
from rockhopper.tasks import complete_in_thread, run_in_background

log = structlog.get_logger("broker.tables")

SAVE_RETRY_S = 5.0
JOURNALED_FROM_BYTES = 64 << 10
"""A smaller file is written with each change."""
NAMED_MAX = 1000
"""With more changes at once the file is written, in a thread.

Journal entries are made in the loop.
"""
REWRITE_AFTER_S = 300.0
"""The longest time for which the file may be outdated."""
DIFFERENCES_NAMED_MAX = 50
SAVE_ERRORS = OSError, StoreError
"""The exceptions that ``saved`` raises."""

JsonObject = dict[str, Any]


class TableVersion:
    """How often and when a table changed; RocketMQ compares it to detect changes."""

    __slots__ = ("counter", "state_version", "timestamp_ms")

    def __init__(self, counter: int = 0, timestamp_ms: int = 0, state_version: int = 0) -> None:
        self.counter = counter
        self.timestamp_ms = timestamp_ms
        self.state_version = state_version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableVersion) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def advance(self, now_ms: int) -> None:
        """Count one change."""
        self.counter += 1
        self.timestamp_ms = now_ms

    def to_json(self) -> dict[str, int]:
        """Return the object for files and bodies."""
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp_ms,
        }

    @classmethod
    def from_json(cls, value: object) -> "TableVersion":
        """Decode a version; missing fields are 0."""
        if not isinstance(value, dict):
            return cls()
        counter, timestamp_ms, state_version = (
            number if isinstance(number := value.get(name), int) else 0
            for name in ("counter", "timestamp", "stateVersion")
        )
        return cls(counter, timestamp_ms, state_version)


class JsonTable(ABC):
    """Loads and saves a table; a subclass defines its content.

    Methods belong to the event loop's thread, except ``to_json``, which the writing thread also
    calls. So ``to_json`` must copy each dict with ``d.copy()``, which is atomic, before it iterates
    over it. A list of the items is not atomic: it creates a tuple for each item, which may start a
    garbage collection, and that may switch to the loop's thread.
    """

    file_mode = DEFAULT_FILE_MODE
    """The mode of the files, reduced by the umask."""
    refuses_lost_changes = False
    """Whether a start fails if the journal has lost a change, such as a denial."""
    without = ""
    """The consequence of starting with an empty table, for the operator who decides."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.path = path
        self.version = TableVersion(0, now_ms())
        self.save_failure: OSError | None = None
        self._now_ms = now_ms
        self._changes = 0
        self._saved_changes = 0
        self.saving: asyncio.Task[None] | None = None
        self._write_lock = threading.Lock()
        self._aside: dict[str, bytes] = {}
        # The checksum of the file, and those of both files while known.
        self._file_checksum = 0
        self._checksums: tuple[int, int] | None = None
        self._is_saving_on = False
        self.changes_journal: TableJournal | None = None
        # Changes that the journal lacks, and whether the file lacks others too.
        self._named: dict[str, None] = {}
        self._is_to_be_written = False
        self._file_sha = ""
        self._file_size_bytes = 0
        self._rewriting: asyncio.TimerHandle | None = None
        self.altered_count = 0
        """How many files were found altered since the start."""
        self.channel: TableChannel | None = None
        """The channel of changed entries, if they are replicated as such."""

    def entry(self, name: str) -> Any:
        """Return one entry as JSON, None if there is none; for tables that call ``note_entry``."""
        raise NotImplementedError

    def take_entry(self, name: str, value: Any) -> None:
        """Replace an entry by *value*, which another broker's ``entry`` returned; None deletes it.

        Raises:
            ValueError: the value is invalid, and nothing is changed.
        """
        raise NotImplementedError

    def _replay(self, name: str, value: Any) -> None:
        """Apply a journal entry at a start, without notifications or saves."""
        raise NotImplementedError

    @abstractmethod
    def to_json(self) -> JsonObject:
        """Return the whole table in its file's format. Any thread."""

    @abstractmethod
    def from_json(self, document: JsonObject) -> None:
        """Replace the table by *document*, all or nothing. Raises ValueError."""

    def _take_compared(self, path: Path, data: bytes, saved: Saved | None) -> None:
        self._take(data)
        if path is self.path and saved is not None:
            self._compare(data, saved)

    def load(self) -> bool:
        """Read the file or its backup; return False if neither exists. Writes nothing.

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
                self._take_compared(path, data, saved)
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
            reason = f"the journal of its changes is invalid: {error}"
            raise CorruptFileError(self.path, reason) from None
        if journal.is_rotten and self.refuses_lost_changes:
            raise CorruptFileError(
                self.path,
                "the journal of its changes is damaged, and some are lost; to start with the "
                f"file's content, move {journal.directory} away, and check all rights",
            )
        if changes:
            self.version = TableVersion.from_json(changes[-1].version)
            log.info(
                "table changes since its last save restored from its journal",
                file=str(self.path),
                changes=len(changes),
            )
        if journal.has_files:
            self.mark_changed()

    def _compare(self, file: bytes, saved: Saved) -> None:
        """Log the differences of *file* from what was saved.

        Raises ValueError: the backup counts.
        """
        if file == saved.content or self._file_checksum == saved.before:
            return
        different = self._differences(saved.content, file)
        if self._refuses_altered(saved.content):
            raise ValueError(f"it differs from what was saved: {'; '.join(different)}")
        self.altered_count += 1
        self._aside[".saved"] = saved.content
        log.warning(
            "a table differs from what was saved, and is used as it is: if nobody edited it, "
            "correct the differences and check the disk for corruption",
            file=str(self.path),
            different=different,
        )

    def _refuses_altered(self, saved: bytes) -> bool:
        """Return whether the backup replaces a file that differs from what was *saved*."""
        return False

    def _differences(self, saved: bytes, found: bytes) -> list[str]:
        """Describe the differences. Raises ValueError: *found* cannot be read."""
        every = differences(_decode(saved), _decode(found))
        named = list(islice(every, DIFFERENCES_NAMED_MAX))
        if more := sum(1 for _ in every):
            named.append(f"and {more} more")
        return named or ["only its formatting"]

    def _advice(self, damage: str, *, has_backup: bool) -> str:
        unreadable = "neither the file nor its backup can be read"
        if not has_backup:
            unreadable = "the file cannot be read and has no backup yet"
        away = "move both away" if has_backup else "move it away"
        cost = self.without and f": {self.without}"
        return f"{unreadable} ({damage}); repair it, or {away} to start with an empty table{cost}"

    def _take(self, data: bytes) -> None:
        """Decode *data*. Raises ValueError for any error in it."""
        document = _decode(data)
        try:
            self.from_json(document)
        except (ProtocolError, RecursionError, TypeError, AttributeError) as error:
            raise ValueError(str(error)) from None
        self.version = TableVersion.from_json(document.get("dataVersion"))

    def take_copy(self, data: bytes) -> None:
        """Replace the table by another broker's, from its file or its answer, and save soon.

        Raises:
            ValueError: it cannot be read as this table, which stays unchanged.
        """
        self._take(data)
        self.mark_changed()
        self.save_soon()

    @property
    def is_saved(self) -> bool:
        """Whether the file contains every change."""
        return self._saved_changes == self._changes

    @property
    def is_saving_on(self) -> bool:
        """Whether changes are written at all."""
        return self._is_saving_on

    def start_saving(self) -> None:
        """Write changes from now on; before this, the store may not be locked yet."""
        self._is_saving_on = True
        self.save_soon()

    def stop_saving(self) -> None:
        """Stop writing: the directory may belong to another broker now."""
        self._is_saving_on = False
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._rewriting is not None:
            self._rewriting.cancel()
            self._rewriting = None

    def mark_changed(self, name: str | None = None) -> None:
        """Mark the file as outdated; ``save_soon`` or ``saved`` writes it.

        *name* is the changed entry, if it is the only change.
        """
        self._changes += 1
        if name is None or self.changes_journal is None:
            self._is_to_be_written = True
        else:
            self._named[name] = None

    def fold_journal(self) -> None:
        """Write the content of the journal to the file soon."""
        self._stop_timer()
        if self.changes_journal is not None and self.changes_journal.size_bytes:
            self.mark_changed()
            self.save_soon()

    def save_soon(self) -> None:
        """Start writing in a thread unless that is under way or nothing changed."""
        if self._is_saving_on and self.saving is None and not self.is_saved:
            self.saving = run_in_background(self._save_in_thread(), "saving a table")

    async def saved(self) -> None:
        """Return once every change so far is durable, if saving is on.

        Raises:
            OSError: the disk does not accept it.
            StoreError: the replicas of a set did not confirm it in time.
        """
        await self.on_disk()
        if self.channel is not None:
            await self.channel.wait_until_confirmed()

    @property
    def awaits_replicas(self) -> bool:
        """Whether ``saved`` waits for the other replicas of a set."""
        return self.channel is not None and self.channel.is_awaited

    def note_entry(self, name: str) -> None:
        """Write a changed or deleted entry for the followers of a replica set, if there is one."""
        if self.channel is not None:
            self.channel.note(name)

    async def on_disk(self) -> None:
        """Return once every change so far is on disk, without the other replicas.

        Raises OSError.
        """
        changes = self._changes
        while self._is_saving_on and self._saved_changes < changes:
            self.save_soon()
            if self.saving is not None:
                await asyncio.shield(self.saving)
            if self.save_failure is not None:
                raise self.save_failure

    def save(self) -> None:
        """Write now, blocking, if no event loop runs. Raises OSError."""
        changes = self._changes
        self._named = {}
        self._write()
        self._is_to_be_written = False
        self._saved_changes = changes

    async def scrub(self) -> None:
        """Check file and backup; log differences from what was saved, and write both again.

        Raises:
            TooManyOpenFilesError: the files could not be read.
        """
        if self._is_saving_on and await complete_in_thread(self._find_altered):
            self.mark_changed()
            self.save_soon()

    def _find_altered(self) -> bool:
        """Log the files that differ from what was saved; return whether there are any.

        Any thread.
        """
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
        """Write the file, or append to the journal.

        Raises OSError: the file must then be written.
        """
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
            # A failed fsync is not repeated: the data is written to other files.
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
        """Runs before ``to_json`` is called for a save. Any thread."""

    def _prepare_write(self, data: bytes) -> None:  # noqa: B027
        """Runs before the file is replaced by *data*. Any thread."""

    def _note_written(self) -> None:  # noqa: B027
        """Runs after the file was replaced. Any thread."""

    def _replace(self, path: Path, data: bytes, backup: bytes | None = None) -> None:
        """Replace the content of a file. Any thread."""
        write_atomically(path, data, backup)

    def _write(self) -> None:
        with self._write_lock:
            self._begin_write()
            data = fastjson.dumps(self.to_json(), pretty=True).encode()
            self._prepare_write(data)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for suffix, kept in self._aside.items():
                self._replace(self.path.with_name(self.path.name + suffix), kept)
            backup = seal(data, self._file_checksum)
            self._checksums = None
            self._replace(self.path, data, backup)
            self._file_checksum = crc32(data)
            self._checksums = self._file_checksum, crc32(backup)
            self._aside.clear()
            self._note_written()
            if self.changes_journal is not None:
                self._file_sha, self._file_size_bytes = fingerprint(data), len(data)
                # Journal files that remain belong to another file.
                with contextlib.suppress(OSError):
                    self.changes_journal.drop()


def _content_of(path: Path) -> bytes | None:
    """Return the content of a file; None if it is missing or blank. Raises OSError."""
    if not path.exists():
        return None
    data = path.read_bytes()
    if not data.strip():
        log.warning("a table's file is empty", file=str(path))
        return None
    return data


def _bytes_of(path: Path) -> bytes:
    """Return the content of a file; empty if it cannot be read. Raises TooManyOpenFilesError."""
    try:
        with descriptor_needed():
            return path.read_bytes()
    except TooManyOpenFilesError:
        raise
    except OSError:
        return b""


def _decode(data: bytes) -> JsonObject:
    """Decode a document. Raises ValueError."""
    try:
        document = fastjson.loads(data)
    except (ProtocolError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return document
