"""The checkpoint of the timers: read, copied, refused as nonsense, and held against its files."""

import asyncio
import errno
import zlib
from pathlib import Path

import pytest

from rockhopper.broker.kernel.scheduled.timers.checkpoint import (
    SAVE_INTERVAL_S,
    CheckpointChange,
    CheckpointFile,
    TimerCheckpoint,
    TimerSaver,
    find_damaged_slot,
)
from rockhopper.broker.kernel.scheduled.timers.entries import ENTRY, TimerEntry
from rockhopper.broker.kernel.scheduled.timers.java_files import (
    TimerCheck,
    encode_timer_check,
    load_timer_check,
)
from rockhopper.broker.kernel.tables.json_table import JOURNALED_FROM_BYTES
from rockhopper.broker.kernel.tables.table_journal import TableJournal
from tests.support.timer_rig import START_MS, TimerRig

CHECKPOINT = TimerCheckpoint(1, 2, (3, 4), {5: 40}, {5: 9}, {5: 8})
CHANGE = CheckpointChange(1, 2, (3, 4), {5: (40, 9, 8)})


def opened(path: Path) -> CheckpointFile:
    return CheckpointFile(path, path.with_name("quarantine"))


@pytest.mark.parametrize(
    "nonsense",
    [
        b'{"indexedOffset":1}',
        b'{"indexedOf',
        b"",
        b"\xff\0",
        b"null",
        b"[" * 100_000,
        b'{"indexedOffset":1,"settledLogOffset":2,"timerCheck":3}',
        b'{"indexedOffset":1,"settledLogOffset":2,"timerCheck":[3],"slotBytes":7}',
        b'{"indexedOffset":"x","settledLogOffset":2,"timerCheck":[3]}',
    ],
)
def test_checkpoint_comes_back_and_nonsense_is_none(tmp_path: Path, nonsense: bytes) -> None:
    path = tmp_path / "checkpoint.json"
    assert opened(path).load() is None
    opened(path).save(CHANGE)
    assert opened(path).load() == CHECKPOINT
    path.write_bytes(nonsense)
    assert opened(path).load() == CHECKPOINT
    path.write_bytes(nonsense)
    path.with_name("checkpoint.json.bak").write_bytes(nonsense)
    assert opened(path).load() is None


def test_a_checkpoint_of_early_builds_is_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    path.write_bytes(
        b'{"indexedOffset":1,"settledLogOffset":2,"timerCheck":[3,4],"slotBytes":{"5":40}}'
    )
    assert opened(path).load() == TimerCheckpoint(1, 2, (3, 4), {5: 40}, {}, {})


