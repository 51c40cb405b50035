"""MessageIndex: finds messages by key, in the files of the ``index`` directory.

Keys are found by a 31-bit hash of topic and key, so the caller must check the key in the record.
Missing entries are added again from the commit log: recovery continues at
``end_commit_log_offset``. So an index file that cannot be trusted is simply deleted, with those
after it. (RocketMQ deletes the newest one after every crash.)

Files are named by the local time at which they were made, yyyyMMddHHmmssSSS.

Two checks come before the files are loaded.

Geometry: commit log and consume queue files show their size themselves. An index file does not: its
length, 40 + 4·slots + 20·entries, fits many pairs, and with the wrong pair a search silently finds
nothing. So the pair is saved beside the store (protocol.store.queue_layout), and a setting that
contradicts it is refused while there are index files. A store made by RocketMQ has no such note;
there the length decides. A damaged note counts as missing.

Files to rebuild: ``rockhopper/index-to-rebuild`` holds the name of the first index file that lacks
entries. Entries are in the order of the log, and only the last file may have room, so the files
after it must go as well. They are kept in the quarantine, and their entries are added again from
the commit log (index_catch_up.py).
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError, GeometryError
from rockhopper.broker.store.index.index_file import IndexFile
from rockhopper.broker.store.index.index_repair import repair
from rockhopper.protocol.java_hash import index_key_hash
from rockhopper.protocol.store.queue_layout import (
    GEOMETRY_FILE,
    INDEX_ENTRY_COUNT_MAX,
    INDEX_SLOT_COUNT,
    IndexGeometry,
    decode_geometry,
    encode_geometry,
)

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

        Call ``check_geometry`` first: a file of another length is damaged here, and damaged files
        are deleted to be rebuilt.

        Raises:
            OSError: the files cannot be read, or not be repaired.
        """
        paths = list_numbered_paths(self._directory)
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
        newest = max((path.name for path in list_numbered_paths(self._directory)), default="")
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


def list_numbered_paths(directory: Path) -> list[Path]:
    """Return the files named by a number, oldest first; RocketMQ skips other names too."""
    try:
        paths = [path for path in directory.iterdir() if path.name.isdecimal() and path.is_file()]
    except FileNotFoundError:
        return []
    return sorted(paths, key=lambda path: int(path.name))


def check_geometry(layout: StoreLayout, configured: IndexGeometry) -> None:
    """Refuse index files of another geometry than *configured*, else save the geometry.

    Afterwards an index file of another length is a damaged one.

    Raises:
        GeometryError: names both geometries and what to do.
        OSError: the note cannot be read or written.
    """
    noted = load_geometry(layout)
    lengths = _index_file_lengths(layout.index)
    if noted is not None and noted != configured and lengths:
        raise GeometryError(
            f"the index files in {layout.index} were created with {noted}, but the settings are "
            f"{configured}: change them back, or delete {layout.index} to rebuild the index from "
            "the commit log"
        )
    expected_bytes = configured.file_size_bytes
    if noted is None and lengths and expected_bytes not in lengths.values():
        path, actual_bytes = next(iter(lengths.items()))
        raise GeometryError(
            f"{path} is {actual_bytes} bytes long, but {configured} make {expected_bytes}: set "
            "both to the values that the store was created with (the length is 40 + "
            f"4·maxHashSlotNum + 20·maxIndexNum), or delete {layout.index} to rebuild the index "
            "from the commit log"
        )
    if noted != configured or (layout.own / GEOMETRY_FILE).read_bytes() != encode_geometry(
        configured
    ):
        save_geometry(layout, configured)


def load_geometry(layout: StoreLayout) -> IndexGeometry | None:
    """Return the saved geometry; None if the store has no note, or an unreadable one."""
    path = layout.own / GEOMETRY_FILE
    try:
        return decode_geometry(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        log.warning("the saved index geometry is unreadable", path=str(path), reason=str(error))
        return None


def save_geometry(layout: StoreLayout, geometry: IndexGeometry) -> None:
    """Save *geometry*, durably.

    Raises:
        OSError: the former note is still in place.
    """
    disk.make_directories_durably(layout.own)
    disk.write_atomically(layout.own / GEOMETRY_FILE, encode_geometry(geometry))


def _index_file_lengths(directory: Path) -> dict[Path, int]:
    if not directory.is_dir():
        return {}
    paths = sorted(path for path in directory.iterdir() if path.name.isdecimal())
    return {path: path.stat().st_size for path in paths}


def mark_for_rebuilding(layout: StoreLayout, name: str) -> None:
    """Mark the files from *name* on for rebuilding. Raises OSError."""
    path = layout.index_to_rebuild
    noted = _read_noted_end(layout)
    if noted is None or int(name) < noted:
        disk.make_directories_durably(path.parent)
        disk.write_atomically(path, name.encode())


def move_marked_aside(layout: StoreLayout) -> None:
    """Move the marked files into the quarantine. Raises OSError."""
    first = _read_noted_end(layout)
    if first is None:
        return
    aside = layout.quarantine / "index"
    disk.make_directories_durably(aside)
    # The last one first: a crash then leaves an index without its end.
    for path in reversed(list_numbered_paths(layout.index)):
        if int(path.name) >= first:
            target, number = aside / path.name, 0
            while target.exists():
                number += 1
                target = aside / f"{path.name}-{number}"
            disk.move(path, target)
            log.warning("rebuilding an index file", path=str(path), kept_as=str(target))
    disk.remove_files([layout.index_to_rebuild])


def _read_noted_end(layout: StoreLayout) -> int | None:
    try:
        name = layout.index_to_rebuild.read_bytes().decode("ascii", "replace")
    except FileNotFoundError:
        return None
    # If the mark cannot be read, it counts for all files.
    return int(name) if name.isdecimal() else 0
