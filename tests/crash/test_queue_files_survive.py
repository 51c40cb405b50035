"""What a mapped file queue called flushed survives a power cut, new names included."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.queues import queue_table
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from tests.support.crashing_disk import CrashingDisk, PowerCutError

LOG_END = 1 << 40


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CrashingDisk]:
    """Give a disk that forgets, under tmp_path."""
    disk = CrashingDisk(tmp_path, monkeypatch)
    yield disk
    disk.close()


def test_flushed_bytes_survive_in_new_files_of_new_directories(
    disk: CrashingDisk, tmp_path: Path
) -> None:
    files = MappedFileQueue(tmp_path / "a" / "b", 8)
    for number in range(3):
        files.append_file().append(b"%07d;" % number)
    files.flush()
    files.close()
    disk.crash()
    reopened = MappedFileQueue(tmp_path / "a" / "b", 8)
    reopened.load()
    assert [file.read(0, 8) for file in reopened.files] == [b"0000000;", b"0000001;", b"0000002;"]


def test_truncated_bytes_do_not_come_back_after_a_power_cut(
    disk: CrashingDisk, tmp_path: Path
) -> None:
    files = MappedFileQueue(tmp_path / "log", 8)
    for _ in range(3):
        files.append_file().append(b"12345678")
    files.flush()
    files.truncate_to(11)
    files.close()
    disk.crash()
    assert sorted(path.name for path in (tmp_path / "log").iterdir()) == [
        "00000000000000000000",
        "00000000000000000008",
    ]
    assert (tmp_path / "log" / "00000000000000000008").read_bytes() == b"123" + bytes(5)


def test_expired_files_stay_deleted_after_a_power_cut(disk: CrashingDisk, tmp_path: Path) -> None:
    files = MappedFileQueue(tmp_path / "log", 8)
    for _ in range(3):
        files.append_file().append(b"12345678")
    files.flush()
    files.delete_files_before(16)
    files.close()
    disk.crash()
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["00000000000000000016"]


def test_flushed_units_survive_and_others_are_not_invented(
    disk: CrashingDisk, tmp_path: Path
) -> None:
    queue = ConsumeQueue(tmp_path / "T" / "0", "T", 0, 100)
    for number in range(7):
        queue.append(number, number * 100, 100, number)
    queue.flush()
    for number in range(7, 20):
        queue.append(number, number * 100, 100, number)
    queue.close()
    disk.crash()
    reopened = ConsumeQueue(tmp_path / "T" / "0", "T", 0, 100)
    reopened.load()
    reopened.recover(LOG_END)
    assert (reopened.min_offset, reopened.max_offset) == (0, 7)
    assert reopened.entry(6) == (600, 100, 6)
    assert reopened.commit_log_end == 700


@pytest.mark.parametrize("cut_at", [None, 0])
def test_many_queues_survive_one_sync_of_their_file_system_and_none_before_it(
    cut_at: int | None, disk: CrashingDisk, tmp_path: Path
) -> None:
    table = ConsumeQueueTable(StoreLayout(tmp_path), 100, 138)
    table.load()
    count = queue_table.SYNCED_TOGETHER_MIN
    for number in range(count):
        table.get_or_create(f"T{number}", 0).append(0, number * 100, 100, 0)
    if cut_at is None:
        table.flush_all()
        assert disk.sync_count == 1
    else:
        disk.cut_after(cut_at)
        with pytest.raises(PowerCutError):
            table.flush_all()
    table.close()
    disk.crash()
    again = ConsumeQueueTable(StoreLayout(tmp_path), 100, 138)
    again.load()
    for queue in again:
        queue.recover(LOG_END)
    assert len([queue for queue in again if queue.max_offset == 1]) == (
        count if cut_at is None else 0
    )
    again.close()
