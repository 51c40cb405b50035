"""Timer messages that wait in a store while Apache's broker and ours take turns on it."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_messages
from tests.interop.conftest import Launcher, Server
from tests.support.direct import ask, pull_fields, send_fields
from tests.support.hang import HANG_S

pytestmark = pytest.mark.interop

FILES = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "mappedFileSizeTimerLog": str(1 << 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


async def send_at(server: Server, body: bytes, after_ms: int) -> int:
    """Send a message for a time from now; the time."""
    due_ms = int(time.time() * 1000) + after_ms
    properties = f"UNIQ_KEY\x01{body.decode()}\x02TIMER_DELIVER_MS\x01{due_ms}\x02"
    fields = send_fields("Timed") | {"properties": properties}
    async with asyncio.timeout(HANG_S):
        while True:
            answer = await ask(server.broker_address, RequestCode.SEND_MESSAGE, fields, body)
            if answer.code == ResponseCode.SUCCESS:
                return due_ms
            await asyncio.sleep(0.2)


async def arrived(server: Server, bodies: set[bytes]) -> list[StoredMessage]:
    """Everything in the queue, once all of *bodies* are there."""
    messages: list[StoredMessage] = []
    async with asyncio.timeout(HANG_S):
        while not bodies <= {message.body for message in messages}:
            fields = pull_fields("Timed", len(messages), suspend_ms=1000)
            answer = await ask(server.broker_address, RequestCode.PULL_MESSAGE, fields)
            if answer.code == ResponseCode.SUCCESS:
                messages += decode_messages(answer.body)
    return messages


def _stop(server: Server) -> None:
    server.stop()


def _kill(server: Server) -> None:
    server.kill()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(_stop, id="clean-stop", marks=pytest.mark.long),
        pytest.param(_kill, id="kill-9"),
    ],
)
async def test_pending_timers_go_back_and_forth(
    jdk: None, launch: Launcher, tmp_path: Path, end: Callable[[Server], None]
) -> None:
    """None is lost or early in either direction; from Apache to ours none comes twice."""
    settings = {**FILES, "storePathRootDir": str(tmp_path / "store")}
    due_ms: dict[bytes, int] = {}
    server: Server = launch.apache(settings)
    due_ms[b"java-late"] = await send_at(server, b"java-late", 25_000)
    due_ms[b"java-early"] = await send_at(server, b"java-early", 1500)
    await arrived(server, {b"java-early"})
    end(server)

    server = launch.rockhopper(settings)
    due_ms[b"ours-late"] = await send_at(server, b"ours-late", 40_000)
    due_ms[b"ours-early"] = await send_at(server, b"ours-early", 500)
    messages = await arrived(server, set(due_ms) - {b"ours-late"})
    assert set(Counter(message.body for message in messages).values()) == {1}
    end(server)

    server = launch.apache(settings)
    messages = await arrived(server, set(due_ms))
    assert {message.body for message in messages} == set(due_ms)
    for message in messages:
        assert message.store_time_ms >= due_ms[message.body]
