"""OffsetJournal: what was committed since consumerOffset.json was last saved.

``<store>/rockhopper/offsets/<number>`` are text files of lines, applied in order::

    file <sha1>                     consumerOffset.json as it is, or as it is about to be
    set <topic@group> <queue> <offset>
    drop <topic@group>

Lines are gathered for 25 ms and go out with one write(2), without fsync: kill -9 costs at most the
commits of 25 ms, and a power cut what RocketMQ's file does not hold yet.  A save begins a new
journal file, and the older ones go when it has ended.

A journal counts only with the consumerOffset.json that it belongs to: when RocketMQ has run on the
store since, its file has another sha1.  A line that was torn off ends the reading.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import structlog

log = structlog.get_logger("broker.offsets")

GATHERING_S = 0.025
NO_FILE = "-"
_LINE = re.compile(
    r"(?:file (?P<sha>[0-9a-f]{40}|-)"
    r"|set (?P<key>\S+) (?P<queue>\d{1,10}) (?P<offset>\d{1,19})"
    r"|drop (?P<dropped>\S+))"
)


class Change(NamedTuple):
    """One entry: an offset, or with queue -1 the end of all offsets of a topic and group."""

    key: str
    queue_id: int
    offset: int


class OffsetJournal:
    """Files of changes.  ``note`` belongs to the event loop, the rest to any thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1
        self._number = 0
        self._pending: dict[tuple[str, int], int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._lock = threading.Lock()
        self._is_failing = False

    @property
    def is_open(self) -> bool:
        """Whether changes are taken."""
        return self._descriptor >= 0

    # -- reading -------------------------------------------------------------------------------

    def read(self, file: bytes | None) -> list[Change]:
        """What was noted after *file*, the bytes of consumerOffset.json, was written.

        Raises:
            OSError: a journal file cannot be read.
        """
        changes: list[Change] = []
        known: set[str] = set()
        for path in self._files():
            _read_lines(path.read_bytes(), known, changes)
        if changes and fingerprint(file) not in known:
            log.info("offsets were saved by another broker since; its file counts")
            return []
        return changes

    def _files(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        names = [entry.name for entry in self._directory.iterdir() if entry.name.isdecimal()]
        return [self._directory / name for name in sorted(names, key=int)]

    # -- writing -------------------------------------------------------------------------------

    def begin(self, file_sha: str) -> int:
        """Start another journal file for what comes after *file_sha*; return its number.

        Raises:
            OSError: it cannot be created.
        """
        with self._lock:
            if self._number == 0:
                self._directory.mkdir(parents=True, exist_ok=True)
                self._number = max((int(path.name) for path in self._files()), default=0)
            path = self._directory / str(self._number + 1)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC
            descriptor = os.open(path, flags, 0o644)
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = descriptor
            self._number += 1
            os.write(descriptor, f"file {file_sha}\n".encode())
            return self._number

    def expect(self, file_sha: str) -> None:
        """Say which consumerOffset.json is about to be written.  Raises OSError."""
        with self._lock:
            os.write(self._descriptor, f"file {file_sha}\n".encode())

    def drop_before(self, number: int) -> None:
        """Remove the files older than *number*: consumerOffset.json holds what they say."""
        with contextlib.suppress(OSError):
            for path in self._files():
                if int(path.name) < number:
                    path.unlink()

    def note(self, key: str, queue_id: int, offset: int) -> None:
        """Write a change soon; of several of one queue the last."""
        self._pending[key, queue_id] = offset
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHERING_S, self.flush)

    def drop(self, keys: Iterable[str]) -> None:
        """Note that topics and groups have no offsets any more."""
        self.flush()
        self._write("".join(f"drop {key}\n" for key in keys))

    def flush(self) -> None:
        """Write what is gathered, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, {}
        self._write(
            "".join([f"set {key} {queue} {offset}\n" for (key, queue), offset in pending.items()])
        )

    def _write(self, text: str) -> None:
        if not text or self._descriptor < 0:
            return
        try:
            with self._lock:
                os.write(self._descriptor, text.encode())
        except OSError as error:
            if not self._is_failing:
                log.error("commits are not noted between two saves", reason=str(error))
            self._is_failing = True
        else:
            self._is_failing = False

    def close(self) -> None:
        """Write what is gathered and take nothing more."""
        self.flush()
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1


def fingerprint(file: bytes | None) -> str:
    """What stands for the bytes of consumerOffset.json; ``-`` when there is none."""
    return NO_FILE if file is None else hashlib.sha1(file, usedforsecurity=False).hexdigest()


def _read_lines(data: bytes, known: set[str], changes: list[Change]) -> None:
    for line in data.decode("utf-8", "replace").split("\n")[:-1]:
        found = _LINE.fullmatch(line)
        if found is None:
            return
        if found["sha"]:
            known.add(found["sha"])
        elif found["key"]:
            changes.append(Change(found["key"], int(found["queue"]), int(found["offset"])))
        else:
            changes.append(Change(found["dropped"], -1, 0))
