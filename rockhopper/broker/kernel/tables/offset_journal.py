"""OffsetJournal: the commits since consumerOffset.json was last saved.

``<store>/rockhopper/offsets/<20-digit number>.records`` are files of records
(protocol/store/journal_records.py) of one kind, 1: lines of text, applied in order::

    file <sha1>                     consumerOffset.json as it is, or is about to be
    set <topic@group> <queue> <offset>
    drop <topic@group>

Lines are gathered for 25 ms and written as one record with one write(2), without fsync. So kill -9
loses at most the commits of 25 ms, and a power cut loses those since RocketMQ's file was saved.
Lines that cannot be written, for example on a full disk, stay gathered and are retried. A save
starts a new journal file. When the save has ended, earlier journal files are deleted: their content
is in consumerOffset.json and in its .bak.

The journal counts from the file that names the present consumerOffset.json, or its .bak if that had
to be read. If RocketMQ has used the store since, its file has another sha1, and counts alone. If
our own file is damaged, its .bak counts, and no commit is lost.

Builds before 0.2.0 wrote the bare lines into files ``<number>``; these are read, and deleted after
the first save.
"""

import asyncio
import contextlib
import hashlib
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import structlog

from rockhopper.broker.kernel.state_channels import StateChannel
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.record_journal import RecordJournal
from rockhopper.protocol.store.journal_records import encode_record

log = structlog.get_logger("broker.offsets")

GATHERING_S = 0.025
RETRY_S = 1.0
NO_FILE = "-"
LINES = 1
_DROPPED = -1
_LINE = re.compile(
    r"(?:file (?P<sha>[0-9a-f]{40}|-)"
    r"|set (?P<key>\S+) (?P<queue>\d{1,10}) (?P<offset>\d{1,19})"
    r"|drop (?P<dropped>\S+))"
)


class Change(NamedTuple):
    """One entry: an offset; with queue -1 the deletion of all offsets of a topic and group."""

    key: str
    queue_id: int
    offset: int


def encode_changes(changes: Iterable[Change]) -> bytes:
    """Encode changes as lines of a journal."""
    return "".join(_line_of(((key, queue), offset)) for key, queue, offset in changes).encode()


def decode_changes(lines: bytes) -> list[Change]:
    """Decode the lines of a journal in order; skip invalid ones."""
    changes: list[Change] = []
    for line in lines.decode("utf-8", "replace").split("\n"):
        _take(line, [], changes)
    return changes


class GatheredChanges:
    """The changes that the followers of a replica set lack: the last one for each queue."""

    def __init__(self, channel: StateChannel) -> None:
        """*channel* is GATHERED."""
        self._channel = channel
        self._changes: dict[tuple[str, int], int] = {}

    def note(self, key: str, queue_id: int, offset: int) -> None:
        """Keep a change until ``take_all``, if there are followers."""
        if not self._channel.gather():
            return
        changes = self._changes
        if queue_id == _DROPPED:
            for other in [other for other in changes if other[0] == key]:
                del changes[other]
        changes.pop((key, queue_id), None)
        changes[key, queue_id] = offset

    def take_all(self) -> list[Change]:
        """Return the changes in order, and forget them."""
        changes, self._changes = self._changes, {}
        return [Change(key, queue_id, offset) for (key, queue_id), offset in changes.items()]


