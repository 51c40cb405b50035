"""Messages at a time over real sockets, with a daemon that is killed."""

import asyncio
import time
from pathlib import Path

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.server.loop.clock import wall_clock_ms
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.daemon import Daemon
from tests.support.direct import ask, pull, pull_fields, send_fields
from tests.support.hang import HANG_S


async def send_later(address: str, body: bytes, properties: str) -> Command:
    """Send a message with properties written ``name=value``."""
    name, _, value = properties.partition("=")
    fields = send_fields("orders") | {"properties": f"{name}\x01{value}\x02"}
    return await ask(address, RequestCode.SEND_MESSAGE, fields, body)


async def arrived(address: str, count: int) -> list[StoredMessage]:
    """The messages of queue 0, once there are *count*."""
    async with asyncio.timeout(HANG_S):
        messages: list[StoredMessage] = []
        while len(messages) < count:
            fields = pull_fields("orders", len(messages), suspend_ms=2000)
            answer = await ask(address, RequestCode.PULL_MESSAGE, fields)
            if answer.code == ResponseCode.SUCCESS:
                messages += decode_messages(answer.body)
    return messages


async def recall(address: str, answer: Command) -> Command:
    """Recall what *answer* answered."""
    handle = (answer.ext or {})["recallHandle"]
    fields = {"producerGroup": "tests", "topic": "orders", "recallHandle": handle}
    return await ask(address, RequestCode.RECALL_MESSAGE, fields)


async def test_message_arrives_at_its_time() -> None:
    async with Broker.temporary() as broker:
        due_ms = int(time.time() * 1000) + 300
        answer = await send_later(broker.address, b"x", f"TIMER_DELIVER_MS={due_ms}")
        assert answer.code == ResponseCode.SUCCESS
        (message,) = await arrived(broker.address, 1)
    assert due_ms <= message.store_time_ms <= due_ms + 10_000


async def test_recalled_message_does_not_arrive() -> None:
    ahead_ms = 0
    broker = Broker.temporary({"flushDiskType": "SYNC_FLUSH"})
    broker.clock.wall_ms = lambda: wall_clock_ms() + ahead_ms
    async with broker:
        # So late that neither is due before the clock is set, however slow the machine is.
        first = await send_later(broker.address, b"first", "TIMER_DELAY_MS=3600400")
        await send_later(broker.address, b"second", "TIMER_DELAY_MS=3600500")
        assert (await recall(broker.address, first)).code == ResponseCode.SUCCESS
        assert (await recall(broker.address, first)).code == ResponseCode.ILLEGAL_OPERATION
        ahead_ms = 2 * 3_600_000
        (message,) = await arrived(broker.address, 1)
    assert message.body == b"second"


@pytest.mark.costly
async def test_a_killed_daemon_delivers_each_message_once_and_in_time(tmp_path: Path) -> None:
    due_ms: dict[bytes, int] = {}

    async def send_some(address: str, first: int) -> list[Command]:
        answers = []
        for number in range(first, first + 20):
            body = b"%d" % number
            wait_ms = 600_000 if number == 19 else 50 * (number - first) + 100
            due_ms[body] = int(time.time() * 1000) + wait_ms
            text = f"TIMER_DELIVER_MS={due_ms[body]}"
            answers.append(await send_later(address, body, text))
        return answers

    async with Daemon(tmp_path) as daemon:
        answers = await send_some(daemon.address, 0)
        assert (await recall(daemon.address, answers[19])).code == ResponseCode.SUCCESS
        await arrived(daemon.address, 5)
        await daemon.kill()
    async with Daemon(tmp_path) as daemon:
        answers = await send_some(daemon.address, 20)
        await arrived(daemon.address, 25)
        await daemon.kill()
    async with Daemon(tmp_path) as daemon:
        await arrived(daemon.address, 39)
        # On a slow machine the first may be due before they are stored: those have no handle.
        delivered = next(each for each in answers[:19] if "recallHandle" in (each.ext or {}))
        assert (await recall(daemon.address, delivered)).code == ResponseCode.ILLEGAL_OPERATION
        messages = await pull(daemon.address, "orders") + await pull(daemon.address, "orders", 32)
        assert await daemon.stop() == 0
    assert sorted(message.body for message in messages) == sorted(set(due_ms) - {b"19"})
    assert all(message.store_time_ms >= due_ms[message.body] for message in messages)


@pytest.mark.costly
async def test_a_killed_daemon_repeats_no_delay_level(tmp_path: Path) -> None:
    options = ("--set", "messageDelayLevel=1s 2s")
    async with Daemon(tmp_path, *options) as daemon:
        for number in range(40):
            await send_later(daemon.address, b"%d" % number, f"DELAY={number % 2 + 1}")
        await arrived(daemon.address, 21)
        await daemon.kill()
    async with Daemon(tmp_path, *options) as daemon:
        await arrived(daemon.address, 40)
        messages = await pull(daemon.address, "orders") + await pull(daemon.address, "orders", 32)
        assert await daemon.stop() == 0
    assert sorted(message.body for message in messages) == sorted(b"%d" % n for n in range(40))
