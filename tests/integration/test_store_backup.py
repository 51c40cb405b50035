"""A store is checked and backed up while its broker works, and comes back with what it promised."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rockhopper.client import Producer
from tests.support.daemon import Daemon
from tests.support.direct import pull_all
from tests.support.hang import HANG_S

pytestmark = [pytest.mark.usefixtures("real_syncs"), pytest.mark.costly]

TOPICS = ("Orders", "Events")


@asynccontextmanager
async def _load(nameserver: str, acknowledged: set[str]) -> AsyncIterator[None]:
    """Four tasks that send as fast as they can, and note what was acknowledged."""

    async def send(task: int) -> None:
        for number in range(10**9):
            body = f"{task}-{number}"
            await producer.send(TOPICS[number % 2], body * 20, keys=body)
            acknowledged.add(body * 20)

    # A busy disk may keep the broker for seconds, which is no failure.
    async with Producer(nameserver, timeout_s=HANG_S) as producer:
        tasks = [asyncio.create_task(send(task)) for task in range(4)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(ended, asyncio.CancelledError), ended


async def _start(*arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rockhopper.broker",
        "store",
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def _run(*arguments: object) -> tuple[int | None, str]:
    process = await _start(*arguments)
    out, err = await process.communicate()
    assert not err, err.decode()
    return process.returncode, out.decode()


async def _refused(*arguments: object) -> tuple[int | None, str]:
    process = await _start(*arguments)
    _, err = await process.communicate()
    return process.returncode, err.decode()


async def _bodies(address: str) -> set[str]:
    found: set[str] = set()
    for topic in TOPICS:
        for queue_id in range(4):
            found |= {each.body.decode() for each in await pull_all(address, topic, queue_id)}
    return found


async def _wait_for(acknowledged: set[str], count: int) -> None:
    while len(acknowledged) < count:  # noqa: ASYNC110 - who sends does not know of this
        await asyncio.sleep(0)


async def test_a_backup_of_a_broker_under_load_has_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    store, backup, new = tmp_path / "store", tmp_path / "backup", tmp_path / "new"
    acknowledged: set[str] = set()
    async with Daemon(store) as daemon:
        async with _load(daemon.nameserver, acknowledged):
            await _wait_for(acknowledged, 500)
            code, text = await _run("check", store)
            assert (code, text.splitlines()[-1]) == (0, "Sound"), text
            assert f"in use by process {daemon.pid}" in text
            killed = await _start("backup", store, backup, "--write")
            while not (backup / "log").is_dir():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0)
            with contextlib.suppress(ProcessLookupError):
                killed.kill()
            await killed.wait()
            code, text = await _refused("rebuild", store, "--write")
            assert (code, "stop that broker first" in text) == (1, True)
            for _ in range(3):
                await _wait_for(acknowledged, len(acknowledged) + 100)
                before = set(acknowledged)
                code, text = await _run("backup", store, backup, "--write", "--json", "--verify")
                assert code == 0
                assert json.loads(text)["wrong"] == []
        await daemon.kill()
    code, text = await _run("restore", backup, new, "--write", "--json")
    assert code == 0
    assert json.loads(text)["records"] >= len(before)
    code, text = await _run("check", new)
    assert (code, text.splitlines()[-1]) == (0, "Sound"), text
    async with Daemon(new) as daemon:
        assert before <= await _bodies(daemon.address)
        async with Producer(daemon.nameserver) as producer:
            await producer.send(TOPICS[0], "goes on")
