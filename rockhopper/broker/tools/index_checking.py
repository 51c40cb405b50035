"""Compare the index with the log: entries with record keys, links, slots and headers.

Entries are in log order, so the keys of the records and the entries are two lists that can be
compared side by side. An entry that is not the next key is still correct if its record has the key:
RocketMQ adds entries for tags, and some entries twice.
"""

import mmap
import os
from array import array
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rockhopper.broker.store.files.mapped_file import map_whole
from rockhopper.broker.tools.findings import REBUILD, Findings
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.protocol.java_hash import index_key_hash
from rockhopper.protocol.store.expected import Record, expect_keys, keys_and_tags
from rockhopper.protocol.store.queue_layout import (
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_SIZE_BYTES,
    INDEX_SECONDS_MAX,
    IndexGeometry,
)
from rockhopper.protocol.store.walking import TIMED_KEY

_AHEAD = 64
_SLICE_ENTRIES = 8192
# The slack for the time of the last entry after a crash truncated the index: entries count in
# seconds.
_END_SLACK_MS = 999


class IndexEntry(NamedTuple):
    """An entry and its place."""

    file: "CheckedIndexFile"
    number: int
    hash: int
    offset: int
    seconds: int


class _DamageRun(NamedTuple):
    path: Path
    position: int
    what: str
    length: int


