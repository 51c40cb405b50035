"""What a slave of RocketMQ's gets from haListenPort, and a broker that follows one of ours."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.assembly.classic.slave_port import FRAME_SIZE_BYTES, SlavePort
from rockhopper.broker.broker import TEMPORARY_SETTINGS
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.ha_frames import HaFrame, HaFrameDecoder, encode_report
from tests.support.direct import send
from tests.support.open_stores import FILE_SIZE_BYTES, Stores, fill
from tests.support.turns import until


class Slave:
    """The other end, as RocketMQ's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer, self._decoder = reader, writer, HaFrameDecoder()
        self.frames: list[HaFrame] = []

    def report(self, offset: int) -> None:
        self.writer.write(encode_report(offset))

    async def more(self) -> bool:
        data = await self._reader.read(1 << 16)
        self.frames += self._decoder.feed(data)
        return bool(data)

    async def log_to(self, end: int) -> bytes:
        while not self.frames or self.frames[-1].offset + len(self.frames[-1].data) < end:
            assert await self.more()
        return b"".join(frame.data for frame in self.frames)


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    opened = Stores(tmp_path).open()
    fill(opened, 60, 150)
    return opened


@pytest.fixture
async def port(store: MessageStore) -> AsyncIterator[SlavePort]:
    found = SlavePort(store, FILE_SIZE_BYTES, heartbeat_s=0.05, silence_s=60)
    await found.start("127.0.0.1", 0)
    yield found
    await found.close()


async def connected(port: SlavePort) -> Slave:
    return Slave(*await asyncio.open_connection("127.0.0.1", port.port))


def files(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


async def test_the_log_goes_over_as_it_stands_in_the_files(
    port: SlavePort, store: MessageStore
) -> None:
    slave, end = await connected(port), store.max_commit_log_offset
    slave.report(1)
    assert await slave.log_to(end) == files(store.layout.root)[1:end]
    ends = [frame.offset + len(frame.data) for frame in slave.frames]
    for frame, frame_end in zip(slave.frames, ends, strict=True):
        assert len(frame.data) <= FRAME_SIZE_BYTES
        assert (
            not frame.data or frame.offset // FILE_SIZE_BYTES == (frame_end - 1) // FILE_SIZE_BYTES
        )
    slave.report(end)
    await until(lambda: [each.acknowledged_offset for each in port.slaves] == [end])
    assert port.runtime_info()["inSyncSlaveNums"] == 1
    slave.writer.close()


async def test_an_empty_slave_begins_with_the_newest_file(
    port: SlavePort, store: MessageStore
) -> None:
    slave, end = await connected(port), store.max_commit_log_offset
    slave.report(0)
    await slave.log_to(end)
    assert slave.frames[0].offset == end - end % FILE_SIZE_BYTES
    slave.writer.close()


async def test_what_comes_later_follows_and_silence_is_filled_with_heartbeats(
    port: SlavePort, store: MessageStore
) -> None:
    slave, end = await connected(port), store.max_commit_log_offset
    slave.report(end)
    while not slave.frames:
        await slave.more()
    assert slave.frames[0] == HaFrame(end, b"")
    fill(store, 1)
    await slave.log_to(store.max_commit_log_offset)
    slave.writer.close()


async def test_a_slave_with_another_log_is_refused(port: SlavePort, store: MessageStore) -> None:
    slave = await connected(port)
    slave.report(store.max_commit_log_offset + 1)
    assert not await slave.more()
    await until(lambda: not port.slaves)
    slave.writer.close()


async def test_a_silent_slave_is_closed(store: MessageStore) -> None:
    port = SlavePort(store, FILE_SIZE_BYTES, heartbeat_s=60, silence_s=0.01)
    await port.start("127.0.0.1", 0)
    slave = await connected(port)
    assert not await slave.more()
    slave.writer.close()
    await port.close()


async def test_a_broker_of_ours_follows_one_of_ours(tmp_path: Path) -> None:
    own = {"storePathRootDir": str(tmp_path / "master"), "haMode": "classic"}
    async with Broker(build_config(TEMPORARY_SETTINGS | own | {"haListenPort": "0"})) as master:
        for number in range(20):
            await send(master.address, "TBW102", b"%d" % number)
        copy = {
            "storePathRootDir": str(tmp_path / "copy"),
            "followMaster": master.address,
            "haMasterAddress": f"127.0.0.1:{master.slaves.port if master.slaves else 0}",
        }
        async with Broker(build_config(TEMPORARY_SETTINGS | copy)) as follower:
            end = master.store.max_commit_log_offset
            await until(lambda: follower.store.max_commit_log_offset == end)
            assert files(tmp_path / "copy")[:end] == files(tmp_path / "master")[:end]
