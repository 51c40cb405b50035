"""Disks that are full or fail: what producers are told, what stays readable, what comes back."""

import asyncio
import errno
import os
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.app import TEMPORARY_SETTINGS
from rockhopper.broker.kernel.tables import json_table
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.store import dispatch, retention
from rockhopper.broker.store.files import checkpoint, disk
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.support.direct import ask, pull, send, send_fields, topic_fields
from tests.support.hang import HANG_S
from tests.support.raw_peer import RawPeer, request, until

pytestmark = pytest.mark.usefixtures("real_syncs")

COMMIT = {"consumerGroup": "tests", "topic": "orders", "queueId": "0", "commitOffset": "1"}


class Fault:
    """Fails some calls of the operating system with *number*, while it is on."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_on = False
        self.hits = 0

    def around(self, real: Callable[..., Any], concerns: Callable[..., bool]) -> Callable[..., Any]:
        """*real*, but failing where *concerns* of its arguments is true."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.is_on and concerns(*args):
                self.hits += 1
                raise OSError(self.number, os.strerror(self.number))
            return real(*args, **kwargs)

        return call


def file_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


@pytest.fixture
def no_space(monkeypatch: pytest.MonkeyPatch) -> Fault:
    """No file can be allocated."""
    fault = Fault(errno.ENOSPC)
    monkeypatch.setattr(disk, "preallocate", fault.around(disk.preallocate, lambda *_: True))
    monkeypatch.setattr(dispatch, "RETRY_INTERVAL_S", 0.01)
    monkeypatch.setattr(retention, "FULL_DISK_INTERVAL_MS", 10)
    return fault


def broker_on(root: Path, **settings: str) -> Broker:
    small = {"mappedFileSizeCommitLog": str(1 << 20), "storePathRootDir": str(root)}
    return Broker(build_config(TEMPORARY_SETTINGS | small | settings))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with broker_on(tmp_path) as made:
        assert (await send(made.address, "orders", b"first")).code == ResponseCode.SUCCESS
        await ask(made.address, RequestCode.PULL_MESSAGE, {})
        made.tables.groups.find_or_create("tests")
        yield made