def test_a_removed_checkpoint_has_no_copy_either(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    opened(path).save(CHANGE)
    opened(path).save(CHANGE)
    opened(path).remove()
    assert list(tmp_path.iterdir()) == []
    assert opened(path).load() is None


class Slot:
    """The file of slot 5, with two entries, its notes, and the checkpoint that knows of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.entries = directory / "5"
        self.notes = directory / "5.records"
        data = b"".join(ENTRY.pack(*TimerEntry(300_000 + n, n, 1, 0, n, n)) for n in range(2))
        self.entries.write_bytes(data)
        self.notes.write_bytes(b"12345678")
        self.checkpoint = TimerCheckpoint(2, 0, (), {5: 80}, {5: zlib.crc32(data)}, {5: 8})

    def damaged(self, now_ms: int = 0) -> int | None:
        return find_damaged_slot(self.directory, self.checkpoint, now_ms)


def test_whole_files_are_not_damaged(tmp_path: Path) -> None:
    slot = Slot(tmp_path)
    assert slot.damaged() is None
    with slot.entries.open("ab") as entries, slot.notes.open("ab") as notes:
        entries.write(b"what came later")
        notes.write(b"too")
    assert slot.damaged() is None


@pytest.mark.parametrize("at", [0, 39, 79])
def test_another_byte_is_noticed(tmp_path: Path, at: int) -> None:
    slot = Slot(tmp_path)
    data = bytearray(slot.entries.read_bytes())
    data[at] ^= 1
    slot.entries.write_bytes(data)
    assert slot.damaged() == 5


@pytest.mark.parametrize("size_bytes", [79, 40, 0])
def test_a_shorter_file_is_noticed(tmp_path: Path, size_bytes: int) -> None:
    slot = Slot(tmp_path)
    slot.entries.write_bytes(slot.entries.read_bytes()[:size_bytes])
    slot.checkpoint = slot.checkpoint._replace(slot_crcs={})
    assert slot.damaged() == 5


def test_entries_of_another_slot_are_noticed_without_a_checksum(tmp_path: Path) -> None:
    slot = Slot(tmp_path)
    slot.entries.write_bytes(ENTRY.pack(*TimerEntry(360_000, 0, 1, 0, 0, 0)) * 2)
    slot.checkpoint = slot.checkpoint._replace(slot_crcs={})
    assert slot.damaged() == 5


@pytest.mark.parametrize("left", [b"1234567", None])
def test_missing_notes_are_noticed(tmp_path: Path, left: bytes | None) -> None:
    slot = Slot(tmp_path)
    if left is None:
        slot.notes.unlink()
    else:
        slot.notes.write_bytes(left)
    assert slot.damaged() == 5


def test_a_file_of_a_minute_that_has_passed_may_be_gone(tmp_path: Path) -> None:
    slot = Slot(tmp_path)
    slot.entries.unlink()
    slot.notes.unlink()
    assert slot.damaged(now_ms=299_999) == 5
    assert slot.damaged(now_ms=300_000) is None
    slot.checkpoint = slot.checkpoint._replace(slot_bytes={5: 80, 6: 40})
    assert slot.damaged(now_ms=300_000) == 6


def test_a_change_of_one_slot_of_many_costs_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    file = opened(path)
    many = {slot: (40, slot, 8 * (slot % 2)) for slot in range(10_000)}
    file.save(CheckpointChange(1, 2, (3,), many))
    before = path.stat()
    assert before.st_size > JOURNALED_FROM_BYTES
    file.save(CheckpointChange(7, 8, (9,), {5: (80, 1, 0), 6: (0, 0, 0), 20_000: (40, 0, 8)}))
    assert path.stat().st_ino == before.st_ino
    noted = sum(each.stat().st_size for each in (tmp_path / "checkpoint-changes").iterdir())
    assert noted < 2000
    found = opened(path).load()
    assert found is not None
    assert found[:3] == (7, 8, (9,))
    assert (found.slot_bytes[5], found.slot_crcs[5]) == (80, 1)
    assert 5 not in found.note_bytes
    assert not {6} & (found.slot_bytes.keys() | found.slot_crcs.keys())
    assert (found.slot_bytes[20_000], found.slot_crcs[20_000]) == (40, 0)
    assert len(found.slot_bytes) == 10_000
    # What is saved first after a start is everything.
    again = opened(path)
    again.load()
    again.save(CHANGE)
    assert opened(path).load() == CHECKPOINT
    assert list((tmp_path / "checkpoint-changes").iterdir()) == []


def test_a_change_that_was_not_saved_is_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint.json"
    file = opened(path)
    file.save(CheckpointChange(1, 2, (3,), {slot: (40, slot, 8) for slot in range(10_000)}))

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(TableJournal, "append", fail)
        with pytest.raises(OSError, match="the disk fails"):
            file.save(CheckpointChange(2, 2, (3,), {5: (80, 1, 8)}))
    file.save(CheckpointChange(3, 2, (3,), {6: (80, 1, 8)}))
    found = opened(path).load()
    assert found is not None
    assert (found.indexed_offset, found.slot_bytes[5], found.slot_bytes[6]) == (3, 80, 80)


def saver_of(rig: TimerRig) -> TimerSaver:
    return rig.broker.kernel.scheduled.timers.saver


def test_nothing_is_written_until_a_while_after_the_first_message(rig: TimerRig) -> None:
    rig.start()
    path = rig.root / "rockhopper" / "timers" / "checkpoint.json"
    before = path.read_bytes()
    rig.send({"TIMER_DELIVER_MS": str(START_MS + 60_000)})
    rig.wait(SAVE_INTERVAL_S - 1)
    assert not saver_of(rig).is_saved
    assert path.read_bytes() == before
    rig.save()
    checkpoint, _, _ = saver_of(rig).load()
    assert checkpoint is not None
    assert checkpoint.indexed_offset == 1


def test_two_saves_at_once_are_one(rig: TimerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.start()
    rig.send({"TIMER_DELIVER_MS": str(START_MS + 60_000)})
    written: list[CheckpointChange] = []
    monkeypatch.setattr(CheckpointFile, "save", lambda _, change: written.append(change))

    async def save_twice() -> None:
        saver = saver_of(rig)
        await asyncio.gather(saver.save(), saver.save())
        assert saver.running is None

    rig.loop.run(save_twice())
    assert len(written) == 1


def test_stopped_it_saves_no_more(rig: TimerRig) -> None:
    rig.start()
    rig.send({"TIMER_DELIVER_MS": str(START_MS + 60_000)})
    path = rig.root / "rockhopper" / "timers" / "checkpoint.json"
    before = path.read_bytes()
    saver_of(rig).stop()
    rig.loop.advance(SAVE_INTERVAL_S * 2)
    assert saver_of(rig).running is None
    assert path.read_bytes() == before


def test_a_timercheck_of_rocketmq_is_told_from_our_own(rig: TimerRig) -> None:
    rig.start()
    rig.send({"TIMER_DELIVER_MS": str(START_MS + 60_000)})
    rig.restart()
    path = rig.root / "config" / "timercheck"
    check, _ = load_timer_check(path)
    assert check is not None
    assert check.queue_offset == 0, "RocketMQ would read the message that waits"
    assert saver_of(rig).load()[2]
    path.write_bytes(encode_timer_check(TimerCheck(START_MS, 0, 1, 1)))
    checkpoint, theirs, is_ours = saver_of(rig).load()
    assert checkpoint is not None
    assert theirs == TimerCheck(START_MS, 0, 1, 1)
    assert not is_ours


def test_without_its_checkpoint_the_next_start_imports(rig: TimerRig) -> None:
    rig.start()
    saver_of(rig).remove_checkpoint()
    assert saver_of(rig).load() == (None, None, False)
