"""MappedFileQueue: which directories are accepted, and what happens to offsets and bytes."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue


def write_files(directory: Path, *files: tuple[str, bytes]) -> None:
    directory.mkdir(parents=True)
    for name, content in files:
        (directory / name).write_bytes(content)


def loaded(directory: Path, size_bytes: int = 8, unit_size_bytes: int = 1) -> MappedFileQueue:
    files = MappedFileQueue(directory, size_bytes, unit_size_bytes=unit_size_bytes)
    files.load()
    return files


def test_missing_directory_is_an_empty_queue(tmp_path: Path) -> None:
    files = loaded(tmp_path / "log")
    assert files.files == []
    assert (files.min_offset, files.write_offset, files.next_base_offset) == (0, 0, 0)
    assert files.file_at(0) is None
    assert not files.flush()


def test_size_is_taken_from_the_files(tmp_path: Path) -> None:
    write_files(tmp_path / "log", ("00000000000000000016", bytes(16)))
    files = loaded(tmp_path / "log", size_bytes=8)
    assert files.file_size_bytes == 16
    assert (files.min_offset, files.write_offset) == (16, 32)


def test_files_of_different_sizes_are_refused_by_name(tmp_path: Path) -> None:
    write_files(
        tmp_path / "log", ("00000000000000000000", bytes(8)), ("00000000000000000008", bytes(7))
    )
    with pytest.raises(CorruptFileError, match=r"00000000000000000008: 7 bytes long.*has 8"):
        loaded(tmp_path / "log")


def test_empty_file_in_the_middle_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path / "log", ("00000000000000000000", b""), ("00000000000000000008", bytes(8)))
    with pytest.raises(CorruptFileError, match="00000000000000000000: empty, though"):
        loaded(tmp_path / "log")


def test_empty_last_file_is_deleted(tmp_path: Path) -> None:
    write_files(tmp_path / "log", ("00000000000000000000", bytes(8)), ("00000000000000000008", b""))
    assert len(loaded(tmp_path / "log").files) == 1
    assert not (tmp_path / "log" / "00000000000000000008").exists()


def test_only_file_that_is_empty_is_deleted(tmp_path: Path) -> None:
    write_files(tmp_path / "log", ("00000000000000000000", b""))
    assert loaded(tmp_path / "log").files == []


def test_file_cut_short_is_noticed_by_its_name(tmp_path: Path) -> None:
    write_files(tmp_path / "log", ("00000000000000000008", bytes(5)))
    with pytest.raises(CorruptFileError, match="truncated"):
        loaded(tmp_path / "log")


def test_file_with_a_part_of_a_unit_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path / "log", ("00000000000000000000", bytes(30)))
    with pytest.raises(CorruptFileError, match="not whole units of 20"):
        loaded(tmp_path / "log", unit_size_bytes=20)


def test_foreign_files_and_directories_are_reported_and_left_alone(tmp_path: Path) -> None:
    write_files(tmp_path / "log", ("00000000000000000000", bytes(8)), ("notes.txt", b"x"))
    (tmp_path / "log" / "00000000000000000008").mkdir()
    with capture_logs() as logs:
        files = loaded(tmp_path / "log")
    assert len(files.files) == 1
    assert [entry["path"] for entry in logs] == [str(tmp_path / "log" / "notes.txt")]
    assert (tmp_path / "log" / "notes.txt").exists()


def test_missing_files_are_reported_and_everything_else_is_found(tmp_path: Path) -> None:
    names = ["00000000000000000008", "00000000000000000016", "00000000000000000032"]
    write_files(tmp_path / "log", *((name, name.encode()[-8:]) for name in names))
    with capture_logs() as logs:
        files = loaded(tmp_path / "log")
    assert files.gaps == [(24, 32)]
    assert logs[0]["log_level"] == "error"
    found = {offset: files.file_at(offset) for offset in range(0, 48, 8)}
    assert {offset for offset, file in found.items() if file is None} == {0, 24, 40}
    assert all(file.base_offset == offset for offset, file in found.items() if file is not None)


def test_file_of_an_offset_includes_its_first_byte_but_not_its_end(tmp_path: Path) -> None:
    files = loaded(tmp_path / "log")
    for _ in range(3):
        files.append_file()
    first, second, third = files.files
    assert files.file_at(7) is first
    assert files.file_at(8) is second
    assert files.file_at(23) is third
    assert files.file_at(24) is None
    assert files.file_at(-1) is None


def test_first_file_may_start_anywhere(tmp_path: Path) -> None:
    files = loaded(tmp_path / "log")
    files.append_file(64)
    files.append_file()
    assert [file.path.name[-3:] for file in files.files] == ["064", "072"]


def test_file_made_ahead_is_added_when_it_is_needed(tmp_path: Path) -> None:
    files = loaded(tmp_path / "log")
    files.append_file().append(b"12345678")
    ahead = files.create_next()
    assert ahead.path.exists()
    assert files.write_offset == 8
    assert len(files.files) == 1
    files.attach(ahead)
    ahead.append(b"x")
    assert files.write_offset == 9


def test_full_disk_leaves_the_queue_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = loaded(tmp_path / "log")
    files.append_file()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "preallocate", full)
    with pytest.raises(OSError, match="No space"):
        files.append_file()
    assert len(files.files) == 1
    assert len(os.listdir(tmp_path / "log")) == 1


def test_flush_covers_every_file_written_since_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = loaded(tmp_path / "log")
    for _ in range(3):
        files.append_file().append(b"12345678")
    assert files.flush()
    assert files.flushed_offset == 24
    assert [file.flushed_position for file in files.files] == [8, 8, 8]
    synced: list[int] = []
    monkeypatch.setattr(disk, "sync_file", synced.append)
    assert not files.flush()
    files.append_file().append(b"x")
    assert files.flush()
    assert (len(synced), files.flushed_offset) == (1, 25)


def test_failed_flush_does_not_move_the_flushed_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = loaded(tmp_path / "log")
    files.append_file().append(b"1234")

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk, "sync_file", fail)
    with pytest.raises(OSError, match="Input/output"):
        files.flush()
    assert files.flushed_offset == 0


def test_range_can_be_flushed_whatever_the_write_positions_say(tmp_path: Path) -> None:
    files = loaded(tmp_path / "log")
    for _ in range(3):
        files.append_file().pwrite(0, b"12345678")
    files.flush_range(0, 10)
    assert files.flushed_offset == 10
    assert [file.flushed_position for file in files.files] == [8, 2, 0]


def filled(directory: Path, count: int) -> MappedFileQueue:
    files = loaded(directory)
    for _ in range(count):
        files.append_file().append(b"12345678")
    return files


def test_truncating_zeros_the_stale_tail_and_deletes_later_files(tmp_path: Path) -> None:
    files = filled(tmp_path / "log", 4)
    files.truncate_to(11)
    assert files.write_offset == 11
    assert [path.read_bytes() for path in sorted((tmp_path / "log").iterdir())] == [
        b"12345678",
        b"123" + bytes(5),
    ]


def test_truncating_at_the_end_of_a_file_keeps_all_of_it(tmp_path: Path) -> None:
    files = filled(tmp_path / "log", 3)
    files.truncate_to(16)
    assert files.write_offset == 16
    assert [path.read_bytes() for path in sorted((tmp_path / "log").iterdir())] == [b"12345678"] * 2


def test_truncating_everything_keeps_where_the_space_starts(tmp_path: Path) -> None:
    files = filled(tmp_path / "log", 3)
    files.delete_files_before(8)
    files.truncate_to(8)
    assert (files.min_offset, files.write_offset) == (8, 8)
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["00000000000000000008"]


def test_truncation_takes_back_the_flushed_offset(tmp_path: Path) -> None:
    files = filled(tmp_path / "log", 2)
    files.flush()
    files.truncate_to(3)
    assert files.flushed_offset == 3
    files.files[0].append(b"x")
    assert files.flush()
    assert files.flushed_offset == 4


@pytest.mark.parametrize(("offset", "left"), [(0, 4), (7, 4), (8, 3), (23, 2), (24, 1), (99, 1)])
def test_only_files_that_end_before_the_offset_are_deleted_and_never_the_last(
    offset: int, left: int, tmp_path: Path
) -> None:
    files = filled(tmp_path / "log", 4)
    assert files.delete_files_before(offset) == 4 - left
    assert len(files.files) == left
    assert len(list((tmp_path / "log").iterdir())) == left
    assert files.write_offset == 32


def test_destroying_removes_files_and_directory(tmp_path: Path) -> None:
    files = filled(tmp_path / "log", 2)
    files.destroy()
    assert not (tmp_path / "log").exists()
    assert files.files == []
    files.append_file()
    assert (tmp_path / "log").exists()


def test_destroying_spares_what_is_not_ours(tmp_path: Path) -> None:
    files = filled(tmp_path / "log", 2)
    (tmp_path / "log" / "notes.txt").touch()
    files.destroy()
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["notes.txt"]
