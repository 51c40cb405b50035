"""The scrub of the index: compare its entries with the keys of the records, in the log's order.

Entries are in the order of the log. So the keys of the records that the scrub walks over
(scrubbing.py) and the entries of the index files are two lists that must match:

- An entry that differs from its key, while the next ones match again, is wrong. It is repaired in
  place, and so are its time, links and slots (index_chains.py).
- Entries between two matches that belong to no key are strays: they lead to no record of their key.
  Those that RocketMQ adds for tags, or adds twice, are fine.
- An entry of the right record with another hash is right if it is in that hash's chain: then the
  key in the record's properties is damaged.
- Keys between two matches without an entry are missing. No entry can be inserted between two, and
  queries, recovery and RocketMQ rely on their order. So the file and those after it are rebuilt
  from the log at the next start (index.py).

Entries are compared a few at a time, in the event loop; the caller has loaded their pages into
memory.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.index.index import MessageIndex, mark_for_rebuilding
from rockhopper.broker.store.index.index_chains import SLOT_SLICE_BYTES, IndexChains
from rockhopper.broker.store.index.index_file import ENTRY_SIZE_BYTES, IndexFile
from rockhopper.protocol.java_hash import index_key_hash
from rockhopper.protocol.store.expected import keys_and_tags
from rockhopper.protocol.store.message_codec import RecordCheck

log = structlog.get_logger("broker.store")

ENTRIES_PER_STEP = 128
ENTRY_COST_BYTES = 256
READ_AHEAD_BYTES = 64 << 10
# How far to search for the next match of keys and entries: some pages of entries.
WINDOW = 1000
# Entries added since the pass began that are read before the last file is left to the next pass.
_FED_MAX = 200_000
_RECENT_MAX = 4 * WINDOW
# Lasting faults are logged once.
_NAMED_MAX = 10_000
# Log lines about repairs in one pass; writing one takes as long as a hundred repairs.
_LINES_MAX = 100


class Key(NamedTuple):
    """One key of a record; *is_needed* means that it must have an entry."""

    hash: int
    offset: int
    store_time_ms: int
    is_needed: bool


class IndexScrub:
    """Pass after pass over an index, in step with the pass over the log."""

    def __init__(self, index: MessageIndex, layout: StoreLayout) -> None:
        self._index = index
        self._layout = layout
        self._to_rebuild: set[str] = set()
        self._named: set[int] = set()
        self.mended_count = 0
        """Entries, slots and headers repaired since the start."""
        self.fault_count = 0
        """Faults logged but not repaired: strays, places with missing entries, damaged keys."""
        self._keys: deque[Key] = deque()
        # Tags by their records' offsets, and the matched hashes of the last record.
        self._recent: OrderedDict[int, tuple[str, str]] = OrderedDict()
        self._taken: set[int] = set()
        self._taken_offset = -1
        self._holes: deque[tuple[int, int]] = deque(maxlen=100)
        self._closing: deque[IndexChains] = deque()
        self._chains: IndexChains | None = None
        self._start = 0
        self._is_in_front = True
        self._is_over = False
        self._fed = 0
        self._is_quiet = False
        self._line_count = 0

    # Calls from the scrub of the log.

    def start_pass(self, log_offset: int) -> None:
        """Begin a pass, with the record at *log_offset* of the log."""
        self._abandon()
        self._recent.clear()
        self._taken_offset = -1
        self._holes.clear()
        self._is_over = self._is_quiet = False
        self._fed = self._line_count = 0
        self._begin_at(log_offset)

    def _abandon(self) -> None:
        for chains in (*self._closing, *([self._chains] if self._chains else [])):
            chains.close()
        self._closing.clear()
        self._chains = None
        self._keys.clear()
        self._is_over = True

    def _begin_at(self, log_offset: int) -> None:
        self._start = log_offset
        self._is_in_front = True

    def expect(self, check: RecordCheck, keys: list[int], *, is_needed: bool) -> None:
        """Record the hashes of the *keys* of the next record of the log, and its tags."""
        if self._is_over or check.commit_log_offset < self._start:
            return
        offset, time_ms = check.commit_log_offset, check.store_time_ms
        for key_hash in keys:
            self._keys.append(Key(key_hash, offset, time_ms, is_needed))
        if tags := keys_and_tags(check.properties_bytes).tags:
            self._recent[offset] = check.topic, tags
            if len(self._recent) > _RECENT_MAX:
                del self._recent[next(iter(self._recent))]

    def expect_anything(self, start: int, end: int) -> None:
        """Record a damaged range of the log: entries may point into it."""
        self._holes.append((start, end))

    # Queries from the scrub of the log.

    @property
    def is_behind(self) -> bool:
        """Whether the pass over the log should wait."""
        return bool(self._closing) or len(self._keys) > 4 * WINDOW

    def place(self) -> tuple[str, int, int] | None:
        """Return file, start and size of the next bytes to compare, for loading into memory."""
        if self._closing:
            return self._closing[0].place()
        chains = self._find_chains()
        if chains is None:
            return None
        start = chains.file.entries_at + chains.number * ENTRY_SIZE_BYTES
        return str(chains.file.path), start, READ_AHEAD_BYTES

    def step(self, *, is_last: bool = False) -> int:
        """Compare some entries; return the cost in bytes, 0 if there is nothing to do now.

        *is_last* means that the pass over the log has ended.

        Raises:
            OSError: the disk is failing or full; the pass over the index has ended.
        """
        try:
            return self._step(is_last=is_last)
        except OSError:
            self._abandon()
            raise

    def _step(self, *, is_last: bool) -> int:
        if self._closing:
            return self._close_a_slice(self._closing[0])
        count = 0
        while count < ENTRIES_PER_STEP and self._keys and not self._closing:
            moved = self._compare(is_last=is_last)
            if not moved:
                break
            count += moved
        if not count and is_last:
            count = self._end()
        return count * ENTRY_COST_BYTES

    # The files.

    def _find_chains(self) -> IndexChains | None:
        """Return the chains of the file with the next entry; None at the end of the index."""
        chains = self._chains
        if chains is not None and chains.file.descriptor < 0:
            chains.close()  # Its messages have expired.
            self._chains = chains = None
        if chains is None:
            files = self._index.files
            if not files or self._is_over:
                return None
            self._chains = chains = IndexChains(files[0])
        while chains.number >= chains.file.next_number:
            following = self._following(chains.file)
            if following is None:
                return None
            self._closing.append(chains)
            self._chains = chains = IndexChains(following)
        return chains

    def _following(self, file: IndexFile) -> IndexFile | None:
        files = self._index.files
        number = files.index(file) + 1 if file in files else 0
        return files[number] if number < len(files) else None

    def _walk_ahead(self) -> Iterator[tuple[int, int]]:
        """Yield hash and offset of the entries from the next one on, across files."""
        chains = self._find_chains()
        file: IndexFile | None = None if chains is None else chains.file
        number = 0 if chains is None else chains.number
        while file is not None:
            while number < file.next_number:
                yield file.entry(number)[:2]
                number += 1
            file, number = self._following(file), 1

    # Comparing.

    def _compare(self, *, is_last: bool) -> int:
        """Settle the next key, or more; return how many entries and keys, 0 to wait."""
        chains = self._find_chains()
        key = self._keys[0]
        if chains is not None:
            entry = chains.file.entry(chains.number)
            if entry[0] == key.hash and entry[1] == key.offset:
                self._is_in_front = False
                self._take(key)
                self._keys.popleft()
                return 1
            if self._is_in_front and entry[1] < self._start:
                self._pass_by(1)
                return 1
            is_again = entry[1] == self._taken_offset and entry[0] in self._taken
            if is_again or self._is_of_tags(entry[:2]):
                self._pass_by(1)
                return 1
        if len(self._keys) < WINDOW and not is_last:
            return 0
        return max(self._settle(), ENTRIES_PER_STEP)

    def _settle(self) -> int:
        """Find where keys and entries match again, and judge those in between."""
        keys = list(islice(self._keys, WINDOW))
        ahead = list(islice(self._walk_ahead(), WINDOW))
        if self._is_in_front and (in_front := self._count_in_front(ahead)):
            self._pass_by(in_front)
            return in_front
        places = {(key.hash, key.offset): at for at, key in reversed(list(enumerate(keys)))}
        for entry_count, entry in enumerate(ahead):
            if entry in places:
                return self._judge(keys[: places[entry]], ahead[:entry_count])
        if len(keys) == WINDOW:
            return self._give_up()
        # The end of the pass: entries added since then do not matter.
        beyond = keys[-1].offset
        entries = [entry for entry in ahead[: len(keys)] if entry[1] <= beyond]
        if len(ahead) <= len(keys):
            entries = ahead
        return self._judge(keys, entries)

    def _count_in_front(self, ahead: list[tuple[int, int]]) -> int:
        """Return how many entries belong to records before the start of the pass."""
        known = {key.offset for key in islice(self._keys, WINDOW)}
        last = 0
        for number, (_, offset) in enumerate(ahead, 1):
            if offset in known:
                break
            if 0 <= offset < self._start:
                last = number
        return last

    def _judge(self, keys: list[Key], entries: list[tuple[int, int]]) -> int:
        """Settle *keys* and *entries*, which do not match, before the next match."""
        taken = len(keys) + len(entries)
        needed = [key for key in keys if key.is_needed]
        if len(entries) == len(keys):
            self._mend(keys, entries)
        elif len(entries) == len(needed):
            self._mend(needed, entries)
        elif not needed:
            self._name_strays(entries)
            self._pass_by(len(entries))
        else:
            return self._give_up(len(needed))
        for _ in keys:
            self._keys.popleft()
        return max(taken, 1)

    def _mend(self, keys: list[Key], entries: list[tuple[int, int]]) -> None:
        chains = self._find_chains()
        if chains is None:
            return
        file, number, before = chains.file, chains.number, self.mended_count
        self._is_quiet = True
        for key, entry in zip(keys, entries, strict=True):
            chains = self._find_chains()
            is_of_record = entry[1] == key.offset and entry[0] != key.hash
            if chains is not None and is_of_record and chains.is_reachable_without(key.hash):
                self._name_damaged_key(chains.file, key)
                self._pass_by(1)
            else:
                self._take(key)
        self._is_quiet = False
        count, self.mended_count = self.mended_count - before, before
        if count:
            self._name_repaired(file, count, entry=number)

    def _take(self, key: Key) -> None:
        chains = self._find_chains()
        if chains is None:
            return
        number = chains.number
        was = chains.file.entry(number)
        if chains.repair_entry(key.hash, key.offset, key.store_time_ms):
            self._name_repaired(chains.file, 1, entry=number, was=was)
        if key.offset != self._taken_offset:
            self._taken_offset = key.offset
            self._taken.clear()
        self._taken.add(key.hash)

    def _pass_by(self, count: int) -> None:
        for _ in range(count):
            chains = self._find_chains()
            if chains is None:
                return
            number = chains.number
            was = chains.file.entry(number)
            if chains.take_as_it_is():
                self._name_repaired(chains.file, 1, entry=number, was=was)

    def _is_of_tags(self, entry: tuple[int, int]) -> bool:
        topic, tags = self._recent.get(entry[1], ("", ""))
        return bool(tags) and index_key_hash(topic, f"T#{tags}") == entry[0]

    # Logging.

    def _name_repaired(self, file: IndexFile, count: int, **where: object) -> None:
        self.mended_count += count
        if self._is_quiet or self._line_count > _LINES_MAX:
            return
        self._line_count += 1
        log.warning(
            "an index file was wrong and has been repaired from the commit log"
            + (", as are others in this pass" if self._line_count > _LINES_MAX else ""),
            path=str(file.path),
            count=count,
            **where,
        )

    def _name_strays(self, entries: list[tuple[int, int]]) -> None:
        strays = [
            entry
            for entry in entries
            if not any(start <= entry[1] < end for start, end in self._holes)
            and not self._is_of_tags(entry)
        ]
        chains = self._find_chains()
        if strays and chains is not None and strays[0][1] not in self._named:
            if len(self._named) < _NAMED_MAX:
                self._named.add(strays[0][1])
            self.fault_count += len(strays)
            log.warning(
                "index entries point to no record of their key; queries ignore them",
                path=str(chains.file.path),
                entry=chains.number,
                count=len(strays),
                commit_log_offset=strays[0][1],
            )

    def _name_damaged_key(self, file: IndexFile, key: Key) -> None:
        if key.offset in self._named:
            return
        self.fault_count += 1
        if len(self._named) < _NAMED_MAX:
            self._named.add(key.offset)
        log.error(
            "a message's properties are damaged: the index has another key for it",
            path=str(file.path),
            commit_log_offset=key.offset,
        )

    def _give_up(self, missing: int = 0) -> int:
        """Mark the file for rebuilding, and continue after it."""
        chains = self._find_chains() or self._chains
        if chains is None:
            count = len(self._keys)
            self._keys.clear()
            return count
        file = chains.file
        if file.path.name not in self._to_rebuild:
            mark_for_rebuilding(self._layout, file.path.name)
            self._to_rebuild.add(file.path.name)
            self.fault_count += max(missing, 1)
            log.error(
                "index entries are missing: queries by key may miss their messages; the next "
                "start rebuilds the index from this file on",
                path=str(file.path),
                entry=chains.number,
                commit_log_offset=self._keys[0].offset,
                count=missing or None,
            )
        chains.close()
        following = self._following(file)
        self._chains = None if following is None else IndexChains(following)
        self._is_over = following is None
        self._begin_at(file.end_offset + 1)
        while self._keys and (self._is_over or self._keys[0].offset < self._start):
            self._keys.popleft()
        return 1

    # Slots.

    def _close_a_slice(self, chains: IndexChains) -> int:
        if chains.file.descriptor < 0 or chains.is_compared:
            if chains.file.descriptor >= 0 and chains.mend_header():
                self._name_repaired(chains.file, 1, part="header")
            chains.close()
            self._closing.popleft()
            return ENTRY_COST_BYTES
        _, start, size_bytes = chains.place()
        repaired = chains.compare_slots()
        if repaired:
            self._name_repaired(chains.file, repaired, part="slots", position=start)
        return size_bytes

    def _end(self) -> int:
        """Read the entries added since the pass began, then compare the last file's slots."""
        self._is_over = True  # Further records do not matter; their entries are skipped.
        chains = self._find_chains()
        if chains is not None and self._fed < _FED_MAX:
            count = min(ENTRIES_PER_STEP, chains.file.next_number - chains.number)
            self._pass_by(count)
            self._fed += count
            return count
        return self._end_with_slots()

    def _end_with_slots(self) -> int:
        chains = self._chains
        if chains is None or self._find_chains() is not None or chains.is_compared:
            return 0
        repaired = chains.compare_slots()
        if repaired:
            self._name_repaired(chains.file, repaired, part="slots")
        if chains.is_compared and chains.mend_header():
            self._name_repaired(chains.file, 1, part="header")
        return SLOT_SLICE_BYTES // ENTRY_COST_BYTES
