"""Times, handles and slot files, each by itself."""

from pathlib import Path

import pytest

from rockhopper.broker.later.timers.checkpoint import (
    TimerCheckpoint,
    load_checkpoint,
    save_checkpoint,
)
from rockhopper.broker.later.timers.due import DueTimers
from rockhopper.broker.later.timers.entries import ENTRY, Entry
from rockhopper.broker.later.timers.index import TimerIndex
from rockhopper.broker.later.timers.java_files import encode_timer_check, load_timer_check
from rockhopper.broker.later.timers.recall_handle import (
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)
from rockhopper.broker.later.timers.slot_files import SlotFiles
from rockhopper.broker.later.timers.times import due_ms, out_ms
from tests.support.golden_stores import golden_directory


def test_every_due_time_comes_back_from_what_is_stored_a_millisecond_late_at_most() -> None:
    for time_ms in range(1_700_000_000_000, 1_700_000_002_100):
        stored = {"TIMER_OUT_MS": str(out_ms(time_ms))}
        due = due_ms(stored, 0, 1000)
        assert due is not None
        assert time_ms <= due <= time_ms + 1


@pytest.mark.parametrize("text", ["", "x", "1e5"])
def test_a_stored_message_without_a_number_has_no_time(text: str) -> None:
    assert due_ms({"TIMER_OUT_MS": text}, 0, 1000) is None


def test_handle_is_rocketmqs() -> None:
    """The text is base64 of what the specification says, made with coreutils' base64."""
    text = "djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDAgN0YwMDAwMDE="
    handle = RecallHandle("orders", "broker-a", 1_700_000_000_000, "7F000001")
    assert encode_recall_handle(handle) == text
    assert decode_recall_handle(text) == handle
    assert decode_recall_handle(text.rstrip("=")) == handle


def test_entry_layout() -> None:
    entry = Entry(1, 2, 3, 1, 4, 5)
    assert ENTRY.pack(*entry).hex(" ", 8) == (
        "0000000000000001 0000000000000002 0000000300000001 0000000000000004 0000000000000005"
    )


def test_timercheck_of_the_golden_store_is_read_and_written_as_it_is() -> None:
    path = golden_directory() / "timer" / "config" / "timercheck"
    check, _ = load_timer_check(path)
    assert check is not None
    assert (check.read_time_ms, check.queue_offset, check.master_queue_offset) == (
        1_795_166_960_000,
        6,
        6,
    )
    assert encode_timer_check(check) == path.read_bytes()


def test_checkpoint_comes_back_and_nonsense_is_none(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    assert load_checkpoint(path) is None
    save_checkpoint(path, TimerCheckpoint(1, 2, (3, 4), {5: 40}, {5: 9}, {5: 8}))
    assert load_checkpoint(path) == TimerCheckpoint(1, 2, (3, 4), {5: 40}, {5: 9}, {5: 8})
    for nonsense in (
        b'{"indexedOffset":1}',
        b'{"indexedOf',
        b"",
        b"\xff\0",
        b"null",
        b"[" * 100_000,
    ):
        path.write_bytes(nonsense)
        copy = path.with_name("checkpoint.json.bak")
        known = copy.read_bytes()
        assert load_checkpoint(path) == TimerCheckpoint(1, 2, (3, 4), {5: 40}, {5: 9}, {5: 8})
        copy.write_bytes(nonsense)
        assert load_checkpoint(path) is None
        copy.write_bytes(known)


def test_a_checkpoint_of_0_1_0_is_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    path.write_bytes(
        b'{"indexedOffset":1,"settledLogOffset":2,"timerCheck":[3,4],"slotBytes":{"5":40}}'
    )
    assert load_checkpoint(path) == TimerCheckpoint(1, 2, (3, 4), {5: 40}, {}, {})


def test_an_append_that_fails_leaves_every_slot_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SlotFiles(tmp_path, tmp_path / "quarantine")
    files.load()
    one = ENTRY.pack(1, 2, 3, 0, 4, 5)
    files.append([(1, one), (2, one)])
    writes = 0

    def fail(descriptor: int, position: int, data: bytes) -> None:
        nonlocal writes
        writes += 1
        if writes == 2:
            raise OSError(28, "no space")

    monkeypatch.setattr("rockhopper.broker.store.files.disk.write_fully", fail)
    with pytest.raises(OSError, match="no space"):
        files.append([(1, one), (2, one)])
    assert [files.entries_size(slot) for slot in (1, 2)] == [40, 40]
    assert [(tmp_path / name).stat().st_size for name in ("1", "2")] == [40, 40]
    files.close()


def test_many_slots_need_few_descriptors(tmp_path: Path) -> None:
    index = TimerIndex(tmp_path / "slots", tmp_path / "quarantine")
    index.load(0, {}, index.noted()[0], lambda notes: set())
    index.add([Entry(n * 60_000, n, 100, 0, n, n) for n in range(500)])
    assert len(index.files.descriptors) <= 64
    assert index.waiting == 500
    again = TimerIndex(tmp_path / "slots", tmp_path / "quarantine")
    again.load(400, index.files.sizes_bytes, again.noted()[0], lambda notes: set(notes))
    assert again.waiting == 400
    assert again.min_offset == 0
    assert [entry.queue_offset for entry in again.find(7, 0, 3_600_000)] == [7]
    index.close()
    again.close()


def test_what_is_put_back_comes_first_again() -> None:
    due = DueTimers()
    for number in range(4):
        due.add(1000, number, 0, 10)
    due.add(900, 9, 0, 10)
    taken = due.take(1000, 3, 1000)
    assert [message.queue_offset for message in taken] == [9, 0, 1]
    due.put_back(taken[1:])
    assert due.holds(1000, 1)
    assert not due.holds(900, 9)
    assert [message.queue_offset for message in due.take(1000, 10, 15)] == [0]
    assert [message.queue_offset for message in due.take(1000, 10, 1000)] == [1, 2, 3]
    assert (due.count, due.next_ms) == (0, None)
