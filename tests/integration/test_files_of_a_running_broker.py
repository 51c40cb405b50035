"""``rocketmq-store`` on the store of a daemon: while it runs, after kill -9, after a clean stop."""

import asyncio
from pathlib import Path

import pytest

from rockhopper.client import Message, Producer
from rockhopper.pipeline.store_source.directory import open_store
from tests.support.daemon import Daemon
from tests.support.hang import HANG_S
from tests.support.written_logs import read_rows


def bodies(store: Path) -> list[bytes]:
    rows = read_rows(store, {"topic": "T", "columns": "body", "verifyCrc": "fail"})
    return [row["body"] for row in rows]


async def send(daemon: Daemon, first: int, count: int) -> None:
    async with Producer(nameserver=daemon.nameserver) as producer:
        for number in range(first, first + count):
            await producer.send(Message("T", b"%d" % number))


@pytest.mark.costly
async def test_what_is_on_disk_is_read_and_nothing_is_lost_by_kill_or_stop(tmp_path: Path) -> None:
    sent = [b"%d" % number for number in range(60)]
    async with Daemon(tmp_path) as daemon:
        await send(daemon, 0, 40)
        store = open_store(str(tmp_path))
        assert store.is_live
        assert store.flushed.offset is not None
        # The checkpoint follows by itself, about once a second.
        async with asyncio.timeout(HANG_S):
            while (found := bodies(tmp_path)) != sent[:40]:
                assert found == sent[: len(found)]
                await asyncio.sleep(0.05)
        await send(daemon, 40, 10)
        await daemon.kill()
    assert not open_store(str(tmp_path)).is_live
    assert bodies(tmp_path) == sent[:50]

    async with Daemon(tmp_path) as daemon:
        assert bodies(tmp_path) == sent[:50]
        await send(daemon, 50, 10)
        assert await daemon.stop() == 0
    assert not open_store(str(tmp_path)).is_live
    assert bodies(tmp_path) == sent
