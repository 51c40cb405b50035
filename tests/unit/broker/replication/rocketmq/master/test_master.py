"""The port for slaves: the same bytes, and answers that wait for them."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.replication.rocketmq.master.master import ClassicMaster
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.settings.store_config import FlushDiskType
from rockhopper.broker.store.files.errors import NotReplicatedError, StoreError
from rockhopper.broker.store.message_store import MessageStore
from tests.support.classic_slave import ClassicSlave
from tests.support.open_stores import FILE_SIZE_BYTES, Stores, bodies, fill, put
from tests.support.turns import until

SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}


class Rig:
    """A master over a small store."""

    def __init__(self, store: MessageStore, settings: dict[str, str]) -> None:
        self.store = store
        texts = {
            "haMode": "classic",
            "mappedFileSizeCommitLog": str(FILE_SIZE_BYTES),
            "flushDiskType": "SYNC_FLUSH"
            if store.safe_point.is_what_is_written is False
            else "ASYNC_FLUSH",
        }
        self.master = ClassicMaster(store, build_config(texts | settings))
        self.port = 0

    async def open(self) -> None:
        self.master.open()
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        self.port = bound.getsockname()[1]
        await self.master.start_on(bound)

    @property
    def end(self) -> int:
        return self.store.log.written_offset

    async def follow(self, slave: ClassicSlave) -> None:
        """Have all of the log, and say so."""
        await slave.copy_to(self.end)
        slave.report(self.end)
        await until(lambda: all(each.acked_offset == self.end for each in self.master.slaves))


Opening = Callable[..., contextlib.AbstractAsyncContextManager[Rig]]


@pytest.fixture
def opening(tmp_path: Path) -> Opening:
    @contextlib.asynccontextmanager
    async def run(
        flush: FlushDiskType = FlushDiskType.ASYNC, **settings: str
    ) -> AsyncIterator[Rig]:
        store = await Stores(tmp_path).start(flush_disk_type=flush)
        fill(store, 60)
        if flush is FlushDiskType.SYNC:
            store.flush_now()
        assert store.log.written_offset > FILE_SIZE_BYTES
        rig = Rig(store, settings)
        await rig.open()
        try:
            yield rig
        finally:
            await rig.master.close()
            await store.close()

    return run


async def test_the_files_are_the_same_byte_for_byte(opening: Opening) -> None:
    async with opening() as rig:
        async with ClassicSlave(rig.port) as slave:
            slave.report(1)
            await slave.copy_to(rig.end)
            fill(rig.store, 30)
            await rig.follow(slave)
            files = sorted(rig.store.opened.layout.commit_log.iterdir())
            log = b"".join(file.read_bytes() for file in files)
            assert b"\0" + slave.data == log[: rig.end]


async def test_an_asynchronous_master_shows_what_it_has(opening: Opening) -> None:
    async with opening() as rig:
        put(rig.store, b"new")
        await asyncio.sleep(0)
        assert bodies(rig.store)[-1] == b"new"


async def test_a_message_waits_for_the_slave(opening: Opening) -> None:
    async with opening(**SYNC) as rig:
        known = len(bodies(rig.store))
        async with ClassicSlave(rig.port) as slave:
            slave.report(rig.end)
            end = put(rig.store, b"new").end_offset
            answered: list[StoreError | None] = []
            rig.store.safe_point.when(end, answered.append)
            await slave.copy_to(end)
            assert answered == []
            assert len(bodies(rig.store)) == known
            slave.report(end)
            await until(lambda: answered == [None])
            assert bodies(rig.store)[-1] == b"new"


async def test_a_slave_that_does_not_answer_is_a_timeout(opening: Opening) -> None:
    async with opening(**SYNC, slaveTimeout="10") as rig:
        end = put(rig.store, b"new").end_offset
        with pytest.raises(NotReplicatedError):
            await rig.store.safe_point.wait(end)


async def test_two_connections_of_one_machine_are_one_slave(opening: Opening) -> None:
    async with opening(**(SYNC | {"inSyncReplicas": "3"})) as rig:
        confirmed = rig.store.safe_point.high_watermark
        async with ClassicSlave(rig.port) as one, ClassicSlave(rig.port) as again:
            put(rig.store, b"new")
            for slave in (one, again):
                slave.report(1)
                await slave.copy_to(rig.end)
                slave.report(rig.end)
            await until(lambda: len(rig.master.slaves) == 2 and rig.master.slaves.have(rig.end))
            assert rig.store.safe_point.high_watermark == confirmed
            assert rig.master.in_sync_count == 2
            async with ClassicSlave(rig.port, "127.0.0.2") as other:
                other.report(1)
                await other.copy_to(rig.end)
                other.report(rig.end)
                await until(lambda: rig.store.safe_point.high_watermark == rig.end)


async def test_nothing_is_stored_while_too_few_are_there(opening: Opening) -> None:
    async with opening(**SYNC, minInSyncReplicas="2") as rig:
        end = rig.end
        with pytest.raises(NotReplicatedError, match="in-sync replicas not enough"):
            put(rig.store)
        async with ClassicSlave(rig.port) as slave:
            slave.report(rig.end)
            await until(lambda: rig.store.is_writable)
        await until(lambda: not rig.store.is_writable)
        assert rig.end == end


async def test_under_sync_flush_slaves_get_what_is_on_disk(opening: Opening) -> None:
    async with opening(FlushDiskType.SYNC) as rig:
        rig.store.flush_service.stop()
        rig.store.flush_now()
        async with ClassicSlave(rig.port) as slave:
            flushed = rig.end
            slave.report(1)
            await slave.copy_to(flushed)
            end = put(rig.store, b"new").end_offset
            slave.report(flushed)
            await until(lambda: rig.master.slaves.have(flushed))
            assert [each.next_offset for each in rig.master.slaves] == [flushed]
            rig.store.flush_now()
            await slave.copy_to(end)


async def test_slaves_are_listed(opening: Opening) -> None:
    async with opening() as rig:
        async with ClassicSlave(rig.port) as slave:
            slave.report(rig.end - 10)
            await slave.copy_to(rig.end)
            info = rig.master.ha_runtime_info()
            assert info["inSyncSlaveNums"] == 1
            (listed,) = info["haConnectionInfo"]
            assert (listed["slaveAckOffset"], listed["diff"]) == (rig.end - 10, 10)
            assert (listed["inSync"], listed["transferFromWhere"]) == (True, rig.end)


async def test_a_refused_machine_is_let_go_and_not_let_in(opening: Opening) -> None:
    async with opening() as rig:
        with capture_logs() as logs:
            async with ClassicSlave(rig.port) as slave:
                slave.report(rig.end)
                await until(lambda: len(rig.master.slaves) == 1)
                rig.master.refuse("127.0.0.1", "5.3.3")
                rig.master.refuse("127.0.0.1", "5.3.3")
                await slave.closed()
            async with ClassicSlave(rig.port) as again:
                await again.closed()
        refusals = [entry for entry in logs if entry["event"] == "slave refused"]
        assert [entry["reason"] for entry in refusals] == ["5.3.3"]
        assert len(rig.master.slaves) == 0


async def test_a_stop_waits_until_slaves_have_the_end(opening: Opening) -> None:
    async with opening() as rig:
        async with ClassicSlave(rig.port) as slave:
            slave.report(1)
            await until(lambda: any(each.is_known for each in rig.master.slaves))
            closing = asyncio.ensure_future(rig.master.close())
            await rig.follow(slave)
            await closing
            await slave.closed()
