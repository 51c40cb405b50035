"""Queues that outlived their messages are kept: they alone know which offset comes next."""

import dataclasses
from pathlib import Path

import pytest

from rockhopper.pipeline.derived.entries import QueueKey
from rockhopper.pipeline.derived.queue_files import queue_directory
from rockhopper.pipeline.jobs.rebuilding.kept_queues import keep_expired_queues
from rockhopper.pipeline.store_source.directory import StoreDirectory, open_store
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from tests.support.written_logs import WrittenLog

KEY = QueueKey("old", 3, False)
FILE_SIZE_BYTES = 8192


@pytest.fixture
def store(tmp_path: Path) -> StoreDirectory:
    """A log whose first file has expired, and an empty directory for what is rebuilt."""
    log = WrittenLog(tmp_path / "store", file_size_bytes=FILE_SIZE_BYTES).add(100)
    log.file_of(0).unlink()
    (tmp_path / "made").mkdir()
    return open_store(str(log.root))


def write_queue(root: Path, *units: tuple[int, int], key: QueueKey = KEY) -> Path:
    """A queue of units of (commit log offset, size), with room behind them."""
    directory = queue_directory(root, key)
    directory.mkdir(parents=True)
    data = b"".join(CONSUME_QUEUE_UNIT.pack(*unit, 7) for unit in units)
    (directory / f"{0:020d}").write_bytes(data.ljust(200, b"\0"))
    return directory


def kept(tmp_path: Path, store: StoreDirectory) -> int:
    return keep_expired_queues(tmp_path / "store", tmp_path / "made", store)


def test_a_queue_whose_last_message_has_expired(tmp_path: Path, store: StoreDirectory) -> None:
    directory = write_queue(tmp_path / "store", (0, 100), (100, 100))
    assert kept(tmp_path, store) == 1
    (copy,) = queue_directory(tmp_path / "made", KEY).iterdir()
    assert copy.read_bytes() == (directory / copy.name).read_bytes()


@pytest.mark.parametrize(
    "units",
    [
        [(0, 100), (FILE_SIZE_BYTES, 100)],
        [(FILE_SIZE_BYTES * 50, 100)],
        [(0, 0)],
        [(-5, 100)],
        [],
    ],
    ids=["not expired", "behind the log", "without a size", "nowhere", "without units"],
)
def test_others_follow_from_the_log(
    tmp_path: Path, store: StoreDirectory, units: list[tuple[int, int]]
) -> None:
    write_queue(tmp_path / "store", *units)
    assert kept(tmp_path, store) == 0
    assert not queue_directory(tmp_path / "made", KEY).exists()


def test_one_that_was_rebuilt_is_left_alone(tmp_path: Path, store: StoreDirectory) -> None:
    write_queue(tmp_path / "store", (0, 100))
    made = write_queue(tmp_path / "made", (1, 1))
    before = [path.read_bytes() for path in made.iterdir()]
    assert kept(tmp_path, store) == 0
    assert [path.read_bytes() for path in made.iterdir()] == before


def test_those_of_deleted_topics_stay_deleted(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store", file_size_bytes=FILE_SIZE_BYTES).add(100)
    log.file_of(0).unlink()
    write_queue(tmp_path / "store", (0, 100))
    (tmp_path / "made").mkdir()
    store = open_store(str(log.root))
    store = dataclasses.replace(store, deleted_topics={"old": FILE_SIZE_BYTES})
    assert kept(tmp_path, store) == 0
