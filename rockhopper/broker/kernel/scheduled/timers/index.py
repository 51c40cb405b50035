"""TimerIndex: the pending timed messages, on disk by slot and in memory near their time.

A distant slot has only a message count in memory. A slot is *open* from about a minute before its
time. It is then read in pieces into ``due``, and later messages for it are added there too. A slot
is finished once none of its messages waits and its minute is over.

    10:00    a message for 12:30:07 arrives: an entry in the file of slot 12:30
    12:29    the slot opens; the entry is read into ``due``
    12:30:07 the message is delivered, recorded in the slot's journal, and no longer waits
    12:31    the slot is finished, and its files are deleted
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rockhopper.broker.kernel.scheduled.timers.due import DueMessage, DueTimers
from rockhopper.broker.kernel.scheduled.timers.entries import (
    ENTRY,
    ENTRY_SIZE_BYTES,
    KIND_MESSAGE,
    KIND_WITHDRAWAL,
    LAST_FIELD_AT,
    SLOT_MS,
    TimerEntry,
)
from rockhopper.broker.kernel.scheduled.timers.slot_files import Note, SlotFiles

OPEN_AHEAD_MS = 60_000
LOAD_COUNT = 1024
# With more messages in memory, no slot is opened while there is something to deliver.
OPEN_COUNT_MAX = 200_000
# Takes a millisecond or less.
SLOTS_PER_STEP = 512


class Slot:
    """The state of one slot."""

    __slots__ = (
        "done",
        "end_offset",
        "is_open",
        "min_offset",
        "read_bytes",
        "waiting",
        "withdrawn",
    )

    def __init__(self) -> None:
        self.waiting = 0
        # The queue offset of the oldest message that may wait, and the one behind the newest entry.
        self.min_offset: int | None = None
        self.end_offset = 0
        self.is_open = False
        self.read_bytes = 0
        self.done: set[int] = set()
        self.withdrawn: set[int] = set()


class TimerIndex:
    """The pending timed messages. Handles files and numbers only, not messages or the store."""

    def __init__(self, directory: Path, quarantine: Path) -> None:
        self.files = SlotFiles(directory, quarantine)
        self.due = DueTimers()
        self._slots: dict[int, Slot] = {}
        self._closed: list[int] = []
        self._loading: list[int] = []
        self._opened: set[int] = set()
        # No slot has a message before this offset: later messages have larger offsets.
        self._oldest_offset = 0
        # Recalled messages whose recall is in the queue but not in a slot file yet.
        self._hidden: set[int] = set()
        self.waiting = 0

    def clear(self) -> None:
        """Remove every message, also from disk. Raises OSError."""
        self.files.wipe()
        self.due = DueTimers()
        self._slots = {}
        self._closed.clear()
        self._opened.clear()
        self._oldest_offset = 0
        self._loading.clear()
        self._hidden.clear()
        self.waiting = 0

    def load_deliveries(self) -> tuple[dict[int, list[Note]], int | None]:
        """Return the recorded deliveries by slot, and a slot whose journal is incomplete, if any.

        Raises:
            OSError: a file cannot be read or repaired.
        """
        noted: dict[int, list[Note]] = {}
        damaged: int | None = None
        for number in self.files.load():
            noted[number], is_whole = self.files.notes(number)
            if not is_whole:
                damaged = number
        return noted, damaged

    def load(
        self,
        end_offset: int,
        slot_bytes: Mapping[int, int],
        noted: Mapping[int, list[Note]],
        written: Callable[[list[Note]], set[Note]],
    ) -> None:
        """Load *slot_bytes* of each file, limited to messages before *end_offset*.

        *written* returns which of the *noted* deliveries took place; it receives them in the order
        of the attempts.
        """
        took_place = written([note for number in sorted(noted) for note in noted[number]])
        for number in sorted(noted):
            self.files.trim(number, slot_bytes.get(number, 0), end_offset)
            slot = self._slot(number)
            notes = [note for note in noted[number] if note in took_place]
            if len(notes) != len(noted[number]) or self.files.has_bare_notes(number):
                self.files.rewrite_notes(number, notes)
            slot.done = {offset for offset, _ in notes}
            count = self.files.entries_size(number) // ENTRY_SIZE_BYTES
            done = self._count_done(number, slot.done) if slot.done else 0
            slot.waiting = count - 2 * self.files.count_withdrawals(number) - done
            self.waiting += slot.waiting
            first = self.files.read_entries(number, 0, ENTRY_SIZE_BYTES)
            if first:
                slot.min_offset = ENTRY.unpack(first)[4]
                slot.end_offset = end_offset

    def _count_done(self, number: int, done: set[int]) -> int:
        return sum(
            entry[3] == KIND_MESSAGE and entry[4] in done
            for piece in self.files.pieces(number)
            for entry in ENTRY.iter_unpack(piece)
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is no slot."""
        return not self._slots

    @property
    def slots(self) -> list[int]:
        """The slots, oldest first."""
        return sorted(self._slots)

    def _slot(self, number: int) -> Slot:
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = Slot()
            heapq.heappush(self._closed, number)
        return slot

    def insert_entries(self, entries: Iterable[TimerEntry]) -> None:
        """Add entries in the order of their queue offsets.

        Raises:
            OSError: none of them was added.
        """
        by_slot: dict[int, list[TimerEntry]] = {}
        for entry in entries:
            by_slot.setdefault(entry.slot, []).append(entry)
        self.files.append(
            [(slot, b"".join([ENTRY.pack(*e) for e in mine])) for slot, mine in by_slot.items()]
        )
        for number, mine in by_slot.items():
            slot = self._slot(number)
            size_before = self.files.entries_size(number) - len(mine) * ENTRY_SIZE_BYTES
            is_read = slot.is_open and slot.read_bytes == size_before
            for entry in mine:
                self._add(slot, entry, is_read)
            if is_read:
                slot.read_bytes = self.files.entries_size(number)
            slot.end_offset = mine[-1].queue_offset + 1

    def _add(self, slot: Slot, entry: TimerEntry, is_read: bool) -> None:
        if slot.min_offset is None:
            slot.min_offset = entry.queue_offset
        if entry.kind == KIND_WITHDRAWAL:
            if slot.is_open:
                slot.withdrawn.add(entry.mark)
            self._hidden.discard(entry.mark)
            slot.waiting -= 1
            self.waiting -= 1
            return
        if entry.queue_offset in slot.done:
            return
        slot.waiting += 1
        self.waiting += 1
        if is_read:
            self.due.insert(entry.due_ms, entry.queue_offset, entry.log_offset, entry.size_bytes)

    def _open_next_slot(self, now_ms: int) -> None:
        while self._closed and self._closed[0] * SLOT_MS <= now_ms + OPEN_AHEAD_MS:
            if self.due.count > OPEN_COUNT_MAX and (self.due.next_ms or 0) <= now_ms:
                return
            number = heapq.heappop(self._closed)
            slot = self._slots.get(number)
            if slot is None or slot.is_open:
                continue
            slot.withdrawn |= self.files.withdrawn(number)
            slot.is_open = True
            self._opened.add(number)
            self._loading.append(number)
            return

    def open_due(self, now_ms: int) -> bool:
        """Read a piece of the slots that are due soon; return whether there is more to read."""
        self._open_next_slot(now_ms)
        if not self._loading:
            return False
        number = self._loading[0]
        slot = self._slots[number]
        data = self.files.read_entries(number, slot.read_bytes, LOAD_COUNT * ENTRY_SIZE_BYTES)
        slot.read_bytes += len(data)
        for due_ms, log_offset, size_bytes, kind, queue_offset, _ in ENTRY.iter_unpack(data):
            if kind == KIND_MESSAGE and queue_offset not in slot.done:
                self.due.insert(due_ms, queue_offset, log_offset, size_bytes)
        if slot.read_bytes >= self.files.entries_size(number):
            self._loading.pop(0)
        return True

    @property
    def next_ms(self) -> int | None:
        """When the next delivery or opening of a slot is due; None if nothing waits."""
        times_ms = [] if self.due.next_ms is None else [self.due.next_ms]
        if self._closed:
            times_ms.append(self._closed[0] * SLOT_MS - OPEN_AHEAD_MS)
        return min(times_ms, default=None)

    def take(self, now_ms: int, count_max: int, size_bytes_max: int) -> list[DueMessage]:
        """Remove and return due messages, which are then delivered and recorded, or put back."""
        taken = self.due.take(now_ms, count_max, size_bytes_max)
        return [message for message in taken if not self._is_withdrawn(message)]

    def _is_withdrawn(self, message: DueMessage) -> bool:
        slot = self._slots[message.due_ms // SLOT_MS]
        return message.queue_offset in slot.withdrawn or message.queue_offset in self._hidden

    def note(self, messages: Iterable[DueMessage], log_end: int) -> None:
        """Record that the copies of *messages* are being written from *log_end* on.

        Raises:
            OSError: nothing was recorded.
        """
        by_slot: dict[int, list[int]] = {}
        for message in messages:
            by_slot.setdefault(message.due_ms // SLOT_MS, []).append(message.queue_offset)
        self.files.note(by_slot, log_end)

    def noted_elsewhere(self, offsets_of: Mapping[int, Sequence[int]], log_end: int) -> None:
        """Record, by slot, that another replica delivers indexed messages; repetition is allowed.

        Raises:
            OSError: nothing was recorded.
        """
        left = {
            number: [offset for offset in offsets if offset not in slot.done]
            for number, offsets in offsets_of.items()
            if (slot := self._slots.get(number)) is not None
        }
        self.files.note({number: offsets for number, offsets in left.items() if offsets}, log_end)
        for number, offsets in left.items():
            slot = self._slots[number]
            slot.done.update(offsets)
            slot.waiting -= len(offsets)
            self.waiting -= len(offsets)

    def undone_elsewhere(self, offsets_of: Mapping[int, Sequence[int]]) -> None:
        """Undo this for messages that were not delivered after all. Raises OSError."""
        for number, offsets in offsets_of.items():
            slot = self._slots.get(number)
            undone = set() if slot is None else slot.done.intersection(offsets)
            if slot is None or not undone:
                continue
            kept = [note for note in self.files.notes(number)[0] if note[0] not in undone]
            self.files.rewrite_notes(number, kept)
            slot.done -= undone
            slot.waiting += len(undone)
            self.waiting += len(undone)

    def take_back_note(self) -> None:
        """Undo the last ``note``."""
        self.files.take_back_note()

    def delivered(self, messages: Iterable[DueMessage]) -> None:
        """Stop counting *messages* as waiting: their copies are written."""
        for message in messages:
            self._slots[message.due_ms // SLOT_MS].waiting -= 1
            self.waiting -= 1

    def list_finished(self, now_ms: int) -> list[int]:
        """Return the slots without waiting messages."""
        return [
            number
            for number in sorted(self.list_begun_before(now_ms // SLOT_MS))
            if (slot := self._slots[number]).waiting <= 0
            and (not slot.is_open or slot.read_bytes >= self.files.entries_size(number))
        ]

    def list_begun_before(self, end: int) -> set[int]:
        """Return the slots with a smaller number, without examining later ones."""
        found = {number for number in self._opened if number < end}
        closed, places = self._closed, [0]
        while places:
            place = places.pop()
            if place < len(closed) and closed[place] < end:
                found.add(closed[place])
                # In a heap, everything below a later slot is later.
                places += (2 * place + 1, 2 * place + 2)
        return found & self._slots.keys()

    def end_offset(self, number: int) -> int:
        """Return the queue offset behind the newest entry of a slot."""
        return self._slots[number].end_offset

    def drop(self, number: int) -> None:
        """Remove a slot and delete its entries."""
        slot = self._slots.pop(number, None)
        self._opened.discard(number)
        if (slot is None or not slot.is_open) and number in self._closed:
            self._closed.remove(number)
            heapq.heapify(self._closed)
        self.files.drop_entries(number)

    def find(self, key: int, from_ms: int, to_ms: int) -> Iterator[TimerEntry]:
        """Yield pending messages due within [from_ms, to_ms] with the key hash *key*."""
        wanted = key.to_bytes(8, "big")
        for number in range(from_ms // SLOT_MS, to_ms // SLOT_MS + 1):
            if number not in self._slots:
                continue
            start = 0
            for piece in self.files.pieces(number):
                for at in _positions(piece, wanted, LAST_FIELD_AT):
                    entry = TimerEntry(*ENTRY.unpack_from(piece, at))
                    if (
                        entry.kind == KIND_MESSAGE
                        and from_ms <= entry.due_ms <= to_ms
                        and self._is_waiting(number, entry, start + at)
                    ):
                        yield entry
                start += len(piece)

    def _is_waiting(self, number: int, entry: TimerEntry, at: int) -> bool:
        slot = self._slots[number]
        offset = entry.queue_offset
        if offset in self._hidden or offset in slot.withdrawn or offset in slot.done:
            return False
        if not slot.is_open:
            return offset not in self.files.withdrawn(number)
        return at >= slot.read_bytes or self.due.holds(entry.due_ms, offset)

    def hide(self, queue_offset: int) -> None:
        """Exclude a message from delivery while its recall is on the way to the queue."""
        self._hidden.add(queue_offset)

    def withdraw(self, entry: TimerEntry) -> None:
        """Exclude a message from delivery permanently. Raises OSError: it is then still pending."""
        newest = max(self._slots[entry.slot].end_offset - 1, entry.queue_offset)
        self.insert_entries(
            [entry._replace(kind=KIND_WITHDRAWAL, queue_offset=newest, mark=entry.queue_offset)]
        )

    def unhide(self, queue_offset: int) -> None:
        """Include a hidden message in delivery again."""
        self._hidden.discard(queue_offset)

    def pending(self) -> Iterator[TimerEntry | None]:
        """Yield all waiting messages, slot by slot; the index may change in between.

        Yields None after each piece that was read, so that a caller can limit its work.
        """
        for number in list(self._slots):
            start = 0
            for piece in self.files.pieces(number):
                if number not in self._slots:
                    break
                for at, fields in enumerate(ENTRY.iter_unpack(piece)):
                    entry = TimerEntry(*fields)
                    position = start + at * ENTRY_SIZE_BYTES
                    if (
                        entry.kind == KIND_MESSAGE
                        and number in self._slots
                        and self._is_waiting(number, entry, position)
                    ):
                        yield entry
                start += len(piece)
                yield None

    def pack(self) -> Iterator[bytes]:
        """Yield the entries of all waiting messages, by slot.

        The index must not change meanwhile.
        """
        for number in self.slots:
            slot = self._slots[number]
            is_all = not slot.is_open and not slot.done and not self._hidden
            if is_all and not self.files.count_withdrawals(number):
                yield from self.files.pieces(number)
            elif slot.waiting > 0:
                yield from self._pack_waiting(number)

    def _pack_waiting(self, number: int) -> Iterator[bytes]:
        slot = self._slots[number]
        gone = slot.done | self._hidden | self.files.withdrawn(number)
        at = 0
        for piece in self.files.pieces(number):
            for fields in ENTRY.iter_unpack(piece):
                entry = TimerEntry(*fields)
                is_left = entry.kind == KIND_MESSAGE and entry.queue_offset not in gone
                if is_left and (not slot.is_open or self._is_waiting(number, entry, at)):
                    yield ENTRY.pack(*fields)
                at += ENTRY_SIZE_BYTES

    @property
    def min_offset(self) -> int | None:
        """The smallest queue offset of a waiting message, or less; None if none waits."""
        offsets = [s.min_offset for s in self._slots.values() if s.waiting > 0]
        return min((o for o in offsets if o is not None), default=None)

    def older_than(self, queue_offset: int, from_ms: int) -> Iterator[TimerEntry | None]:
        """Yield pending messages before *queue_offset* that are due at *from_ms* or later, by slot.

        Yields None where other work should continue; the index may change in between. Open slots
        are skipped, because their messages are delivered within minutes.
        """
        if queue_offset <= self._oldest_offset:
            return
        slots = self._slots
        offsets: list[int] = []
        for looked, number in enumerate(list(slots), 1):
            slot = slots.get(number)
            if slot is not None and slot.min_offset is not None:
                is_late = (number + 1) * SLOT_MS > from_ms
                if is_late and slot.waiting > 0 and slot.min_offset < queue_offset:
                    yield from self._older_of(number, slot, queue_offset, from_ms)
                offsets.append(slot.min_offset)
            if looked % SLOTS_PER_STEP == 0:
                yield None
            if self._slots is not slots:
                return  # The index was cleared.
        self._oldest_offset = min(offsets, default=0)

    def _is_closed(self, number: int, slot: Slot) -> bool:
        return not slot.is_open and self._slots.get(number) is slot

    def _is_pending(self, number: int, entry: TimerEntry, from_ms: int) -> bool:
        is_due = entry.kind == KIND_MESSAGE and entry.due_ms >= from_ms
        return is_due and self._is_waiting(number, entry, 0)

    def _older_of(
        self, number: int, slot: Slot, queue_offset: int, from_ms: int
    ) -> Iterator[TimerEntry | None]:
        is_over = has_some = False
        for piece in self.files.pieces(number):
            for fields in ENTRY.iter_unpack(piece):
                if not self._is_closed(number, slot):
                    return
                entry = TimerEntry(*fields)
                is_over = entry.queue_offset >= queue_offset
                if is_over:
                    break
                if self._is_pending(number, entry, from_ms):
                    has_some = True
                    yield entry
            if is_over:
                break
            yield None
            if not self._is_closed(number, slot):
                return
        if not has_some and number * SLOT_MS >= from_ms:
            slot.min_offset = queue_offset

    def close(self) -> None:
        """Close the files."""
        self.files.close()


def _positions(data: bytes, wanted: bytes, field_at: int) -> Iterator[int]:
    """Yield the positions of the entries with *wanted* at *field_at*."""
    at = data.find(wanted)
    while at >= 0:
        if at % ENTRY_SIZE_BYTES == field_at:
            yield at - field_at
        at = data.find(wanted, at + 1)
