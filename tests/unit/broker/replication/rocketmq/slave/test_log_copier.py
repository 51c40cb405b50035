"""Copying a log: from its first byte, over lost connections, and never what does not fit."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.name_server.followed_master import Master
from rockhopper.broker.replication.rocketmq.slave.log_copier import COMPARED_SIZE_BYTES, LogCopier
from rockhopper.broker.settings.store_config import FlushDiskType
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.log.log_start import begin_at
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.ha_frames import HaFrame, encode_ha_frame
from tests.support.classic_master import FILE_SIZE_BYTES, ClassicMaster
from tests.support.open_stores import Stores
from tests.support.turns import until

CUT = 1000
Copying = Callable[..., contextlib.AbstractAsyncContextManager[LogCopier]]


@pytest.fixture
async def apache(tmp_path: Path) -> AsyncIterator[ClassicMaster]:
    """A master with two files of messages, which sends frames that cut them."""
    async with ClassicMaster(tmp_path / "apache", CUT) as apache:
        apache.send(600)
        assert apache.log.end > FILE_SIZE_BYTES
        yield apache


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    stores = Stores(tmp_path)
    store = await stores.start(
        flush_disk_type=FlushDiskType.SYNC, commit_log_file_size_bytes=FILE_SIZE_BYTES
    )
    yield store
    await store.close()


@pytest.fixture
async def copying(apache: ClassicMaster, store: MessageStore) -> AsyncIterator[Copying]:
    """Runs a copier for a while."""
    master = Master(apache.address)

    @contextlib.asynccontextmanager
    async def run(**times: Any) -> AsyncIterator[LogCopier]:
        given = {"heartbeat_s": 60.0, "silence_s": 60.0, "pauses_s": (0.0, 0.01), **times}
        copier = LogCopier(store, master.facts, **given)
        task = asyncio.ensure_future(copier.run())
        try:
            yield copier
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    yield run
    master.close()


def assert_same(store: MessageStore, apache: ClassicMaster) -> None:
    files = sorted(apache.log.commit_log.iterdir())
    assert store.log.written_offset == apache.log.end
    for file in files:
        assert (store.opened.layout.commit_log / file.name).read_bytes() == file.read_bytes()


async def test_a_log_is_copied_from_its_first_byte(
    apache: ClassicMaster, store: MessageStore, copying: Copying
) -> None:
    async with copying() as copier:
        await copier.caught_up(apache.log.end)
        await apache.reported(apache.log.end)
        assert apache.first_reports == [1]
        assert copier.is_connected
        assert copier.problem is None
        apache.send(10)
        await apache.tell()
        await copier.caught_up(apache.log.end)
    assert_same(store, apache)


async def test_a_log_that_begins_later_is_copied_from_there(
    apache: ClassicMaster, tmp_path: Path
) -> None:
    stores = Stores(tmp_path / "other")
    begin_at(stores.root / "commitlog", FILE_SIZE_BYTES, FILE_SIZE_BYTES)
    store = await stores.start(
        flush_disk_type=FlushDiskType.SYNC, commit_log_file_size_bytes=FILE_SIZE_BYTES
    )
    master = Master(apache.address)
    copier = LogCopier(store, master.facts, heartbeat_s=60, silence_s=60)
    task = asyncio.ensure_future(copier.run())
    await copier.caught_up(apache.log.end)
    task.cancel()
    master.close()
    assert apache.first_reports == [FILE_SIZE_BYTES]
    await store.close()


async def test_a_lost_connection_is_made_again_and_the_end_compared(
    apache: ClassicMaster, store: MessageStore, copying: Copying
) -> None:
    async with copying() as copier:
        await copier.caught_up(apache.log.end)
        end = apache.log.end
        apache.drop()
        await apache.connected(2)
        assert apache.first_reports[1] == end - COMPARED_SIZE_BYTES
        apache.send(10)
        await apache.tell()
        await copier.caught_up(apache.log.end)
    assert copier.connections == 2
    assert_same(store, apache)


async def test_the_master_hears_of_a_copy_to_which_nothing_comes(
    apache: ClassicMaster, copying: Copying
) -> None:
    async with copying(heartbeat_s=0.01) as copier:
        await copier.caught_up(apache.log.end)
        count = len(apache.reports)
        await until(lambda: apache.reports[count:].count(apache.log.end) >= 3)


async def test_a_silent_master_is_left(apache: ClassicMaster, copying: Copying) -> None:
    async with copying(silence_s=0.05) as copier:
        await apache.connected(3)
        await copier.caught_up(apache.log.end)
    assert copier.connections >= 2
    assert copier.problem is None or "silent for 0.05 s" in copier.problem


@pytest.mark.parametrize("data", [b"x", b""])
async def test_another_offset_than_the_next_ends_the_connection(
    data: bytes, apache: ClassicMaster, store: MessageStore, copying: Copying
) -> None:
    apache.raw = encode_ha_frame(HaFrame(4000, data))
    with capture_logs() as lines:
        async with copying() as copier:
            await apache.connected(3)
            assert not copier.is_connected
    assert copier.problem == "the master sent offset 4000 instead of 1"
    assert len([line for line in lines if line["log_level"] == "error"]) == 1
    assert store.log.written_offset == 0


async def test_a_copy_that_is_longer_than_its_master_is_left_as_it_is(
    apache: ClassicMaster, store: MessageStore, copying: Copying
) -> None:
    async with copying() as copier:
        await copier.caught_up(end := apache.log.end)
        apache.log.end = 5000
        apache.drop()
        await until(lambda: copier.problem is not None and "5000" in copier.problem)
        assert f"the copy ends at offset {end}, beyond the end of the master's log at 5000" in str(
            copier.problem
        )
        assert "Nothing was cut" in str(copier.problem)
    assert store.log.written_offset == end


async def test_a_copy_that_has_fallen_out_of_its_masters_log_is_told(
    apache: ClassicMaster, copying: Copying
) -> None:
    async with copying() as copier:
        await copier.caught_up(apache.log.end)
        apache.min_offset = 10 * FILE_SIZE_BYTES
        apache.log.end = 11 * FILE_SIZE_BYTES
        apache.drop()
        await until(lambda: copier.problem is not None and "have expired there" in copier.problem)


async def test_a_log_that_was_written_anew_is_noticed(
    apache: ClassicMaster, store: MessageStore, copying: Copying
) -> None:
    async with copying() as copier:
        await copier.caught_up(end := apache.log.end)
        apache.log.write(end - 100, b"other bytes")
        apache.send(5)
        apache.drop()
        await until(lambda: copier.problem is not None and "is not the master's" in copier.problem)
    assert store.log.written_offset == end


async def test_what_is_no_frame_is_no_master(apache: ClassicMaster, copying: Copying) -> None:
    apache.raw = b"HTTP/1.1 400 Bad Request\r\n"
    async with copying() as copier:
        await until(lambda: copier.problem is not None)
        assert "haListenPort" in str(copier.problem)


async def test_a_full_disk_is_waited_for(
    apache: ClassicMaster,
    store: MessageStore,
    copying: Copying,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = MappedFile.pwrite

    def full(file: MappedFile, position: int, data: bytes) -> None:
        if position > 3 * CUT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file, position, data)

    monkeypatch.setattr(MappedFile, "pwrite", full)
    async with copying() as copier:
        await until(lambda: copier.problem is not None)
        assert "the disk is full" in str(copier.problem)
        monkeypatch.setattr(MappedFile, "pwrite", real)
        await copier.caught_up(apache.log.end)
    assert_same(store, apache)
