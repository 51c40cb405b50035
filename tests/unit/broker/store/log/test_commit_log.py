"""CommitLog: rolling from file to file, files made ahead, and writes that fail."""

import errno
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import (
    DiskFullError,
    RecordTooLargeError,
    StoreError,
    StoreFailedError,
)
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.log.commit_log import CommitLog, NextFile, ReadAhead

SIZE = 4096
HOST = bytes(8)


class InlineExecutor(Executor):
    """Does at once what is submitted, and counts it."""

    def __init__(self) -> None:
        self.count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except OSError as error:
            future.set_exception(error)
        return future


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "commitlog"


@pytest.fixture
def executor() -> InlineExecutor:
    return InlineExecutor()


@pytest.fixture
def log(directory: Path, executor: InlineExecutor) -> Iterator[CommitLog]:
    files = MappedFileQueue(directory, SIZE)
    commit_log = CommitLog(files, ReadAhead(), 0, HOST, NextFile(files, executor))
    yield commit_log
    commit_log.close()


def add(log: CommitLog, size_bytes: int, fill: bytes = b"r") -> int:
    """Stage records as Staging does, and return where they start."""
    while not log.stage_encoded(fill * size_bytes):
        pass
    return log.staged_offset - size_bytes


def failing(error_number: int, *, on_call: int = 1) -> Callable[..., None]:
    """A ``pwrite`` of files that fails once."""
    real, calls = MappedFile.pwrite, []

    def pwrite(file: MappedFile, position: int, data: bytes) -> None:
        calls.append(position)
        if len(calls) == on_call:
            raise OSError(error_number, "no")
        real(file, position, data)

    return pwrite


def file_names(directory: Path) -> list[str]:
    return sorted(path.name.lstrip("0") or "0" for path in directory.iterdir())


def test_nothing_is_in_the_log_before_write(log: CommitLog) -> None:
    add(log, 100)
    assert (log.staged_offset, log.written_offset) == (100, 0)
    assert log.read(0, 100) == b""
    log.write()
    assert log.written_offset == 100
    assert log.read(0, 100) == b"r" * 100


