"""Which topics were deleted, and where the commit log ended then.

The records of a deleted topic stay in the log until they expire. Recovery rebuilds queues from the
log; without this note it would bring a deleted topic back, or mix the old messages of a topic that
was made anew with its new ones. Kept in ``<store>/rockhopper/deleted-topics.records``
(protocol/store/topic_ends.py).

``purged-topics.records`` beside it says the same of topics that were emptied. Their queues stay as
they are, and begin behind those records.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import structlog

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.record_file import RecordFile, mend, read_records
from rockhopper.protocol.store.topic_ends import decode_former_ends, encode_ends, ends_of

log = structlog.get_logger("broker.store")

_WHAT = "deleted topics, whose messages may come back after a crash"
# The file is written anew when most of its notes have been overtaken.
_OVERTAKEN_MAX = 1000


class DeletedTopics:
    """Topic -> the commit log offset in front of which its records do not count."""

    def __init__(self, path: Path, quarantine: Path) -> None:
        """Read the notes; what cannot be read is reported. Changes nothing.

        Raises:
            OSError: the file cannot be read.
        """
        self._path = path
        self._quarantine = quarantine
        self._former_path = path.with_suffix(".json")
        self._read = read_records(path) if path.exists() else None
        noted = {} if self._read is None else ends_of(self._read.records)
        self._has_former = self._former_path.exists()
        self._ends = self._former_ends() | noted
        self._note_count = len(noted)
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

    def add(self, topic: str, end: int) -> None:
        """Note a deletion durably, before anything of the topic is deleted. Blocks."""
        self.add_all((topic,), end)

    def add_all(self, topics: Iterable[str], end: int) -> None:
        """The same for several topics.

        Raises:
            OSError: nothing of them is hidden.
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
            self._size_bytes = mend(self._path, self._read, self._quarantine, what=_WHAT)
            self._read = None

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """(topic, commit log offset) of each note."""
        return iter(list(self._ends.items()))

    def forget_before(self, commit_log_min: int) -> None:
        """Drop the notes that the log no longer reaches back to; mend and name damaged ones."""
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
        """Whether a record belongs to a topic that was deleted after it was written."""
        return bool(self._ends) and commit_log_offset < self._ends.get(topic, 0)
