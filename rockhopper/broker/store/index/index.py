"""MessageIndex: finds messages by key, over the files of the ``index`` directory.

Keys are found by a 31-bit hash of topic and key, so whoever asks must verify the key on the record
itself. What the index lacks, or never had, is put again from the commit log: recovery goes on at
``end_commit_log_offset``. An index file that cannot be trusted is therefore deleted, with those
behind it, where RocketMQ would delete the newest one after every crash.

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

    ``failed`` is set when a new file could not be made: RocketMQ then takes no more messages until
    it is restarted; here the next ``put`` that succeeds clears it.
    """

    put: Callable[[int, int, int], None]
    """``put(key_hash, commit_log_offset, store_time_ms)`` adds one key of a message.

    It is the current file's own method, to save the hot path a call; a reference to it that is
    kept stays valid. Raises OSError when the disk is full; nothing has changed then.
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
        self.put = self._put_with_room

    def load(self, last_exit_clean: bool) -> None:
        """Open the files that are there and settle what a crash left.

        The geometry must have been checked before (geometry.py): a file of another length is
        damaged here, and a damaged file is deleted to be built again.

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
        self._use_newest()

    def _load_one(self, path: Path, last_exit_clean: bool) -> str | None:
        """Add one file, or say why it and those behind it cannot be used."""
        if self._files and not self._files[-1].is_full:
            return "the file before it is not full: a crash lost what it held"
        try:
            file = self._open(path)
        except CorruptFileError as error:
            return error.reason
        reason = file.damage()
        if reason is None and not file.is_empty and file.begin_offset < self.end_commit_log_offset:
            reason = "it begins in front of the end of the file before it"
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
        return IndexFile.open(path, self._slot_count, self._entry_count_max, self._put_with_room)

    def _use_newest(self) -> None:
        self.put = self._files[-1].put if self._files else self._put_with_room

    def flush(self) -> bool:
        """Make every entry durable; return whether there was anything to do. May run in a thread.

        Raises:
            OSError: entries since the last flush may be lost in a crash, and are then put again.
        """
        results = [file.flush() for file in tuple(self._files)]
        return any(results)

    def flush_steps(self) -> Iterator[None]:
        """As ``flush``, one file between each step."""
        for file in tuple(self._files):
            file.flush()
            yield

    def close(self) -> None:
        """Let go of the files. Flushes nothing."""
        for file in self._files:
            file.close()

    def put_many(self, packed_keys: bytes | bytearray, store_time_ms: int) -> None:
        """``put`` for packed index keys (encoding.INDEX_KEY) of messages with one store time.

        Raises:
            OSError: the disk is full; some of the first entries may be put.
        """
        rest: bytes | bytearray | None = packed_keys
        if self._files:
            rest = self._files[-1].put_many(packed_keys, store_time_ms)
        while rest:
            self._add_file()
            rest = self._files[-1].put_many(rest, store_time_ms)

    def put_timed(self, packed_keys: bytes | bytearray) -> None:
        """``put_many`` for keys that bring their times (encoding.TIMED_KEY). Raises OSError."""
        keys = memoryview(packed_keys)
        rest = self._files[-1].put_timed(keys) if self._files else keys
        while rest:
            self._add_file()
            rest = self._files[-1].put_timed(rest)

    def _put_with_room(self, key_hash: int, commit_log_offset: int, store_time_ms: int) -> None:
        """Put for when there is no file yet or the current one is full."""
        if not self._files or self._files[-1].is_full:
            self._add_file()
        self._files[-1].put(key_hash, commit_log_offset, store_time_ms)

    def _add_file(self) -> None:
        previous = self._files[-1] if self._files else None
        for tries_left in reversed(range(CREATION_TRIES)):
            try:
                disk.make_directories(self._directory)
                file = IndexFile.create(
                    self._directory / self._next_name(),
                    self._slot_count,
                    self._entry_count_max,
                    self._put_with_room,
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
        self._use_newest()

    def _next_name(self) -> str:
        """A name behind every name there is, even when the clock, or summer time, goes back."""
        now_s, millisecond = divmod(self._now_ms(), 1000)
        name = f"{datetime.fromtimestamp(now_s):%Y%m%d%H%M%S}{millisecond:03d}"
        newest = max((path.name for path in numbered_paths(self._directory)), default="")
        return name if name > newest else f"{int(newest) + 1:017d}"

    def discard_from(self, commit_log_offset: int) -> int:
        """Take out every entry of a message at or behind *commit_log_offset*; return how many.

        Raises:
            OSError: the disk is failing.
        """
        count = 0
        while self._files and self._files[-1].end_offset >= commit_log_offset:
            count += self._files[-1].discard_from(commit_log_offset)
            if not self._files[-1].is_empty:
                break
            self._files.pop().delete()
        self._use_newest()
        return count

    def clear(self) -> None:
        """Delete every file; the index is built again from the commit log."""
        while self._files:
            self._files.pop().delete()
        self._use_newest()

    def delete_expired(self, commit_log_min: int) -> int:
        """Delete files whose messages are all gone, never the newest; return how many."""
        count = 0
        while len(self._files) > 1 and self._files[0].end_offset < commit_log_min:
            self._files.pop(0).delete()
            count += 1
        return count

    @property
    def end_commit_log_offset(self) -> int:
        """The offset of the newest message that was put; −1 when there is none.

        Perhaps not all of its keys were, if that was when the power went: see ``hashes_at_end``.
        """
        return self._files[-1].end_offset if self._files else -1

    @property
    def begin_commit_log_offset(self) -> int:
        """The offset of the oldest message that was put; −1 when there is none."""
        return self._files[0].begin_offset if self._files else -1

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The files, oldest first, as they are now."""
        return tuple(self._files)

    def hashes_at_end(self) -> list[int]:
        """The key hashes that were put for the message at ``end_commit_log_offset``."""
        hashes: list[int] = []
        for file in reversed(self._files):
            if file.end_offset != self.end_commit_log_offset:
                break
            hashes = file.hashes_at_end() + hashes
            if file.entry(1)[1] != file.end_offset:
                break
        return hashes

    def candidates(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Commit log offsets of messages that may carry *key*, newest first, none twice in a row.

        None comes after a millisecond in which none was found, so that the caller can let others
        go on; files may be added and deleted meanwhile. The time window is widened by a second:
        verify topic, key and time on the record.
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
        """The first *count_max* offsets of ``candidates``."""
        found: list[int] = []
        if count_max > 0:
            for offset in self.candidates(topic, key, begin_ms, end_ms):
                if offset is not None:
                    found.append(offset)
                if len(found) == count_max:
                    break
        return found


def numbered_paths(directory: Path) -> list[Path]:
    """Files named by a number, oldest first; RocketMQ too skips other names."""
    try:
        paths = [path for path in directory.iterdir() if path.name.isdecimal() and path.is_file()]
    except FileNotFoundError:
        return []
    return sorted(paths, key=lambda path: int(path.name))