async def bodies(broker: Broker, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    """All messages of a queue."""
    found: list[bytes] = []
    while messages := await pull(broker.address, topic, len(found), queue_id):
        assert [m.queue_offset for m in messages] == list(
            range(len(found), len(found) + len(messages))
        )
        found += [message.body for message in messages]
    return found


def says_what_to_do(answer: Command) -> bool:
    remark = answer.remark or ""
    return (
        answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        and "free" in remark
        and "\n" not in remark
        and "Errno" not in remark
    )


async def send_until_refused(broker: Broker, body: bytes) -> tuple[list[bytes], Command]:
    """Send until the broker refuses; what it acknowledged, and how it refused."""
    acknowledged: list[bytes] = []
    for number in range(100):
        text = b"%d " % number + body
        answer = await send(broker.address, "orders", text)
        if answer.code != ResponseCode.SUCCESS:
            return acknowledged, answer
        acknowledged.append(text)
    raise AssertionError("the broker refused nothing")


async def test_a_disk_full_at_the_end_of_a_file_refuses_and_resumes(
    broker: Broker, no_space: Fault
) -> None:
    no_space.is_on = True
    acknowledged, answer = await send_until_refused(broker, bytes(100_000))
    assert says_what_to_do(answer), answer.remark
    assert len(acknowledged) >= 5
    assert await bodies(broker) == [b"first", *acknowledged]
    committed = await ask(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT)
    assert committed.code == ResponseCode.SUCCESS
    assert says_what_to_do(await send(broker.address, "orders", bytes(100_000)))
    assert says_what_to_do(await send(broker.address, "orders", b"x"))
    assert "the next commit log file" in (broker.why_not_ready() or "")
    shown = (await broker.metrics()).body.decode()
    for name in ("rockhopper_ready", "rockhopper_store_writable"):
        assert re.search(rf"^{name}{{.+}} 0\.0$", shown, re.MULTILINE), name
    no_space.is_on = False
    await until(lambda: broker.store.is_writable)
    assert (await send(broker.address, "orders", b"again" + bytes(100_000))).code == 0
    assert await bodies(broker) == [b"first", *acknowledged, b"again" + bytes(100_000)]


async def test_a_disk_full_under_a_new_queue_costs_no_acknowledged_message(
    broker: Broker, no_space: Fault
) -> None:
    no_space.is_on = True
    acknowledged: list[bytes] = []
    while len(acknowledged) < 100:  # They are in the log; the first units wait in memory.
        answer = await send(broker.address, "orders", b"%d" % len(acknowledged), queue_id=1)
        if answer.code != ResponseCode.SUCCESS:
            break
        acknowledged.append(b"%d" % len(acknowledged))
    assert says_what_to_do(answer)
    assert says_what_to_do(await send(broker.address, "orders", b"refused"))
    assert await bodies(broker) == [b"first"]
    committed = await ask(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT)
    assert committed.code == ResponseCode.SUCCESS
    no_space.is_on = False
    await until(lambda: broker.store.is_writable)
    assert (await send(broker.address, "orders", b"again", queue_id=1)).code == 0
    assert await bodies(broker, queue_id=1) == [*acknowledged, b"again"]


async def test_a_disk_full_under_the_index_costs_no_acknowledged_message(
    broker: Broker, no_space: Fault
) -> None:
    no_space.is_on = True
    keys = {"properties": "KEYS\x01" + " ".join(f"k{n}" for n in range(4000)) + "\x02"}
    acknowledged = 0
    while True:
        answer = await ask(
            broker.address, RequestCode.SEND_MESSAGE, send_fields("orders") | keys, b"keyed"
        )
        if answer.code != ResponseCode.SUCCESS:
            break
        acknowledged += 1
        assert acknowledged < 100, "the index never had to grow"
    assert says_what_to_do(answer), answer.remark
    no_space.is_on = False
    await until(lambda: broker.store.is_writable)
    assert await bodies(broker) == [b"first"] + [b"keyed"] * acknowledged
    for key in ("k0", "k3999"):
        found = broker.store.reading.query("orders", key, 1000, 0, 2**62)
        assert len(found) == acknowledged


async def test_a_topic_that_cannot_be_saved_is_told_and_saved_later(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Fault(errno.ENOSPC)
    real = disk.write_atomically
    monkeypatch.setattr(json_table, "write_atomically", full.around(real, lambda *_: True))
    monkeypatch.setattr(json_table, "SAVE_RETRY_S", 0.01)
    full.is_on = True
    fields = topic_fields("made")
    answer = await ask(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert says_what_to_do(answer), (answer.code, answer.remark)
    assert (await send(broker.address, "orders", b"second")).code == ResponseCode.SUCCESS
    assert await bodies(broker) == [b"first", b"second"]
    full.is_on = False
    # Not saved(): that tells of a try that has failed and is not over yet.
    await until(lambda: broker.tables.topics.is_saved)
    assert '"made"' in (broker.config.store.root / "config/topics.json").read_text()


async def test_a_checkpoint_that_cannot_be_saved_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Fault(errno.ENOSPC)
    real = disk.write_atomically
    monkeypatch.setattr(checkpoint, "write_atomically", full.around(real, lambda *_: True))
    settings = {"flushIntervalConsumeQueue": "10", "flushConsumeQueueThoroughInterval": "100"}
    async with broker_on(tmp_path, **settings) as broker:
        full.is_on = True
        await send(broker.address, "orders", b"first")
        await until(lambda: full.hits > 0 or broker.store.failure is not None)
        assert broker.store.failure is None
        assert (await send(broker.address, "orders", b"second")).code == ResponseCode.SUCCESS
        full.is_on = False
    async with broker_on(tmp_path) as broker:
        assert await bodies(broker) == [b"first", b"second"]


@pytest.mark.parametrize("kind", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_after_a_failed_fsync_nothing_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fault = Fault(errno.EIO)
    monkeypatch.setattr(disk, "sync_file", fault.around(disk.sync_file, lambda *_: True))
    acknowledged = [b"first"]
    async with broker_on(tmp_path, flushDiskType=kind, flushIntervalCommitLog="10") as broker:
        await send(broker.address, "orders", b"first")
        fault.is_on = True
        async with RawPeer(broker.address) as peer:
            peer.send(request(RequestCode.SEND_MESSAGE, send_fields("orders"), b"second") * 3)
            answers = await peer.answers(3)
        if kind == "SYNC_FLUSH":
            assert {answer.code for answer in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        else:
            # The flush may have failed before they came.
            taken = [answer for answer in answers if answer.code == ResponseCode.SUCCESS]
            acknowledged += [b"second"] * len(taken)
        async with asyncio.timeout(HANG_S):
            await broker.failed.wait()
        fault.is_on = False  # a second try would succeed, without the lost pages
        for _ in range(3):
            answer = await send(broker.address, "orders", b"refused")
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "restart" in (answer.remark or "")
        assert b"first" in await bodies(broker)
    assert (tmp_path / "abort").exists()
    async with broker_on(tmp_path) as broker:
        found = await bodies(broker)
        assert found[: len(acknowledged)] == acknowledged
        assert b"refused" not in found


async def test_a_write_error_refuses_the_whole_pass_and_the_next_one_works(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Fault(errno.EIO)
    real = os.pwrite
    in_log = fault.around(real, lambda descriptor, *_: "/commitlog/" in file_of(descriptor))
    monkeypatch.setattr(os, "pwrite", in_log)
    end = broker.store.log.written_offset
    async with RawPeer(broker.address) as peer:
        fault.is_on = True
        peer.send(
            b"".join(
                request(RequestCode.SEND_MESSAGE, send_fields("orders"), b"lost", opaque=opaque)
                for opaque in range(20)
            )
        )
        answers = await peer.answers(20)
        assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_ERROR}
        assert sorted(answer.opaque for answer in answers) == list(range(20))
        assert all("Errno" not in (answer.remark or "") for answer in answers)
        assert broker.store.log.written_offset == end
        fault.is_on = False
        answer = await peer.ask(RequestCode.SEND_MESSAGE, send_fields("orders"), b"second")
        assert (answer.ext or {})["queueOffset"] == "1"
    assert await bodies(broker) == [b"first", b"second"]
