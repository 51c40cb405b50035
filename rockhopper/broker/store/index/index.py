"""MessageIndex: finds messages by key, in the files of the ``index`` directory.

Keys are found by a 31-bit hash of topic and key, so the caller must check the key in the record.
Missing entries are added again from the commit log: recovery continues at
``end_commit_log_offset``. So an index file that cannot be trusted is simply deleted, with those
after it. (RocketMQ deletes the newest one after every crash.)

Files are named by the local time at which they were made, yyyyMMddHHmmssSSS.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import structlog

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.index.index_file import IndexFile
from rockhopper.broker.store.index.index_repair import repair
from rockhopper.protocol.java_hash import index_key_hash
from rockhopper.protocol.store.queue_layout import INDEX_ENTRY_COUNT_MAX, INDEX_SLOT_COUNT

log = structlog.get_logger("broker.store")

CREATION_TRIES = 3


class MessageIndex:
    """The index of one store. Belongs to the event loop's thread, except ``flush``.

    ``failed`` is set if a new file could not be made. RocketMQ then rejects messages until a
    restart; here the next file that can be made clears it.
    """

    def __init__(
        self,
        directory: Path,
        slot_count: int = INDEX_SLOT_COUNT,
        entry_count_max: int = INDEX_ENTRY_COUNT_MAX,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """*now_ms* names new files. The directory is made with the first of them."""
        self._directory = directory
        self._slot_count = slot_count
        self._entry_count_max = entry_count_max
        self._now_ms = now_ms
        self._files: list[IndexFile] = []
        self.failed = False

    def load(self, last_exit_clean: bool) -> None:
        """Open the existing files and repair what a crash left.

        Check the geometry first (geometry.py): a file of another length is damaged here, and
        damaged files are deleted to be rebuilt.

        Raises:
            OSError: the files cannot be read, or not be repaired.
        """
        paths = numbered_paths(self._directory)
        for position, path in enumerate(paths):
            reason = self._load_one(path, last_exit_clean)
            if reason is not None:
                log.warning(
                    "index files are deleted and rebuilt from the commit log",
                    path=str(path),
                    reason=reason,
                    count=len(paths) - position,
                )
                disk.remove_files(paths[position:])
                break

    def _load_one(self, path: Path, last_exit_clean: bool) -> str | None:
        """Add one file, or return why it and those after it cannot be used."""
        if self._files and not self._files[-1].is_full:
            return "the file before it is not full: a crash lost its content"
        try:
            file = self._open(path)
        except CorruptFileError as error:
            return error.reason
        reason = file.damage()
        if reason is None and not file.is_empty and file.begin_offset < self.end_commit_log_offset:
            reason = "it starts before the end of the previous file"
        if reason is None and not last_exit_clean and not file.is_full:
            gained = repair(file)
            log.info("an index file was recovered", path=str(path), entries_gained=gained)
        if reason is None and file.is_empty:
            reason = "it is empty"
        if reason is not None:
            file.close()
            return reason
        self._files.append(file)
        return None

    def _open(self, path: Path) -> IndexFile:
        return IndexFile.open(path, self._slot_count, self._entry_count_max)

    def flush(self) -> bool:
        """Make every entry durable; return whether there was any. May run in a thread.

        Raises:
            OSError: a crash may lose entries since the last flush, which are then added again.
        """
        results = [file.flush() for file in tuple(self._files)]
        return any(results)

    def flush_steps(self) -> Iterator[None]:
        """Do the same as ``flush``, one file between each step."""
        for file in tuple(self._files):
            file.flush()
            yield

    def close(self) -> None:
        """Close the files. Flushes nothing."""
        for file in self._files:
            file.close()

    def put_many(self, packed_keys: bytes | bytearray, store_time_ms: int) -> None:
        """Add packed index keys (encoding.INDEX_KEY) of messages with one store time.

        Raises:
            OSError: the disk is full; some of the first entries may be in the index.
        """
        rest: bytes | bytearray | None = packed_keys
        if self._files:
            rest = self._files[-1].put_many(packed_keys, store_time_ms)
        while rest:
            self._add_file()
            rest = self._files[-1].put_many(rest, store_time_ms)

    def put_timed(self, packed_keys: bytes | bytearray) -> None:
        """``put_many`` for keys with their own times (encoding.TIMED_KEY). Raises OSError."""
        keys = memoryview(packed_keys)
        rest = self._files[-1].put_timed(keys) if self._files else keys
        while rest:
            self._add_file()
            rest = self._files[-1].put_timed(rest)

    def _add_file(self) -> None:
        previous = self._files[-1] if self._files else None
        for tries_left in reversed(range(CREATION_TRIES)):
            try:
                disk.make_directories(self._directory)
                file = IndexFile.create(
                    self._directory / self._next_name(),
                    self._slot_count,
                    self._entry_count_max,
                    previous,
                )
            except OSError:
                if not tries_left:
                    self.failed = True
                    raise
            else:
                break
        self.failed = False
        self._files.append(file)

    def _next_name(self) -> str:
        """Return a name after all existing ones, even if the clock or summer time goes back."""
        now_s, millisecond = divmod(self._now_ms(), 1000)
        name = f"{datetime.fromtimestamp(now_s):%Y%m%d%H%M%S}{millisecond:03d}"
        newest = max((path.name for path in numbered_paths(self._directory)), default="")
        return name if name > newest else f"{int(newest) + 1:017d}"

    def discard_from(self, commit_log_offset: int) -> int:
        """Remove every entry of a message at or after *commit_log_offset*; return how many.

        Raises:
            OSError: the disk is failing.
        """
        count = 0
        while self._files and self._files[-1].end_offset >= commit_log_offset:
            count += self._files[-1].discard_from(commit_log_offset)
            if not self._files[-1].is_empty:
                break
            self._files.pop().delete()
        return count

    def clear(self) -> None:
        """Delete every file, so that the index is rebuilt from the commit log."""
        while self._files:
            self._files.pop().delete()

    def delete_expired(self, commit_log_min: int) -> int:
        """Delete files whose messages are all expired, never the newest; return how many."""
        count = 0
        while len(self._files) > 1 and self._files[0].end_offset < commit_log_min:
            self._files.pop(0).delete()
            count += 1
        return count

    @property
    def end_commit_log_offset(self) -> int:
        """The offset of the newest message in the index; −1 without one.

        After a power cut it may have only some of its keys: see ``hashes_at_end``.
        """
        return self._files[-1].end_offset if self._files else -1

    @property
    def begin_commit_log_offset(self) -> int:
        """The offset of the oldest message in the index; −1 without one."""
        return self._files[0].begin_offset if self._files else -1

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """A copy of the list of files, oldest first."""
        return tuple(self._files)

    def hashes_at_end(self) -> list[int]:
        """Return the key hashes in the index for the message at ``end_commit_log_offset``."""
        hashes: list[int] = []
        for file in reversed(self._files):
            if file.end_offset != self.end_commit_log_offset:
                break
            hashes = file.hashes_at_end() + hashes
            if file.entry(1)[1] != file.end_offset:
                break
        return hashes

    def candidates(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Yield commit log offsets of messages that may have *key*, newest first.

        No offset comes twice in a row. Yields None after a millisecond without a match, so that the
        caller can run other work; files may be added and deleted meanwhile. The time window is
        widened by a second: check topic, key and time in the record.
        """
        key_hash = index_key_hash(topic, key)
        last = -1
        for file in reversed(self.files):
            for offset in file.candidates(key_hash, begin_ms, end_ms):
                if offset is None or offset == last:
                    yield None
                else:
                    yield offset
                    last = offset

    def query(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return the first *count_max* offsets of ``candidates``."""
        found: list[int] = []
        if count_max > 0:
            for offset in self.candidates(topic, key, begin_ms, end_ms):
                if offset is not None:
                    found.append(offset)
                if len(found) == count_max:
                    break
        return found


def numbered_paths(directory: Path) -> list[Path]:
    """Return the files named by a number, oldest first; RocketMQ skips other names too."""
    try:
        paths = [path for path in directory.iterdir() if path.name.isdecimal() and path.is_file()]
    except FileNotFoundError:
        return []
    return sorted(paths, key=lambda path: int(path.name))
