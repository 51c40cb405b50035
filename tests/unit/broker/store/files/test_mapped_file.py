"""MappedFile: allocated whole, lazy, never a byte too far, and no second chance for fsync."""

import errno
import os
from pathlib import Path

import pytest

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError, TooManyOpenFilesError
from rockhopper.broker.store.files.mapped_file import MappedFile
from tests.support.no_descriptor import no_descriptor_free
from tests.support.open_files import open_files_in

SIZE = 8192


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the path of a file that starts at offset 8192 and does not exist yet."""
    return tmp_path / "00000000000000008192"


def test_new_file_has_all_its_blocks(path: Path) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    assert path.stat().st_blocks * 512 >= SIZE
    assert file.read(0, SIZE) == bytes(SIZE)
    assert (file.base_offset, file.end_offset) == (8192, 16384)
    file.close()


def test_file_that_exists_is_not_overwritten(path: Path) -> None:
    path.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        MappedFile.create(path, 8192, SIZE)
    assert path.read_bytes() == b"precious"


def test_full_disk_leaves_no_file_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "preallocate", full)
    with pytest.raises(OSError, match="No space"):
        MappedFile.create(path, 8192, SIZE)
    assert not path.exists()


def test_what_is_written_is_read_through_the_mapping(path: Path) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    assert file.read(0, 4) == bytes(4)
    file.append(b"one")
    file.append(b"two")
    file.pwrite(100, b"far")
    assert file.read(0, 6) == b"onetwo"
    assert file.read(100, 103) == b"far"
    assert file.write_position == 6
    file.close()


def test_a_glance_serves_the_first_page_without_a_mapping_until_the_file_changes(
    path: Path,
) -> None:
    file = MappedFile.create(path, 8192, SIZE, writable=True)
    file.pwrite(0, b"one")
    file.close()
    file.glance()
    assert (file.read(0, 3), file.read(4090, 4096)) == (b"one", bytes(6))
    assert not file.is_mapped
    assert open_files_in(path.parent) == []
    file.mapping[0:3] = b"two"
    file.unmap()
    assert file.read(0, 3) == b"two"
    file.close()
    for change, left in (
        (lambda: file.pwrite(0, b"six"), b"six"),
        (lambda: file.zero_from(1), b"s"),
    ):
        file.close()
        file.glance()
        change()
        assert file.read(0, 3).rstrip(b"\0") == left
    file.close()


def test_a_glance_goes_no_further_than_a_page(path: Path) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    file.pwrite(4090, b"over the edge")
    file.close()
    file.glance()
    assert file.read(4090, 4103) == b"over the edge"
    assert file.is_mapped
    file.close()


def test_failed_write_does_not_move_the_write_position(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    file.append(b"one")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, "write_fully", fail)
    with pytest.raises(OSError, match="Input/output"):
        file.append(b"two")
    assert file.write_position == 3
    file.close()


def test_nothing_is_written_beyond_the_end(path: Path) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    with pytest.raises(ValueError, match="do not fit"):
        file.pwrite(SIZE - 2, b"abc")
    assert path.stat().st_size == SIZE
    file.close()


def test_writable_mapping_changes_the_file(path: Path) -> None:
    file = MappedFile.create(path, 8192, SIZE, writable=True)
    file.mapping[10:13] = b"abc"
    file.close()
    assert path.read_bytes()[10:13] == b"abc"


def test_file_takes_its_offset_from_its_name(path: Path) -> None:
    MappedFile.create(path, 8192, SIZE).close()
    assert MappedFile.open(path, SIZE).base_offset == 8192


def test_file_of_another_size_is_refused(path: Path) -> None:
    path.write_bytes(b"short")
    with pytest.raises(CorruptFileError, match="5 bytes long, not 8192"):
        MappedFile.open(path, SIZE)


def test_file_without_a_number_is_refused(tmp_path: Path) -> None:
    (tmp_path / "readme").write_bytes(b"")
    with pytest.raises(CorruptFileError, match="the name is not the offset"):
        MappedFile.open(tmp_path / "readme")


def test_file_that_was_cut_short_is_not_mapped(path: Path) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    os.truncate(path, 4096)
    with pytest.raises(CorruptFileError, match="4096 bytes long, not 8192"):
        file.read(0, 1)


def test_file_that_is_not_used_holds_no_descriptor(path: Path) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    assert open_files_in(path.parent) == []
    file.read(0, 1)
    assert file.is_mapped
    assert len(open_files_in(path.parent)) == 1
    file.append(b"x" * SIZE)
    file.sync()
    file.unmap()
    assert not file.is_mapped
    assert open_files_in(path.parent) == []


def test_bytes_in_use_stay_readable_when_the_file_is_deleted(path: Path) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    file.append(b"data")
    view = memoryview(file.mapping)[:4]
    file.delete()
    assert not path.exists()
    assert bytes(view) == b"data"
    view.release()


def test_sync_moves_the_flushed_position_to_where_it_began(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    file.append(b"one")
    sync_file = disk.sync_file

    def append_meanwhile(descriptor: int) -> None:
        sync_file(descriptor)
        file.append(b"two")

    monkeypatch.setattr(disk, "sync_file", append_meanwhile)
    file.sync()
    assert (file.flushed_position, file.write_position) == (3, 6)
    file.close()


def test_after_a_failed_sync_no_other_one_is_tried(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    file.append(b"one")
    calls = []

    def fail_once(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, "sync_file", fail_once)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    assert len(calls) == 1
    assert file.flushed_position == 0
    file.close()


def test_a_sync_without_a_free_descriptor_may_be_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    file.append(b"one")
    with no_descriptor_free(), pytest.raises(TooManyOpenFilesError, match="ulimit -n"):
        file.sync()
    assert file.flushed_position == 0
    # One is free for the file, and none for the directory that has its name.
    with monkeypatch.context() as short:
        real = disk.sync_directory

        def without_descriptor(directory: Path) -> None:
            with no_descriptor_free():
                real(directory)

        short.setattr(disk, "sync_directory", without_descriptor)
        with pytest.raises(TooManyOpenFilesError, match="ulimit -n"):
            file.sync()
    assert file.flushed_position == 0
    synced: list[Path] = []
    monkeypatch.setattr(disk, "sync_directory", synced.append)
    file.sync()
    assert synced == [path.parent]
    assert file.flushed_position == 3
    file.close()


def test_an_fsync_that_fails_like_a_shortage_is_never_repeated(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    file.append(b"one")
    calls: list[int] = []

    def fail_once(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(disk, "sync_file", fail_once)
    for _ in range(2):
        with pytest.raises(OSError, match="Too many open files") as raised:
            file.sync()
        assert not isinstance(raised.value, TooManyOpenFilesError)
    assert len(calls) == 1
    file.close()


def test_first_sync_makes_the_name_durable_and_later_ones_need_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(disk, "sync_directory", synced.append)
    file = MappedFile.create(path, 8192, SIZE, unsynced_directories=[path.parent.parent])
    file.append(b"one")
    file.sync()
    file.append(b"two")
    file.sync()
    assert synced == [path.parent.parent, path.parent]
    file.close()


def test_syncing_a_deleted_file_does_nothing(path: Path) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    file.delete()
    file.sync()
    assert file.flushed_position == 0


def test_syncing_a_file_that_somebody_else_deleted_is_an_error(path: Path) -> None:
    file = MappedFile.create(path, 8192, SIZE)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        file.sync()
