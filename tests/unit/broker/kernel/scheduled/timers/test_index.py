"""TimerIndex: what waits, in files and in memory, found by key, taken when due, and counted."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.kernel.scheduled.timers import index as module
from rockhopper.broker.kernel.scheduled.timers.due import DueMessage
from rockhopper.broker.kernel.scheduled.timers.entries import ENTRY, KIND_WITHDRAWAL, TimerEntry
from rockhopper.broker.kernel.scheduled.timers.index import OPEN_AHEAD_MS, Slot, TimerIndex

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def opened(tmp_path: Path) -> TimerIndex:
    return TimerIndex(tmp_path / "slots", tmp_path / "quarantine")


def fresh(tmp_path: Path) -> TimerIndex:
    index = opened(tmp_path)
    index.load(0, {}, index.load_deliveries()[0], lambda notes: set())
    return index


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TimerIndex]:
    made = fresh(tmp_path)
    yield made
    made.close()


def waits(queue_offset: int, due_ms: int, key: int | None = None) -> TimerEntry:
    key = queue_offset if key is None else key
    return TimerEntry(due_ms, 100 * queue_offset, 10, 0, queue_offset, key)


def withdraws(queue_offset: int, victim: TimerEntry) -> TimerEntry:
    return TimerEntry(victim.due_ms, 0, 10, KIND_WITHDRAWAL, queue_offset, victim.queue_offset)


def open_all(index: TimerIndex, now_ms: int) -> None:
    while index.open_due(now_ms):
        pass


def take(index: TimerIndex, now_ms: int, count_max: int = 1000) -> list[DueMessage]:
    open_all(index, now_ms)
    return index.take(now_ms, count_max, 1 << 30)


def offsets(messages: list[DueMessage]) -> list[int]:
    return [message.queue_offset for message in messages]


def test_many_slots_need_few_descriptors_and_come_back(tmp_path: Path, index: TimerIndex) -> None:
    index.insert_entries([waits(n, n * MINUTE_MS) for n in range(500)])
    assert index.waiting == 500
    again = opened(tmp_path)
    sizes = {slot: size for slot, (size, _, _) in index.files.take_changed().items()}
    again.load(400, sizes, again.load_deliveries()[0], lambda notes: set(notes))
    assert again.waiting == 400
    assert again.min_offset == 0
    assert [entry.queue_offset for entry in again.find(7, 0, HOUR_MS)] == [7]
    again.close()


def test_a_slot_is_read_a_minute_ahead(index: TimerIndex) -> None:
    index.insert_entries([waits(0, HOUR_MS + 1), waits(1, 2 * HOUR_MS)])
    assert index.next_ms == HOUR_MS - OPEN_AHEAD_MS
    open_all(index, HOUR_MS - OPEN_AHEAD_MS - 1)
    assert index.due.count == 0
    open_all(index, HOUR_MS - OPEN_AHEAD_MS)
    assert index.due.count == 1
    assert index.next_ms == HOUR_MS + 1
    assert offsets(take(index, HOUR_MS)) == []
    assert offsets(take(index, HOUR_MS + 1)) == [0]
    assert index.next_ms == 2 * HOUR_MS - OPEN_AHEAD_MS


def test_a_slot_is_read_in_pieces(index: TimerIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOAD_COUNT", 2)
    index.insert_entries([waits(n, 10) for n in range(5)])
    counts = []
    while index.open_due(0):
        counts.append(index.due.count)
    assert counts == [2, 4, 5]


def test_what_is_added_to_an_open_slot_is_due_at_once_and_only_once(index: TimerIndex) -> None:
    index.insert_entries([waits(0, 10)])
    open_all(index, 0)
    index.insert_entries([waits(1, 10), waits(2, 5)])
    assert offsets(take(index, 10)) == [2, 0, 1]
    assert offsets(take(index, 10)) == []


def test_what_is_added_while_a_slot_is_being_read_is_not_read_twice(
    index: TimerIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOAD_COUNT", 2)
    index.insert_entries([waits(n, 10) for n in range(3)])
    assert index.open_due(0)
    index.insert_entries([waits(3, 10)])
    assert offsets(take(index, 10)) == [0, 1, 2, 3]


@pytest.mark.parametrize("when", ["before it is open", "when it is open", "from the file"])
def test_a_withdrawn_message_is_not_delivered(tmp_path: Path, index: TimerIndex, when: str) -> None:
    victim = waits(0, HOUR_MS)
    index.insert_entries([victim, waits(1, HOUR_MS)])
    if when == "when it is open":
        open_all(index, HOUR_MS)
    index.insert_entries([withdraws(2, victim)])
    assert index.waiting == 1
    if when == "from the file":
        index.close()
        index = opened(tmp_path)
        index.load(3, {60: 120}, index.load_deliveries()[0], lambda notes: set())
        assert index.waiting == 1
    assert list(index.find(0, HOUR_MS, HOUR_MS)) == []
    assert [entry.queue_offset for entry in index.pending() if entry] == [1]
    assert offsets(take(index, HOUR_MS)) == [1]
    index.close()


def test_a_hidden_message_waits_but_is_neither_found_nor_taken(index: TimerIndex) -> None:
    index.insert_entries([waits(0, HOUR_MS), waits(1, HOUR_MS, key=0)])
    index.hide(0)
    assert index.waiting == 2
    assert [entry.queue_offset for entry in index.find(0, HOUR_MS, HOUR_MS)] == [1]
    index.unhide(0)
    assert [entry.queue_offset for entry in index.find(0, HOUR_MS, HOUR_MS)] == [0, 1]
    index.hide(0)
    assert offsets(take(index, HOUR_MS)) == [1]


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "found"),
    [
        (0, 10 * HOUR_MS, [1, 2, 3]),
        (MINUTE_MS, MINUTE_MS, [1]),
        (MINUTE_MS + 1, 3 * MINUTE_MS - 1, [2]),
        (2 * MINUTE_MS, 3 * MINUTE_MS, [2, 3]),
        (4 * MINUTE_MS, 10 * MINUTE_MS, []),
    ],
)
def test_messages_are_found_by_key_and_time(
    index: TimerIndex, from_ms: int, to_ms: int, found: list[int]
) -> None:
    index.insert_entries([waits(n, n * MINUTE_MS, key=77) for n in range(1, 4)])
    index.insert_entries([waits(4, 2 * MINUTE_MS, key=78)])
    assert [entry.queue_offset for entry in index.find(77, from_ms, to_ms)] == found


def test_a_key_is_not_found_in_other_fields(index: TimerIndex) -> None:
    index.insert_entries([TimerEntry(10, 77, 77, 0, 77, 1)])
    assert list(index.find(77, 0, 100)) == []


def test_what_was_taken_waits_until_its_copy_is_written(index: TimerIndex) -> None:
    index.insert_entries([waits(n, 10) for n in range(3)])
    taken = take(index, 10, count_max=2)
    assert index.waiting == 3
    assert list(index.find(0, 0, 100)) == []
    index.due.put_back(taken)
    assert [entry.queue_offset for entry in index.find(0, 0, 100)] == [0]
    taken = take(index, 10, count_max=2)
    index.note(taken, 500)
    index.delivered(taken)
    assert index.waiting == 1
    assert index.files.notes(0) == ([(0, 500), (1, 500)], True)
    index.take_back_note()
    assert index.files.notes(0) == ([], True)


def test_noted_deliveries_that_took_place_are_not_repeated(
    tmp_path: Path, index: TimerIndex
) -> None:
    index.insert_entries([waits(n, 10) for n in range(4)])
    taken = take(index, 10)
    index.note(taken[:2], 500)
    index.note(taken[2:], 600)
    again = opened(tmp_path)
    asked = []

    def written(notes: list[tuple[int, int]]) -> set[tuple[int, int]]:
        asked.extend(notes)
        return {(0, 500), (2, 600)}

    again.load(4, {0: 160}, again.load_deliveries()[0], written)
    assert asked == [(0, 500), (1, 500), (2, 600), (3, 600)]
    assert again.waiting == 2
    assert offsets(take(again, 10)) == [1, 3]
    assert again.files.notes(0) == ([(0, 500), (2, 600)], True)
    again.close()


def test_a_slot_is_finished_when_nothing_waits_and_its_minute_is_over(index: TimerIndex) -> None:
    index.insert_entries([waits(0, 10), waits(1, MINUTE_MS + 10)])
    index.delivered(take(index, 10))
    assert index.list_finished(MINUTE_MS - 1) == []
    assert index.list_finished(MINUTE_MS) == [0]
    assert index.list_finished(HOUR_MS) == [0]
    assert index.end_offset(0) == 1
    index.drop(0)
    assert index.slots == [1]
    assert index.list_finished(HOUR_MS) == []
    assert index.files.entries_size(0) == 0


def test_a_slot_that_is_dropped_unopened_is_not_opened(index: TimerIndex) -> None:
    victims = [waits(0, HOUR_MS), waits(1, 2 * HOUR_MS)]
    index.insert_entries(victims)
    index.withdraw(victims[0])
    assert index.list_finished(HOUR_MS + MINUTE_MS) == [60]
    index.drop(60)
    assert index.next_ms == 2 * HOUR_MS - OPEN_AHEAD_MS
    assert offsets(take(index, 2 * HOUR_MS)) == [1]


def test_the_oldest_that_waits_is_told_slot_by_slot(index: TimerIndex) -> None:
    assert index.min_offset is None
    index.insert_entries([waits(4, HOUR_MS), waits(5, 10), waits(6, 10)])
    assert index.min_offset == 4
    index.withdraw(waits(4, HOUR_MS))
    assert index.min_offset == 5


def old(index: TimerIndex, queue_offset: int, from_ms: int) -> list[TimerEntry]:
    return list(filter(None, index.older_than(queue_offset, from_ms)))


def test_what_is_older_than_an_offset_and_late_enough(index: TimerIndex) -> None:
    entries = [waits(n, HOUR_MS + n * 1000) for n in range(6)]
    index.insert_entries(entries)
    assert old(index, 4, HOUR_MS) == entries[:4]
    assert old(index, 4, HOUR_MS + 2000) == entries[2:4]
    assert old(index, 4, 2 * HOUR_MS) == []
    index.hide(0)
    index.withdraw(entries[1])
    assert old(index, 4, HOUR_MS) == entries[2:4]
    open_all(index, HOUR_MS)
    assert old(index, 4, HOUR_MS) == []


def test_old_messages_are_looked_for_in_steps(
    index: TimerIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLOTS_PER_STEP", 10)
    index.insert_entries([waits(n, HOUR_MS + n * MINUTE_MS) for n in range(100)])
    looked: list[int] = []

    class Counted(dict[int, Slot]):
        """Slots that tell which were looked at."""

        def get(self, number: int, _default: object = None) -> Any:
            looked.append(number)
            return super().get(number)

    monkeypatch.setattr(index, "_slots", Counted(index._slots))
    walk = index.older_than(1, 2 * HOUR_MS)
    steps = []
    for entry in walk:
        assert entry is None
        steps.append(len(looked))
        looked.clear()
    assert steps == [10] * 10


@pytest.mark.parametrize(
    "meanwhile", ["withdrawn", "hidden", "delivered elsewhere", "opened", "dropped", "cleared"]
)
def test_anything_may_happen_between_two_old_messages(index: TimerIndex, meanwhile: str) -> None:
    entries = [waits(n, HOUR_MS + n) for n in range(3)] + [waits(3, 2 * HOUR_MS)]
    index.insert_entries(entries)
    walk = filter(None, index.older_than(9, 0))
    assert next(walk) == entries[0]
    left = entries[2:]
    if meanwhile == "withdrawn":
        index.withdraw(entries[1])
    elif meanwhile == "hidden":
        index.hide(1)
    elif meanwhile == "delivered elsewhere":
        index.noted_elsewhere({HOUR_MS // MINUTE_MS: [1]}, 100)
    elif meanwhile == "opened":
        open_all(index, HOUR_MS)
        left = entries[3:]
    elif meanwhile == "dropped":
        index.drop(HOUR_MS // MINUTE_MS)
        left = entries[3:]
    else:
        index.clear()
        index.insert_entries([waits(0, HOUR_MS)])
        left = []
    assert list(walk) == left
    if meanwhile == "cleared":
        assert old(index, 1, 0) == [waits(0, HOUR_MS)]


def test_a_slot_is_looked_through_once_for_withdrawals_until_it_changes(
    index: TimerIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.insert_entries([waits(n, HOUR_MS + n) for n in range(50)])
    index.withdraw(waits(7, HOUR_MS + 7))
    read: list[int] = []
    pread = os.pread

    def counted(descriptor: int, size_bytes: int, at: int) -> bytes:
        read.append(size_bytes)
        return pread(descriptor, size_bytes, at)

    monkeypatch.setattr(os, "pread", counted)
    assert len(list(filter(None, index.pending()))) == 49
    assert len(read) == 2
    index.withdraw(waits(8, HOUR_MS + 8))
    assert len(list(filter(None, index.pending()))) == 48


def test_clearing_forgets_all(index: TimerIndex) -> None:
    index.insert_entries([waits(0, 10), waits(1, HOUR_MS)])
    open_all(index, 10)
    index.clear()
    assert (index.waiting, index.next_ms, index.slots, index.min_offset) == (0, None, [], None)
    assert list(index.files.directory.iterdir()) == []
    index.insert_entries([waits(0, 10)])
    assert offsets(take(index, 10)) == [0]


def test_while_much_is_in_memory_and_due_no_further_slot_is_opened(
    index: TimerIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPEN_COUNT_MAX", 1)
    index.insert_entries([waits(0, 10), waits(1, 11), waits(2, MINUTE_MS)])
    open_all(index, 10)
    assert index.due.count == 2
    assert offsets(take(index, 10)) == [0]
    assert offsets(take(index, MINUTE_MS)) == [1, 2]


@pytest.mark.parametrize("is_open", [False, True])
def test_all_that_waits_is_told_and_nothing_else(index: TimerIndex, is_open: bool) -> None:
    index.insert_entries([waits(n, HOUR_MS + n) for n in range(6)])
    index.insert_entries([withdraws(6, waits(2, HOUR_MS + 2))])
    index.insert_entries([waits(7, 2 * HOUR_MS)])
    index.noted_elsewhere({HOUR_MS // MINUTE_MS: [0]}, 100)
    left = [1, 3, 4, 5, 7]
    if is_open:
        taken = take(index, HOUR_MS + 1)
        assert offsets(taken) == [1]
        index.delivered(taken)
        left.remove(1)
    told = [
        ENTRY.unpack_from(piece, at)
        for piece in index.pack()
        for at in range(0, len(piece), ENTRY.size)
    ]
    assert [fields[4] for fields in told] == left


def test_slots_that_begin_later_are_not_looked_at_for_those_that_are_finished(
    index: TimerIndex,
) -> None:
    index.insert_entries([waits(n, n * MINUTE_MS) for n in range(500)])
    seen = index.list_begun_before(3)
    assert seen == {0, 1, 2}
    open_all(index, 2 * MINUTE_MS)
    assert index.list_begun_before(3) == {0, 1, 2}
    index.delivered(take(index, MINUTE_MS))
    assert index.list_finished(3 * MINUTE_MS) == [0, 1]
    index.drop(0)
    index.drop(1)
    assert index.list_finished(3 * MINUTE_MS) == []


def test_slots_are_not_looked_into_for_old_messages_once_there_is_none(
    index: TimerIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.insert_entries([waits(n + 10, HOUR_MS + n * MINUTE_MS) for n in range(5)])
    assert [entry.queue_offset for entry in old(index, 12, 0)] == [10, 11]
    assert old(index, 10, 0) == []
    assert [entry.queue_offset for entry in old(index, 11, 0)] == [10]

    class Looked(Exception):
        """A walk over the slots has begun."""

    class Unlooked(dict[int, Slot]):
        """Slots that nobody is to look at."""

        def __iter__(self) -> Iterator[int]:
            raise Looked

    monkeypatch.setattr(index, "_slots", Unlooked(index._slots))
    assert old(index, 10, 0) == []
    with pytest.raises(Looked):
        old(index, 11, 0)
