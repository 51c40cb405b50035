"""disk: atomic replacement, backups, preallocation and zeroing, on good disks and bad ones."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import TooManyOpenFilesError
from tests.support.crashing_disk import CrashingDisk


def failing(code: int) -> object:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def open_new(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


def test_the_use_of_a_disk_is_what_the_standard_library_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: status)  # others write at the same time
    assert tuple(disk.read_usage(tmp_path)) == tuple(shutil.disk_usage(tmp_path))


def test_replacing_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    disk.write_atomically(tmp_path / "f", b"one")
    disk.write_atomically(tmp_path / "f", b"two")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"two"


def test_failed_write_keeps_the_old_content_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.write_atomically(tmp_path / "f", b"one")
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        disk.write_atomically(tmp_path / "f", b"two")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"one"


def test_without_a_descriptor_for_the_directory_the_old_content_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.write_atomically(tmp_path / "f", b"one")
    # Only directories are opened through it.
    monkeypatch.setattr(os, "open", failing(errno.EMFILE))
    with pytest.raises(TooManyOpenFilesError, match="ulimit -n"):
        disk.write_atomically(tmp_path / "f", b"two", b"copy")
    assert (tmp_path / "f").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["f"]


def test_file_and_backup_are_replaced_together(tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        disk.write_atomically(tmp_path / "f", content, b"backup of " + content)
    assert (tmp_path / "f").read_bytes() == b"two"
    assert (tmp_path / "f.bak").read_bytes() == b"backup of two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f", "f.bak"]


def test_new_directories_are_reported_with_the_ones_that_name_them(tmp_path: Path) -> None:
    assert disk.make_directories(tmp_path / "a" / "b") == [tmp_path, tmp_path / "a"]
    assert (tmp_path / "a" / "b").is_dir()
    assert disk.make_directories(tmp_path / "a" / "b") == []


def test_preallocated_bytes_have_blocks_and_are_zeros(tmp_path: Path) -> None:
    descriptor = open_new(tmp_path / "f")
    disk.preallocate(descriptor, 1 << 20)
    status = os.fstat(descriptor)
    os.close(descriptor)
    assert status.st_size == 1 << 20
    assert status.st_blocks * 512 >= 1 << 20
    assert (tmp_path / "f").read_bytes() == bytes(1 << 20)


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_zeros_are_written_where_nothing_can_be_preallocated(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", failing(code))
    descriptor = open_new(tmp_path / "f")
    os.pwrite(descriptor, b"data", 0)
    disk.preallocate(descriptor, (1 << 20) + 4092, 4)
    os.close(descriptor)
    assert (tmp_path / "f").read_bytes() == b"data" + bytes((1 << 20) + 4092)
    assert (tmp_path / "f").stat().st_blocks * 512 >= (1 << 20) + 4096


def test_what_is_there_stays_where_nothing_can_be_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    descriptor = open_new(tmp_path / "f")
    os.pwrite(descriptor, b"data", 0)
    os.truncate(descriptor, 1 << 20)
    disk.reserve(descriptor, 0, 1 << 20)
    status = os.fstat(descriptor)
    os.close(descriptor)
    assert status.st_blocks * 512 >= 1 << 20
    assert (tmp_path / "f").read_bytes() == b"data" + bytes((1 << 20) - 4)


def test_full_disk_is_an_error_when_preallocating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
    descriptor = open_new(tmp_path / "f")
    with pytest.raises(OSError, match="No space left"):
        disk.preallocate(descriptor, 4096)
    os.close(descriptor)


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, data[:3], position))
    descriptor = open_new(tmp_path / "f")
    disk.write_fully(descriptor, 2, b"0123456789")
    disk.write_fully(descriptor, 12, 5)
    os.close(descriptor)
    assert (tmp_path / "f").read_bytes() == b"\0\0" + b"0123456789" + bytes(5)


def test_tail_of_zeros_is_left_alone(tmp_path: Path) -> None:
    descriptor = open_new(tmp_path / "f")
    disk.preallocate(descriptor, 1 << 20)
    os.pwrite(descriptor, b"data", 0)
    assert not disk.zero_tail(descriptor, 4, 1 << 20)
    os.close(descriptor)


@pytest.mark.parametrize("position", [4, 4095, 4096, 500_000, (1 << 21) - 1])
def test_a_stale_byte_in_the_tail_is_zeroed(position: int, tmp_path: Path) -> None:
    descriptor = open_new(tmp_path / "f")
    disk.preallocate(descriptor, 1 << 21)
    os.pwrite(descriptor, b"data", 0)
    os.pwrite(descriptor, b"x", position)
    assert disk.zero_tail(descriptor, 4, 1 << 21)
    os.close(descriptor)
    assert (tmp_path / "f").read_bytes() == b"data" + bytes((1 << 21) - 4)


@pytest.mark.parametrize(("size_bytes", "drops"), [(16 << 10, 0), (1 << 20, 1)])
def test_pages_are_dropped_only_where_there_is_much_to_read(
    size_bytes: int, drops: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptor = open_new(tmp_path / "f")
    os.pwrite(descriptor, bytes(size_bytes), 0)
    dropped: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: dropped.append(1))
    assert not disk.zero_tail(descriptor, 4, size_bytes)
    os.close(descriptor)
    assert len(dropped) == drops


def test_tail_is_zeroed_where_holes_cannot_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptor = open_new(tmp_path / "f")
    os.pwrite(descriptor, b"data" + b"x" * 100, 0)
    monkeypatch.setattr(os, "lseek", failing(errno.EINVAL))
    assert disk.zero_tail(descriptor, 4, 104)
    os.close(descriptor)
    assert (tmp_path / "f").read_bytes() == b"data" + bytes(100)


def test_removing_counts_the_files_that_were_there(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert disk.remove_files([tmp_path / "a", tmp_path / "b"]) == 1
    assert not list(tmp_path.iterdir())


def test_synced_paths_and_their_names_survive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    crashing = CrashingDisk(tmp_path, monkeypatch)
    paths = [tmp_path / "a" / "one", tmp_path / "a" / "two", tmp_path / "b" / "three"]
    for path in paths:
        path.write_text(path.name)
    (tmp_path / "b" / "other").touch()
    disk.sync_paths([paths[0], tmp_path / "missing", *paths[1:]])
    crashing.crash()
    assert [path.read_text() for path in paths] == ["one", "two", "three"]
    crashing.close()


def test_a_file_system_is_synced_only_where_failed_writes_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for way in (disk.COMPILED, None):
        monkeypatch.setattr(disk, "COMPILED", way)
        descriptor = os.open("/proc", os.O_RDONLY)
        assert disk.sync_file_system(descriptor) is False
        os.close(descriptor)
        assert disk.sync_file_system(descriptor) is False


@pytest.mark.skipif(disk.COMPILED is None, reason="it is not compiled")
def test_a_file_system_of_a_kind_that_reports_failed_writes_is_synced() -> None:
    descriptor = os.open("/dev/shm", os.O_RDONLY)
    try:
        assert disk.sync_file_system(descriptor) is True
    finally:
        os.close(descriptor)