class DamageRuns:
    """Merges adjacent damages of one kind; reports them when the run ends."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._runs: dict[str, _DamageRun] = {}

    def record_damage(
        self, kind: str, path: Path, position: int, step_bytes: int, what: str, length: int = 1
    ) -> None:
        """Add a damage; the next one of its run would be *step_bytes* after it.

        *length* is the count if several are known already.
        """
        run = self._runs.get(kind)
        if run is not None and (run.path, run.position + run.length * step_bytes) == (
            path,
            position,
        ):
            self._runs[kind] = run._replace(length=run.length + 1)
            return
        self._end(kind)
        self._runs[kind] = _DamageRun(path, position, what, length)

    def report_remaining(self) -> None:
        """Report the remaining runs."""
        for kind in list(self._runs):
            self._end(kind)

    def _end(self, kind: str) -> None:
        run = self._runs.pop(kind, None)
        if run is not None:
            place = {"file_position": run.position}
            what = run.what
            if run.length > 1:
                place["count"] = run.length
                what = f"{what}, and so on"
            self._findings.report("index", run.path, what, REBUILD, **place)


class CheckedIndexFile:
    """One file of the index: first its entries in order, then its slots and header."""

    def __init__(
        self, path: Path, shape: IndexGeometry, former_end_ms: int | None, *, is_settled: bool
    ) -> None:
        """*is_settled* means that the header counts all entries.

        *former_end_ms* is the end time of the previous file; 0 if the index begins with this file,
        None if the previous file may have been deleted. Raises OSError.
        """
        self.path = path
        self._former_end_ms = former_end_ms
        self.slot_count = shape.slot_count
        self._entry_count_max = shape.entry_count_max
        self._is_settled = is_settled
        self.entries_at = INDEX_HEADER_SIZE_BYTES + 4 * shape.slot_count
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._data: mmap.mmap = map_whole(descriptor, shape.file_size_bytes, writable=False)
        finally:
            os.close(descriptor)
        self.header = INDEX_HEADER.unpack_from(self._data)
        self._newest = array("i", bytes(4 * shape.slot_count))
        self.next_number = 1
        self.first_offset = self.last_offset = 0

    def entries(self, runs: DamageRuns) -> Iterator[IndexEntry]:
        """Yield every entry; report wrong links."""
        end = min(max(self.header[5], 1), self._entry_count_max)
        newest, slot_count = self._newest, self.slot_count
        while True:
            stop = min(self.next_number + _SLICE_ENTRIES, end)
            if self.next_number >= stop:
                if self._is_settled or not self._continues(end):
                    return
                stop = end = end + 1
            start = self.next_number
            data = self._data[self.position_of(start) : self.position_of(stop)]
            for number, entry in enumerate(INDEX_ENTRY.iter_unpack(data), start):
                key_hash, offset, seconds, link = entry
                slot = key_hash % slot_count
                if link != newest[slot]:
                    self.name(
                        runs, "link", number, f"entry {number} links to {link}, not {newest[slot]}"
                    )
                newest[slot] = number
                if number == 1:
                    self.first_offset = offset
                self.last_offset = offset
                self.next_number = number + 1
                yield IndexEntry(self, number, key_hash, offset, seconds)

    def _continues(self, number: int) -> bool:
        if number >= self._entry_count_max:
            return False
        at = self.position_of(number)
        return bool(self._data[at : at + INDEX_ENTRY_SIZE_BYTES].strip(b"\0"))

    def position_of(self, number: int) -> int:
        """Return the position of an entry."""
        return self.entries_at + number * INDEX_ENTRY_SIZE_BYTES

    def may_have(self, number: int, seconds: int, time_ms: int) -> bool:
        """Return whether the entry of a message stored at *time_ms* may have *seconds*.

        For the first entry of a file, the seconds count from the end of the previous file. If a
        crash truncated that file, its end is known only to the second.
        """
        if number > 1:
            return seconds == _seconds_between(self.header[0], time_ms)
        former_end_ms = self._former_end_ms
        if former_end_ms is None:
            return seconds >= 0
        slack = 1 if former_end_ms else 0
        return abs(seconds - _seconds_between(former_end_ms, time_ms)) <= slack

    def finish(self, runs: DamageRuns, view: StoreView) -> None:
        """Compare slots and header with the entries, all of which must have been read."""
        wanted = self._newest
        used = self.slot_count - wanted.count(0)
        wanted.byteswap()
        held = self._data[INDEX_HEADER_SIZE_BYTES : self.entries_at]
        if wanted.tobytes() != held:
            found = array("i", held)
            found.byteswap()
            wanted.byteswap()
            wrong = [
                slot
                for slot, (want, have) in enumerate(zip(wanted, found, strict=True))
                if want != have and (self._is_settled or have < self.next_number)
            ]
            for slot in wrong[:1]:
                what = f"slot {slot} holds {found[slot]}, not {wanted[slot]}"
                at = INDEX_HEADER_SIZE_BYTES + 4 * slot
                runs.record_damage("slot", self.path, at, 4, what, len(wrong))
        if not self._is_settled or self.next_number == 1:
            return
        begin_ms, end_ms, first_offset, last_offset, used_count, number = self.header
        for name, have, want in (
            ("first time", begin_ms, _time_ms(view, self.first_offset, begin_ms)),
            ("last time", end_ms, _time_ms(view, self.last_offset, end_ms, _END_SLACK_MS)),
            ("first offset", first_offset, self.first_offset),
            ("last offset", last_offset, self.last_offset),
            ("number of slots in use", used_count, used),
            ("number of entries", number, self.next_number),
        ):
            if have != want:
                what = f"its header's {name} is {have}, not {want}"
                runs.record_damage(name, self.path, 0, INDEX_HEADER_SIZE_BYTES, what)

    def name(self, runs: DamageRuns, kind: str, number: int, what: str) -> None:
        """Report a damage of an entry."""
        runs.record_damage(kind, self.path, self.position_of(number), INDEX_ENTRY_SIZE_BYTES, what)


class IndexCheck:
    """A comparison of the index with the log."""

    def __init__(self, view: StoreView, findings: Findings) -> None:
        self._view = view
        self._findings = findings
        self._keys: deque[tuple[int, int, int]] = deque()
        self._runs = DamageRuns(findings)
        self._entries = self._all_entries()
        self._ahead: deque[IndexEntry] = deque()
        self._missing: tuple[Path, int, int] | None = None
        self.entry_count = 0
        self.key_count = 0
        """The number of keys in the records, with or without an entry."""
        paths = view.index_files()
        self._is_on = view.geometry is not None and (bool(paths) or _should_be_there(view))
        if paths and view.geometry is None:
            what = "index files skipped: pass --config, which has their sizes"
            findings.notes[what] += len(paths)

    def _all_entries(self) -> Iterator[IndexEntry]:
        view, findings = self._view, self._findings
        paths, shape = view.index_files(), view.geometry
        former_end_ms = None if view.log.min_offset else 0
        for path in paths if shape is not None else ():
            assert shape is not None
            is_settled = view.is_clean or path != paths[-1]
            try:
                if path.stat().st_size < shape.file_size_bytes:
                    what = f"the file has {path.stat().st_size} bytes, not {shape.file_size_bytes}"
                    findings.report("index", path, what, REBUILD)
                    former_end_ms = None
                    continue
                file = CheckedIndexFile(path, shape, former_end_ms, is_settled=is_settled)
            except FileNotFoundError:
                former_end_ms = None
                continue
            former_end_ms = file.header[1]
            yield from file.entries(self._runs)
            file.finish(self._runs, view)

    # Keys from the log.

    def take_keys(self, packed_keys: bytes) -> None:
        """Expect the entries of plain records."""
        self.key_count += len(packed_keys) // TIMED_KEY.size
        if self._is_on:
            self._keys.extend(TIMED_KEY.iter_unpack(packed_keys))
            self._compare(_AHEAD)

    def take_record(self, record: Record) -> None:
        """Expect the entries of one record."""
        hashes = expect_keys(record)
        self.key_count += len(hashes)
        if self._is_on:
            offset, time_ms = record.offset, record.store_time_ms
            self._keys.extend((key, offset, time_ms) for key in hashes)
            self._compare(_AHEAD)

    # Comparison.

    def _peek(self, number: int = 0) -> IndexEntry | None:
        while len(self._ahead) <= number:
            entry = next(self._entries, None)
            if entry is None:
                return None
            self._ahead.append(entry)
        return self._ahead[number]

    def _compare(self, keys_left: int) -> None:
        keys = self._keys
        while len(keys) > keys_left:
            entry = self._peek()
            if entry is None:
                self._no_more_entries()
                return
            key_hash, offset, time_ms = keys[0]
            if entry.hash == key_hash and entry.offset == offset:
                self._name_missing()
                self._look_at_time(entry, time_ms)
                self._ahead.popleft()
                keys.popleft()
                self.entry_count += 1
            else:
                self._settle(entry)

    def _settle(self, entry: IndexEntry) -> None:
        """Handle an entry that is not the next expected key: find out which of the two is wrong."""
        keys = self._keys
        if entry.offset < self._view.log.min_offset <= keys[0][1] and entry.offset >= 0:
            self._ahead.popleft()  # Its message has expired.
            return
        if not self._is_entry_of_its_record(entry):
            following = self._peek(1)
            self._name_wrong(entry)
            self._ahead.popleft()
            if following is None or following[2:4] != keys[0][:2]:
                keys.popleft()
            return
        if entry.offset <= keys[0][1] and (entry.hash, entry.offset) not in _pairs(keys):
            self._ahead.popleft()  # An entry for a tag, or a duplicate.
            return
        self._miss_before(entry)

    def _miss_before(self, entry: IndexEntry) -> None:
        keys = self._keys
        while keys and (entry.hash, entry.offset) != keys[0][:2] and keys[0][1] <= entry.offset:
            self._miss(entry.file.path, keys.popleft())

    def _is_entry_of_its_record(self, entry: IndexEntry) -> bool:
        view = self._view
        if entry.offset >= view.end:
            return not view.is_clean
        record = view.record_at(entry.offset)
        if record is None:
            return view.is_in_hole(entry.offset, entry.offset + 1)
        topic = record.topic.decode("utf-8", "replace")
        tags = keys_and_tags(record.properties).tags
        of_tags = index_key_hash(topic, f"T#{tags}") if tags else -1
        return entry.hash in (*expect_keys(record), of_tags)

    def _name_wrong(self, entry: IndexEntry) -> None:
        what = (
            f"entry {entry.number} does not point to a record with its key (log offset "
            f"{entry.offset})"
        )
        entry.file.name(self._runs, "key", entry.number, what)

    def _miss(self, path: Path, key: tuple[int, int, int]) -> None:
        offset = key[1]
        record = self._view.record_at(offset)
        if record is not None and not self._view.is_gone(record.topic.decode(), offset):
            first = offset if self._missing is None else self._missing[1]
            count = 0 if self._missing is None else self._missing[2]
            self._missing = path, first, count + 1

    def _name_missing(self) -> None:
        """Report adjacent missing entries as one."""
        if self._missing is not None:
            path, offset, count = self._missing
            self._missing = None
            what = "entries for keys are missing from this message on"
            self._findings.report("index", path, what, REBUILD, log_offset=offset, count=count)

    def _no_more_entries(self) -> None:
        """Handle the end of the index: later keys of the log are missing, or not indexed yet."""
        count = len(self._keys)
        if not self._view.is_clean:
            self._findings.notes["keys that the index does not have yet"] += count
        else:
            for key in self._keys:
                self._miss((self._view.index_files() or [self._view.layout.index])[-1], key)
        self._keys.clear()

    def _look_at_time(self, entry: IndexEntry, time_ms: int) -> None:
        if not entry.file.may_have(entry.number, entry.seconds, time_ms):
            wanted = _seconds_between(entry.file.header[0], time_ms)
            what = f"{entry.seconds} s after the start of the file, not {wanted}"
            if entry.number == 1:
                what = f"{entry.seconds} s after the end of the previous file, which is wrong"
            what = f"entry {entry.number} says {what}"
            entry.file.name(self._runs, "time", entry.number, what)

    def finish(self) -> None:
        """Compare the remaining keys, and check the entries that no record expects."""
        if not self._is_on:
            return
        self._compare(0)
        self._name_missing()
        while (entry := self._peek()) is not None:
            is_expired = 0 <= entry.offset < self._view.log.min_offset
            if not is_expired and not self._is_entry_of_its_record(entry):
                self._name_wrong(entry)
            self._ahead.popleft()
        self._runs.report_remaining()


def _seconds_between(begin_ms: int, time_ms: int) -> int:
    return min(max((time_ms - begin_ms) // 1000, 0), INDEX_SECONDS_MAX) if begin_ms > 0 else 0


def _should_be_there(view: StoreView) -> bool:
    """Return whether the store had an index, by its inventory or by default."""
    has_had = view.noted is None or view.noted.index_end is not None
    return has_had and view.config.store.index_enabled


def _time_ms(view: StoreView, offset: int, held_ms: int, slack_ms: int = 0) -> int:
    """Return the store time of the record at an offset.

    Return *held_ms* if the time is unknown, or if *held_ms* is near enough by the rules of
    index_chains.py.
    """
    record = view.record_at(offset)
    if record is None or 0 <= held_ms - record.store_time_ms <= slack_ms:
        return held_ms
    return record.store_time_ms


def _pairs(keys: deque[tuple[int, int, int]]) -> set[tuple[int, int]]:
    return {keys[number][:2] for number in range(min(len(keys), _AHEAD))}
