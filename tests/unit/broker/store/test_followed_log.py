"""A store that copies a master's log: cut anywhere, killed anywhere, in queues when told."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.settings.store_config import FlushDiskType
from rockhopper.broker.store.files.errors import DiskFullError, LogMismatchError
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.log.log_start import begin_at
from rockhopper.broker.store.message_store import MessageStore
from tests.support.open_stores import FILE_SIZE_BYTES, Stores, bodies, close, fill, flush, put
from tests.support.records import encode_message

SYNC: dict[str, Any] = {"flush_disk_type": FlushDiskType.SYNC}


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    stores.close_all()


@pytest.fixture
def master(stores: Stores, tmp_path: Path) -> MessageStore:
    """A store with two and a half files of messages."""
    store = stores.open(tmp_path / "master")
    fill(store, 40, 150)
    put(store, b"another topic", "TopicB", 3)
    return store


def log_bytes(store: MessageStore, start: int, end: int) -> bytes:
    """The log as it stands in the files, blanks included."""
    data = b""
    while start < end:
        stop = min(end, start - start % FILE_SIZE_BYTES + FILE_SIZE_BYTES)
        path = store.opened.layout.commit_log / f"{start - start % FILE_SIZE_BYTES:020d}"
        data += path.read_bytes()[start % FILE_SIZE_BYTES :][: stop - start]
        start = stop
    return data


def copy(master: MessageStore, follower: MessageStore, frame_size_bytes: int) -> None:
    end = master.log.written_offset
    while (start := follower.log.received_offset) < end:
        stop = min(end, start + frame_size_bytes)
        follower.append_raw(start, log_bytes(master, start, stop))


def see_all(follower: MessageStore) -> None:
    """Let everything that came into the queues."""
    follower.follow_to(follower.log.written_offset)
    flush(follower)
    while follower.catch_up():
        pass


@pytest.mark.parametrize("frame_size_bytes", [1, 7, 100, 1000, 5000, 1 << 20])
def test_frames_of_any_size_make_the_same_store(
    frame_size_bytes: int, stores: Stores, master: MessageStore
) -> None:
    follower = stores.open(**SYNC)
    copy(master, follower, frame_size_bytes)
    end = master.log.written_offset
    assert follower.log.written_offset == end
    assert log_bytes(follower, 0, end) == log_bytes(master, 0, end)
    see_all(follower)
    assert bodies(follower) == bodies(master)
    assert bodies(follower, "TopicB", 3) == [b"another topic"]


def test_nothing_is_in_a_queue_before_it_may_be(stores: Stores, master: MessageStore) -> None:
    follower = stores.open(**SYNC)
    copy(master, follower, 1000)
    flush(follower)
    follower.follow_to(2000)
    while follower.catch_up():
        pass
    seen = len(bodies(follower))
    assert 0 < seen < 40
    see_all(follower)
    assert len(bodies(follower)) == 40


def test_other_offsets_than_the_end_are_refused(stores: Stores, master: MessageStore) -> None:
    follower = stores.open(**SYNC)
    follower.append_raw(0, log_bytes(master, 0, 150))
    with pytest.raises(LogMismatchError, match=r"offset 151 .* ends at 150"):
        follower.append_raw(151, b"x")
    with pytest.raises(LogMismatchError, match=r"offset 0 .* ends at 150"):
        follower.append_raw(0, b"x")
    assert follower.log.received_offset == 150


@pytest.mark.parametrize(
    "data",
    [b"no record at all", bytes(8), (1 << 20).to_bytes(4, "big") + bytes.fromhex("daa320a7")],
    ids=["text", "zeros", "too large"],
)
def test_what_never_becomes_a_record_is_refused(data: bytes, stores: Stores) -> None:
    follower = stores.open(**SYNC)
    with pytest.raises(LogMismatchError, match="no record at offset 0"):
        follower.append_raw(0, data)


@pytest.mark.parametrize("cut", [1, 6, 8, 50, 90, 91, 200])
def test_a_kill_in_the_middle_of_a_record_costs_that_record_alone(
    cut: int, stores: Stores, master: MessageStore
) -> None:
    follower = stores.open(**SYNC)
    copy(master, follower, FILE_SIZE_BYTES)
    end = follower.log.received_offset
    put(master, bytes(300))
    follower.append_raw(end, log_bytes(master, end, end + cut))
    flush(follower)
    killed = stores.reopen_after_kill(**SYNC)
    assert killed.opened.report.holes == []
    assert killed.log.received_offset == end
    copy(master, killed, 64)
    see_all(killed)
    assert bodies(killed) == bodies(master)


def test_a_kill_at_any_byte_leaves_a_beginning_of_the_log(
    stores: Stores, master: MessageStore
) -> None:
    end = master.log.written_offset
    follower = stores.open(**SYNC)
    for _ in range(end // 397):
        start = follower.log.received_offset
        follower.append_raw(start, log_bytes(master, start, start + 397))
        killed = stores.reopen_after_kill(**SYNC)
        assert killed.log.received_offset == follower.log.written_offset
        assert killed.opened.report.holes == []
        asyncio.run(stores.opened.popitem()[1].close())


def test_a_clean_stop_forgets_half_a_record(stores: Stores, master: MessageStore) -> None:
    follower = stores.open(**SYNC)
    copy(master, follower, FILE_SIZE_BYTES)
    end = follower.log.received_offset
    put(master, bytes(300))
    follower.append_raw(end, log_bytes(master, end, end + 200))
    follower.follow_to(500)
    follower.retention.expire_before(0)
    again = stores.reopen_after_stop(**SYNC)
    assert (again.log.received_offset, again.opened.report.cut) == (end, None)
    assert bodies(again) == bodies(master)[:-1]


def test_a_log_that_ends_with_its_file_goes_on_in_the_next(
    stores: Stores, master: MessageStore
) -> None:
    follower = stores.open(**SYNC)
    follower.append_raw(0, log_bytes(master, 0, FILE_SIZE_BYTES))
    again = stores.reopen_after_stop(**SYNC)
    assert again.log.received_offset == FILE_SIZE_BYTES
    copy(master, again, 1000)
    see_all(again)
    assert bodies(again) == bodies(master)


def test_a_log_may_begin_where_the_masters_does(stores: Stores) -> None:
    start = 5 * FILE_SIZE_BYTES
    record = encode_message(
        topic="TopicA", queue_offset=70, body=b"late", store_time_ms=5, commit_log_offset=start
    )
    begin_at(stores.root / "commitlog", FILE_SIZE_BYTES, start)
    follower = stores.open(**SYNC)
    assert follower.log.received_offset == follower.log.min_offset == start
    again = stores.reopen_after_kill(**SYNC)
    assert again.log.received_offset == start
    again = stores.reopen_after_stop(**SYNC)
    again.append_raw(start, record)
    see_all(again)
    assert again.reading.queue_range("TopicA", 0) == (70, 71)
    again = stores.reopen_after_stop(**SYNC)
    assert bodies(again, offset=70) == [b"late"]


def test_a_full_disk_refuses_the_rest_and_takes_it_later(
    stores: Stores, master: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = stores.open(**SYNC)
    real = MappedFile.pwrite

    def full(_file: MappedFile, _position: int, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    copy(master, follower, 1000)
    end = follower.log.received_offset
    put(master, b"one more")
    monkeypatch.setattr(MappedFile, "pwrite", full)
    with pytest.raises(DiskFullError, match="the disk is full"):
        copy(master, follower, 1000)
    assert follower.log.received_offset == end
    monkeypatch.setattr(MappedFile, "pwrite", real)
    copy(master, follower, 1000)
    see_all(follower)
    assert bodies(follower) == bodies(master)


def test_an_ordinary_broker_goes_on_behind_a_followed_log(
    stores: Stores, master: MessageStore
) -> None:
    follower = stores.open(**SYNC)
    follower.append_raw(0, log_bytes(master, 0, FILE_SIZE_BYTES))
    close(stores.opened.pop(stores.root))
    store = stores.open()
    count = len(bodies(store))
    assert put(store, b"new").queue_offset == count
    assert bodies(store)[-1] == b"new"