class OffsetJournal:
    """Files of changes. ``note`` belongs to the event loop, the rest to any thread."""

    def __init__(
        self, directory: Path, quarantine: Path, gathered: GatheredChanges | None = None
    ) -> None:
        """*gathered* keeps each change for the followers of a replica set."""
        self._directory = directory
        self._journal = RecordJournal(
            directory, quarantine, what="committed offsets", suffix=".records"
        )
        # In order; queue -1: the topic and group have no offsets any more.
        self._pending: dict[tuple[str, int], int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._lock = threading.Lock()
        self._is_failing = False
        self._parts: list[list[str]] | None = None
        self.is_open = False
        """Whether changes are accepted."""
        self._gathered = gathered

    def read(self, file: bytes | None) -> list[Change]:
        """Return the changes since *file*, the bytes of consumerOffset.json, was written.

        Changes nothing on disk, because the store is not locked yet.

        Raises:
            OSError: a journal file cannot be read.
        """
        changes: list[Change] = []
        for parts in ([self._read_bare_lines()], self._read_parts()):
            since: list[Change] | None = None
            is_noted = False
            for lines in parts:
                known: list[str] = []
                noted: list[Change] = []
                for line in lines:
                    _take(line, known, noted)
                if since is None and fingerprint(file) in known:
                    since = []
                if since is not None:
                    since += noted
                is_noted |= bool(noted)
            if is_noted and since is None:
                log.warning(
                    "another broker saved offsets later; using its file instead of the journal"
                )
            changes += since or []
        return changes

    def knows(self, file: bytes) -> bool:
        """Return whether the journal continues from *file*. Raises OSError."""
        known: list[str] = []
        for lines in self._read_parts():
            for line in lines:
                _take(line, known, [])
        return fingerprint(file) in known

    def _read_parts(self) -> list[list[str]]:
        """Return the lines of each file, oldest first; cached."""
        if self._parts is not None:
            return self._parts
        parts: list[list[str]] = []
        number = -1
        for kind, payload in self._journal.read():
            if self._journal.number != number:
                number = self._journal.number
                parts.append([])
            if kind == LINES:
                parts[-1] += payload.decode().split("\n")
        self._parts = parts
        return parts

    def _read_bare_lines(self) -> list[str]:
        lines: list[str] = []
        for path in self._list_bare_files():
            *whole, torn = path.read_bytes().decode("utf-8", "replace").split("\n")
            damaged = next((n for n, line in enumerate(whole) if not _LINE.fullmatch(line)), None)
            if damaged is not None or torn:
                log.error(
                    "a journal of offsets is damaged: entries after the damage are lost",
                    file=str(path),
                    line=len(whole) if damaged is None else damaged,
                )
            lines += whole[:damaged]
        return lines

    def _list_bare_files(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        paths = [path for path in self._directory.iterdir() if path.name.isdecimal()]
        return sorted(paths, key=lambda path: int(path.name))

    def start_file(self, file_sha: str) -> int:
        """Start another journal file for changes after *file_sha*; return its number.

        Raises:
            OSError: it cannot be created.
        """
        with self._lock:
            self._parts = None
            self._journal.repair()
            self._journal.rotate()
            self._journal.append(_record(f"file {file_sha}\n"))
            self.is_open = True
            return self._journal.number

    def expect(self, file_sha: str) -> None:
        """Record which consumerOffset.json is about to be written. Raises OSError."""
        with self._lock:
            self._journal.append(_record(f"file {file_sha}\n"))

    def drop_before(self, number: int) -> None:
        """Delete the files older than *number*, whose content is in consumerOffset.json."""
        with contextlib.suppress(OSError):
            self._journal.forget_before(number)
            disk.remove_files(self._list_bare_files())

    def note(self, key: str, queue_id: int, offset: int) -> None:
        """Write a change soon; only the last one for each queue is written."""
        self._pending[key, queue_id] = offset
        if self._gathered is not None:
            self._gathered.note(key, queue_id, offset)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHERING_S, self.flush)

    def drop(self, keys: Iterable[str]) -> None:
        """Record that topics and groups have no offsets any more."""
        dropped = dict.fromkeys(keys)
        self._pending = {place: n for place, n in self._pending.items() if place[0] not in dropped}
        self._pending |= {(key, _DROPPED): 0 for key in dropped}
        if self._gathered is not None:
            for key in dropped:
                self._gathered.note(key, _DROPPED, 0)
        self.flush()

    def flush(self) -> None:
        """Write the gathered changes now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending or not self.is_open:
            return
        try:
            with self._lock:
                self._journal.append(_record("".join(map(_line_of, self._pending.items()))))
        except OSError as error:
            if not self._is_failing:
                log.error("commits cannot be recorded, will retry", reason=str(error))
            self._is_failing = True
            with contextlib.suppress(RuntimeError):
                self._timer = asyncio.get_running_loop().call_later(RETRY_S, self.flush)
        else:
            self._is_failing = False
            self._pending.clear()

    def close(self) -> None:
        """Write the gathered changes and accept no more."""
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self._lock:
            self._journal.close()
            self.is_open = False


def fingerprint(file: bytes | None) -> str:
    """Return a fingerprint of consumerOffset.json; ``-`` if there is none."""
    return NO_FILE if file is None else hashlib.sha1(file, usedforsecurity=False).hexdigest()


def _record(lines: str) -> bytes:
    return encode_record(LINES, lines.encode())


def _line_of(change: tuple[tuple[str, int], int]) -> str:
    (key, queue_id), offset = change
    return f"drop {key}\n" if queue_id == _DROPPED else f"set {key} {queue_id} {offset}\n"


def _take(line: str, known: list[str], changes: list[Change]) -> None:
    found = _LINE.fullmatch(line)
    if found is None:
        return
    if found["sha"]:
        known.append(found["sha"])
    elif found["key"]:
        changes.append(Change(found["key"], int(found["queue"]), int(found["offset"])))
    else:
        changes.append(Change(found["dropped"], -1, 0))
