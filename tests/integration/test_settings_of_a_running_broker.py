"""UPDATE_BROKER_CONFIG (25) on a running broker: what Apache's changes live changes here, too."""

import asyncio
from pathlib import Path

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.settings.config_file import build_config
from rockhopper.client import Admin, Message, Producer
from rockhopper.protocol.bodies.setting_facts import SettingFacts
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.direct import ask, pull_fields, send, send_fields
from tests.support.hang import HANG_S
from tests.support.turns import until
from tests.support.wire import WireClient


async def update(broker: Broker, text: str) -> int:
    return (await ask(broker.address, RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())).code


async def test_the_largest_body_changes_on_every_way_in() -> None:
    async with Broker.temporary() as broker, WireClient(broker.address) as client:
        fields = dict(zip("abcdefghi", send_fields("orders").values(), strict=True))
        assert (await send(broker.address, "orders", bytes(1001))).code == ResponseCode.SUCCESS

        async def codes(size: int) -> set[int]:
            """Of a send the general way and of one the short way."""
            answers = [
                await client.ask(RequestCode.SEND_MESSAGE, send_fields("orders"), bytes(size)),
                await client.ask(RequestCode.SEND_MESSAGE_V2, fields, bytes(size)),
            ]
            return {answer.code for answer in answers}

        assert await codes(1001) == {ResponseCode.SUCCESS}
        assert await update(broker, "maxMessageSize=1000\n") == ResponseCode.SUCCESS
        assert await codes(1001) == {ResponseCode.MESSAGE_ILLEGAL}
        assert await codes(1000) == {ResponseCode.SUCCESS}
        assert await update(broker, "maxMessageSize=0\n") == ResponseCode.SYSTEM_ERROR
        broker.purge()
        assert (await send(broker.address, "orders", bytes(1001))).code == ResponseCode.SUCCESS


async def test_polling_changes_for_the_pulls_that_come() -> None:
    async with Broker.temporary() as broker:
        await send(broker.address, "orders", b"hello")
        changes = "longPollingEnable=false\nshortPollingTimeMills=1\n"
        assert await update(broker, changes) == ResponseCode.SUCCESS
        fields = pull_fields("orders", 1, suspend_ms=3_600_000)
        answer = await ask(broker.address, RequestCode.PULL_MESSAGE, fields)
        assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_delay_levels_change_for_what_waits_already_and_for_new_levels() -> None:
    async with Broker.temporary() as broker, Producer(broker.nameserver) as producer:
        await producer.send(Message("orders", b"by the old times: an hour", delay_level=17))
        assert await update(broker, "messageDelayLevel=" + "1h " * 16 + "1s\\ 1s") == 0

        def delivered() -> int:
            return sum(broker.store.reading.queue_range("orders", queue)[1] for queue in range(4))

        async with asyncio.timeout(HANG_S):
            await until(lambda: delivered() == 1)
        assert await update(broker, "messageDelayLevel=" + "1h " * 18 + "1s") == 0
        with pytest.warns(UserWarning, match="brokers have 18 levels unless"):
            beyond = Message("orders", b"a level that was not there", delay_level=19)
        await producer.send(beyond)
        async with asyncio.timeout(HANG_S):
            await until(lambda: delivered() == 2)
        assert await update(broker, "messageDelayLevel=soon") == ResponseCode.SYSTEM_ERROR


async def test_flush_mode_changes_live_both_ways() -> None:
    settings = {"flushIntervalCommitLog": 3_600_000}
    async with Broker.temporary(settings) as broker:
        store = broker.store
        await send(broker.address, "orders", b"in the page cache")
        assert await update(broker, "flushDiskType=SYNC_FLUSH") == 0
        async with asyncio.timeout(HANG_S):
            await send(broker.address, "orders", b"on disk")
        assert store.log.flushed_offset == store.log.written_offset
        assert await update(broker, "flushDiskType=ASYNC_FLUSH") == 0
        await send(broker.address, "orders", b"in the page cache")
        assert store.safe_point.high_watermark == store.log.written_offset
        assert store.safe_point.is_what_is_written


async def test_retention_changes_live_and_not_below_what_waits() -> None:
    async with Broker.temporary() as broker:
        assert await update(broker, "fileReservedTime=100") == 0
        assert broker.store.opened.reserved_time() == 100 * 3_600_000
        assert await update(broker, "fileReservedTime=10") == 0
        # Timers and transactions are given time first.
        assert broker.store.opened.reserved_time() == 100 * 3_600_000
        assert await update(broker, "fileReservedTime=2") == ResponseCode.SYSTEM_ERROR
        assert await update(broker, "messageDelayLevel=1s 11h") == ResponseCode.SYSTEM_ERROR


async def test_settings_are_described_with_their_types() -> None:
    async with Broker.temporary() as broker, Admin(broker.nameserver) as admin:
        assert await update(broker, "fileReservedTime=100") == 0
        described = await admin.describe_broker_config(broker.address)
        assert described is not None
        known = {each.key: each for each in described}
        assert known["fileReservedTime"] == SettingFacts(
            "fileReservedTime", 100, 72, "hours", True, True
        )
        listening = known["listenPort"]
        assert (listening.default, listening.is_live) == (10_911, False)
        assert known["longPollingEnable"].value is True
        assert known["deleteWhen"].value == "04"
        assert known.keys() == (await admin.broker_config(broker.address)).keys()


async def test_what_was_changed_live_is_gone_with_the_next_start(tmp_path: Path) -> None:
    settings = {
        "storePathRootDir": str(tmp_path / "store"),
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
        "namesrvPort": "0",
        "httpPort": "-1",
    }
    changes = "fileReservedTime=100\nflushDiskType=SYNC_FLUSH\nmessageDelayLevel=1s 2s\n"
    async with Broker(build_config(settings)) as broker:
        assert await update(broker, changes) == 0
        await send(broker.address, "orders", b"on disk")
    async with Broker(build_config(settings)) as again:
        live = again.config.store.live
        assert (live.file_reserved_hours, again.store.safe_point.is_what_is_written) == (72, True)
        assert again.kernel.scheduled.delayed.levels.level_max == 18
        assert again.store.reading.queue_range("orders", 0)[1] == 1
