"""Deleted topics: the end of the commit log at each deletion, and the files of their queues.

The records of a deleted topic stay in the log until they expire. Recovery rebuilds queues from the
log. Without a journal it would restore a deleted topic, or mix the old messages of a re-created
topic with its new ones. The journal is ``<store>/rockhopper/deleted-topics.records``
(protocol/store/topic_ends.py).

``purged-topics.records`` beside it does the same for topics that were emptied. Their queues stay,
and begin after those records.

Example: topic ``a`` has three messages and is deleted when the log ends at 900; the journal gets
the entry (a, 900). ``a`` is created again, and its next message is at 900. After a crash, recovery
rebuilds a queue of one message: the records below 900 do not count.

The files of deleted queues are moved aside at once, and deleted later: a topic may have thousands
of queues, each with a file. So the directory of all of them is moved to
``<store>/rockhopper/deleted-queues``, and its files are deleted there; after a crash, at the next
start. Files that are not a queue's stay there.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import structlog

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.record_file import RecordFile, read_records, repair
from rockhopper.protocol.store.topic_ends import decode_former_ends, encode_ends, ends_of

log = structlog.get_logger("broker.store")

_WHAT = "deleted topics, whose messages may come back after a crash"
# The file is rewritten when most of its entries are outdated.
_OVERTAKEN_MAX = 1000


class DeletedTopics:
    """Topic -> the commit log offset below which its records do not count."""

    def __init__(self, path: Path, quarantine: Path) -> None:
        """Read the journal; log entries that cannot be read. Changes nothing.

        Raises:
            OSError: the file cannot be read.
        """
        self._path = path
        self._quarantine = quarantine
        self._former_path = path.with_suffix(".json")
        self._read = read_records(path) if path.exists() else None
        self._has_former = self._former_path.exists()
        self._ends = self._former_ends()
        self._note_count = 0
        if self._read is not None:
            self._ends |= ends_of(self._read.records)
            self._note_count = len(self._read.records)
        self._size_bytes = 0

    def _former_ends(self) -> dict[str, int]:
        if not self._has_former:
            return {}
        try:
            return decode_former_ends(self._former_path.read_bytes())
        except ValueError as error:
            log.error(
                "deleted topics may reappear after a crash: their list is damaged",
                path=str(self._former_path),
                reason=str(error),
            )
            return {}

    def record_deletion(self, topic: str, end: int) -> None:
        """Record a deletion durably, before anything of the topic is deleted. Blocks."""
        self.add_all((topic,), end)

    def add_all(self, topics: Iterable[str], end: int) -> None:
        """Record the deletion of several topics durably. Blocks.

        Raises:
            OSError: none of them is recorded.
        """
        before = self._ends
        added = dict.fromkeys(topics, end)
        self._ends = before | added
        try:
            self._write(added)
        except OSError:
            self._ends = before
            raise

    def _write(self, added: Mapping[str, int]) -> None:
        self._mend()
        if self._has_former or self._note_count > 2 * len(self._ends) + _OVERTAKEN_MAX:
            self._write_anew()
            return
        file = RecordFile(self._path, self._size_bytes)
        try:
            file.append(encode_ends(added))
            self._sync(file)
        finally:
            file.close()
        self._size_bytes = file.size_bytes
        self._note_count += 1

    def _sync(self, file: RecordFile) -> None:
        try:
            disk.sync_paths([self._path])
        except OSError:
            with contextlib.suppress(OSError):
                file.cut(self._size_bytes)
            raise

    def _mend(self) -> None:
        disk.make_directories_durably(self._path.parent)
        if self._read is not None:
            self._size_bytes = repair(self._path, self._read, self._quarantine, what=_WHAT)
            self._read = None

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Iterate over (topic, commit log offset) of each entry."""
        return iter(list(self._ends.items()))

    def forget_before(self, commit_log_min: int) -> None:
        """Drop entries older than the log; rewrite and log damaged ones."""
        self._mend()
        kept = {topic: end for topic, end in self._ends.items() if end > commit_log_min}
        if kept != self._ends:
            self._ends = kept
            self._write_anew()

    def _write_anew(self) -> None:
        data = b"".join([encode_ends({topic: end}) for topic, end in self])
        disk.write_atomically(self._path, data)
        self._size_bytes, self._note_count = len(data), len(self._ends)
        disk.remove_files([self._former_path])
        self._has_former = False

    def hides(self, topic: str, commit_log_offset: int) -> bool:
        """Return whether a record belongs to a topic that was deleted after it was written."""
        return commit_log_offset < self._ends.get(topic, 0)


class DeletedQueues:
    """The remains of deleted queues: open files, and the directories that hold them."""

    def __init__(self, files: Iterable[MappedFile] = (), directories: Iterable[Path] = ()) -> None:
        self._files = list(files)
        self._directories = list(directories)

    def __add__(self, other: "DeletedQueues") -> "DeletedQueues":
        return DeletedQueues(self._files + other._files, self._directories + other._directories)

    def remove(self) -> None:
        """Close the files and delete them. Blocks, and may run in any thread.

        Raises:
            OSError: some are left for the next start.
        """
        for file in self._files:
            file.close()
        for directory in self._directories:
            _remove(directory)


def move_queues_aside(topic_directory: Path, aside: Path) -> Path | None:
    """Move the directory of a topic's queues below *aside*, durably; None if it does not exist.

    If that fails, its files are deleted where they are.

    Raises:
        OSError: neither is possible.
    """
    try:
        return _move_queues_aside(topic_directory, aside)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning(
            "deleting the queues of a topic slowly: their directory cannot be moved",
            directory=str(topic_directory),
            reason=str(error),
        )
        _remove(topic_directory)
        return None


def _move_queues_aside(topic_directory: Path, aside: Path) -> Path:
    disk.make_directories_durably(aside)
    taken = {entry.name for entry in os.scandir(aside)}
    number = len(taken)
    while str(number) in taken:
        number += 1
    target = aside / str(number)
    disk.move(topic_directory, target)
    return target


def remove_queues_aside(aside: Path) -> None:
    """Delete what an earlier process moved aside. Raises OSError."""
    for directory in _list_numbered(aside):
        _remove(directory)


def _remove(topic_directory: Path) -> None:
    for directory in _list_numbered(topic_directory):
        for path in _list_numbered(directory):
            path.unlink(missing_ok=True)
        _remove_directory_if_empty(directory)
    if not _remove_directory_if_empty(topic_directory):
        log.warning(
            "unknown files are left in a deleted topic's directory", directory=str(topic_directory)
        )


def _remove_directory_if_empty(directory: Path) -> bool:
    """Return whether it is gone; another thread may give its name to another topic at once."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _list_numbered(directory: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if name.isdecimal():
            yield directory / name
