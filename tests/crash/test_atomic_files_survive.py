"""Once a small file is written it survives a power cut; cut before that, it is the old or the new.

The disk forgets what was not fsynced, so a missing fsync of file or directory shows here.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.store.files import checkpoint
from rockhopper.broker.store.files.checkpoint import StoreCheckpoint
from rockhopper.broker.store.files.disk import backup_path, write_atomically
from rockhopper.broker.store.files.lock_file import mark_in_use, mark_stopped, was_left_in_use
from tests.support.crashing_disk import CrashingDisk, PowerCutError

OLD = StoreCheckpoint(commit_log_ms=1, consume_queue_ms=2, index_ms=3)
NEW = StoreCheckpoint(commit_log_ms=4, consume_queue_ms=5, index_ms=6)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CrashingDisk]:
    """Give a disk that forgets, under tmp_path."""
    disk = CrashingDisk(tmp_path, monkeypatch)
    yield disk
    disk.close()


def syncs_of_a_save(disk: CrashingDisk, path: Path) -> int:
    disk.sync_count = 0
    checkpoint.save(path, OLD)
    return disk.sync_count


def test_saved_checkpoint_survives_a_power_cut(disk: CrashingDisk, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    for saved in (OLD, NEW, OLD):
        checkpoint.save(path, saved)
        disk.crash()
        assert checkpoint.load(path) == saved


def test_power_cut_at_any_sync_of_a_save_leaves_the_old_checkpoint(
    disk: CrashingDisk, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    count = syncs_of_a_save(disk, path)
    assert count >= 2
    for syncs in range(count):
        disk.cut_after(syncs)
        with pytest.raises(PowerCutError):
            checkpoint.save(path, NEW)
        disk.crash()
        assert checkpoint.load(path) == OLD


def test_a_file_and_its_backup_survive_a_power_cut(disk: CrashingDisk, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    for content in (b"one", b"two"):
        write_atomically(path, content, b"backup of " + content)
    disk.crash()
    assert path.read_bytes() == b"two"
    assert backup_path(path).read_bytes() == b"backup of two"


def test_power_cut_while_a_file_with_backup_is_replaced_leaves_both_whole(
    disk: CrashingDisk, tmp_path: Path
) -> None:
    path = tmp_path / "topics.json"
    write_atomically(path, b"one", b"1")
    disk.sync_count = 0
    write_atomically(path, b"two", b"2")
    for syncs in range(disk.sync_count):
        disk.cut_after(syncs)
        with pytest.raises(PowerCutError):
            write_atomically(path, b"three", b"3")
        disk.crash()
        assert path.read_bytes() == b"two"
        assert backup_path(path).read_bytes() == b"2"


def test_abort_file_survives_a_power_cut_as_soon_as_it_is_made(
    disk: CrashingDisk, tmp_path: Path
) -> None:
    path = tmp_path / "abort"
    mark_in_use(path)
    disk.crash()
    assert was_left_in_use(path)


def test_removed_abort_file_stays_removed_after_a_power_cut(
    disk: CrashingDisk, tmp_path: Path
) -> None:
    path = tmp_path / "abort"
    mark_in_use(path)
    mark_stopped(path)
    disk.crash()
    assert not was_left_in_use(path)