def test_a_pass_is_written_with_one_call(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    add(log, 10)
    log.write()
    written: list[tuple[int, bytes]] = []
    monkeypatch.setattr(
        MappedFile, "pwrite", lambda _file, position, data: written.append((position, data))
    )
    add(log, 1, b"a")
    add(log, 2, b"b")
    log.write()
    assert written == [(10, b"abb")]


def test_a_record_may_leave_exactly_eight_bytes(log: CommitLog, directory: Path) -> None:
    add(log, SIZE - 8)
    assert add(log, 50) == SIZE
    log.write()
    first = (directory / f"{0:020d}").read_bytes()
    assert first[-8:] == struct.pack(">II", 8, 0xCBD43194)


@pytest.mark.parametrize("left", [7, 9, 100])
def test_a_record_that_would_leave_less_goes_to_the_next_file(
    log: CommitLog, directory: Path, left: int
) -> None:
    add(log, SIZE - 100)
    start = add(log, 100 - left)
    log.write()
    if left < 8:
        assert start == SIZE
        first = (directory / f"{0:020d}").read_bytes()
        assert first[-100:-92] == struct.pack(">II", 100, 0xCBD43194)
    else:
        assert start == SIZE - 100


def test_the_rest_behind_a_blank_record_stays_zero(log: CommitLog, directory: Path) -> None:
    add(log, SIZE - 130)
    add(log, 200)
    log.write()
    first = (directory / f"{0:020d}").read_bytes()
    assert first[-130:] == bytes.fromhex("00000082cbd43194") + bytes(122)


def test_rolling_in_the_middle_of_a_pass_writes_what_was_staged(log: CommitLog) -> None:
    add(log, 3000, b"a")
    add(log, 3000, b"b")
    assert log.written_offset == SIZE
    assert log.read(0, 3000) == b"a" * 3000
    assert log.read(SIZE, SIZE + 3000) == b""
    log.write()
    assert log.read(SIZE, SIZE + 3000) == b"b" * 3000


def test_records_that_no_file_can_hold_are_refused_and_change_nothing(
    log: CommitLog, directory: Path
) -> None:
    add(log, 100)
    with pytest.raises(RecordTooLargeError, match=r"4089 bytes .* 4096 bytes"):
        add(log, SIZE - 7)
    assert (log.staged_offset, log.written_offset) == (100, 0)
    log.write()
    assert log.written_offset == 100
    assert file_names(directory) == ["0"]


def test_a_refusal_before_the_first_record_makes_no_file(log: CommitLog, directory: Path) -> None:
    with pytest.raises(RecordTooLargeError):
        add(log, SIZE)
    assert not directory.exists()


def test_the_next_file_is_made_ahead_once_a_file_is_half_full(
    log: CommitLog, directory: Path, executor: InlineExecutor
) -> None:
    add(log, SIZE // 2)
    log.write()
    assert executor.count == 0
    add(log, 1)
    log.write()
    add(log, 100)
    log.write()
    assert executor.count == 1
    assert file_names(directory) == ["0", "4096"]


def test_a_file_made_ahead_is_the_one_that_is_used(
    log: CommitLog, executor: InlineExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(log, 3000)
    log.write()
    monkeypatch.setattr(MappedFile, "create", None)
    assert add(log, 1100) == SIZE
    log.write()
    assert log.read(SIZE, SIZE + 1100) == b"r" * 1100
    assert executor.count == 1


def test_a_file_that_could_not_be_made_ahead_is_made_when_needed(
    log: CommitLog, executor: InlineExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(log, 100)
    log.write()
    with monkeypatch.context() as full:
        full.setattr(disk, "preallocate", _no_room)
        add(log, 3000)
        log.write()
    assert executor.count == 1
    assert add(log, 3000) == SIZE


def test_without_room_for_the_next_file_what_is_in_the_log_stays(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(log, 3000)
    with monkeypatch.context() as full:
        full.setattr(disk, "preallocate", _no_room)
        with pytest.raises(DiskFullError, match=r"next commit log file .* free space"):
            add(log, 3000)
        assert log.written_offset == 3000
        assert log.read(0, 3000) == b"r" * 3000
        # What still fits the file is taken.
        assert add(log, 100) == 3000
        log.write()
    assert add(log, 3000) == SIZE
    log.write()
    assert log.read(3000, 3100) == b"r" * 100


def _no_room(*_arguments: object) -> None:
    raise OSError(errno.ENOSPC, "no room")


def test_the_unused_file_is_deleted_at_the_end(log: CommitLog, directory: Path) -> None:
    add(log, 3000)
    log.write()
    assert file_names(directory) == ["0", "4096"]
    log.close()
    assert file_names(directory) == ["0"]


def test_a_failed_attempt_to_make_a_file_ahead_does_not_disturb_the_end(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(log, 100)
    log.write()
    monkeypatch.setattr(disk, "preallocate", _no_room)
    add(log, 3000)
    log.write()
    log.close()


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EIO, StoreError)]
)
def test_a_write_that_fails_stores_nothing_and_can_be_repeated(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreError]
) -> None:
    add(log, 100, b"a")
    log.write()
    add(log, 100, b"b")
    with monkeypatch.context() as broken:
        broken.setattr(MappedFile, "pwrite", failing(number))
        with pytest.raises(kind, match="write the commit log at 100"):
            log.write()
    assert (log.staged_offset, log.written_offset) == (100, 100)
    assert add(log, 100, b"c") == 100
    log.write()
    assert log.read(0, 200) == b"a" * 100 + b"c" * 100


def test_what_a_failed_write_left_behind_is_no_record(
    log: CommitLog, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(log, 100)
    log.write()
    real = MappedFile.pwrite

    def half(file: MappedFile, position: int, data: bytes) -> None:
        if data.strip(b"\0"):
            real(file, position, data[: len(data) // 2])
            raise OSError(errno.EIO, "no")
        real(file, position, data)

    monkeypatch.setattr(MappedFile, "pwrite", half)
    add(log, 100, b"b")
    add(log, 100, b"b")
    with pytest.raises(StoreError):
        log.write()
    assert (directory / f"{0:020d}").read_bytes()[100:300] == bytes(200)


def test_a_write_that_fails_while_rolling_fails_the_end_of_the_pass_too(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(log, 100)
    log.write()
    add(log, 3000, b"b")
    with monkeypatch.context() as broken:
        broken.setattr(MappedFile, "pwrite", failing(errno.EIO))
        with pytest.raises(StoreError, match="at 100"):
            add(log, 3000, b"c")
    add(log, 100, b"d")
    with pytest.raises(StoreError, match="at 100"):
        log.write()
    assert (log.staged_offset, log.written_offset) == (100, 100)
    log.write()
    assert log.written_offset == 100


def test_a_blank_record_that_cannot_be_written_is_tried_again(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(log, 3000)
    log.write()
    with monkeypatch.context() as broken:
        broken.setattr(MappedFile, "pwrite", failing(errno.EIO))
        with pytest.raises(StoreError, match="at 3000"):
            add(log, 3000)
    assert add(log, 3000) == SIZE
    log.write()
    assert log.read(3000, 3008) == struct.pack(">II", SIZE - 3000, 0xCBD43194)
    assert log.record_at(3000) == b""
    assert log.next_file_offset(3000) == SIZE


def test_reading_beyond_what_is_written_or_deleted_gives_nothing(log: CommitLog) -> None:
    add(log, 3000)
    add(log, 3000)
    log.write()
    log.drop_files_before(SIZE)
    assert log.min_offset == SIZE
    assert log.read(0, 10) == b""
    assert log.read(SIZE, SIZE + 3001) == b""
    assert log.read(2 * SIZE, 2 * SIZE + 1) == b""


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">II", 90, 0xDAA320A7),
        struct.pack(">II", 200, 0xCBD43194),
        struct.pack(">II", 0, 0),
        struct.pack(">II", 0x7FFFFFFF, 0xDAA320A7),
    ],
)
def test_what_has_no_head_of_a_record_is_not_read_as_one(log: CommitLog, head: bytes) -> None:
    log.stage_encoded(head + bytes(200))
    log.write()
    assert log.record_at(0) == b""


def test_a_flush_covers_what_was_written_when_it_began(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.store_time_ms = 7
    add(log, 100)
    log.write()

    def write_meanwhile(_descriptor: int) -> None:
        log.store_time_ms = 8
        add(log, 50)
        log.write()

    monkeypatch.setattr(disk, "sync_file", write_meanwhile)
    assert log.flush() == 100
    assert (log.flushed_offset, log.flushed_time_ms, log.written_offset) == (100, 7, 150)


def test_a_flush_reaches_over_files(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    add(log, 3000)
    add(log, 3000)
    log.write()
    synced: list[int] = []
    monkeypatch.setattr(disk, "sync_file", synced.append)
    assert log.flush() == SIZE + 3000
    assert len(synced) == 2
    log.flush()
    assert len(synced) == 2


def test_a_flush_that_fails_claims_nothing(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.store_time_ms = 7
    add(log, 100)
    log.write()

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as broken:
        broken.setattr(disk, "sync_file", fail)
        with pytest.raises(StoreFailedError, match="check the disk, then restart"):
            log.flush()
    assert (log.flushed_offset, log.flushed_time_ms) == (0, 0)
    # A repeated fsync may succeed without the pages that were lost.
    with pytest.raises(StoreFailedError):
        log.flush()
