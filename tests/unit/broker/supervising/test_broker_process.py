"""A broker's process runs as long as its parent wants it to, and no longer than the parent."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.server.remoting.startup import StartError
from rockhopper.broker.supervising import broker_process
from rockhopper.broker.supervising.broker_process import BrokerProcess, command_of
from tests.support.turns import until

# Says that it serves, and waits for the end of its parent.
SERVES = """
import os, socket
parent = socket.socket(fileno=0)
parent.send(b'{"pid": "%d"}\\n' % os.getpid())
parent.recv(1)
"""
ENDS = "import sys; sys.exit(3)"


def process(script: str, *, with_http: bool = False) -> BrokerProcess:
    return BrokerProcess("broker-a-1", [sys.executable, "-c", script], with_http=with_http)


@pytest.fixture
async def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BrokerProcess]:
    """A process that serves, and is started again without a pause."""
    monkeypatch.setattr(broker_process, "PAUSE_S", 0.0)
    started = process(SERVES)
    await started.start()
    yield started
    await started.stop()


async def test_it_serves_when_it_says_so(serving: BrokerProcess) -> None:
    assert serving.is_serving
    assert serving.start_count == 1
    os.kill(int(serving.facts["pid"]), 0)


async def test_one_that_does_not_come_as_far_is_an_error() -> None:
    with pytest.raises(StartError, match=r"broker-a-1 did not start \(exit code 3\), see above"):
        await process(ENDS).start()


async def test_one_that_is_killed_is_started_again(serving: BrokerProcess) -> None:
    first = int(serving.facts["pid"])
    os.kill(first, signal.SIGKILL)
    await until(lambda: serving.start_count == 2 and serving.is_serving)
    assert int(serving.facts["pid"]) != first


async def test_one_that_cannot_be_started_again_is_tried_until_it_can(
    serving: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = list(serving.command)
    serving.command[2] = ENDS
    os.kill(int(serving.facts["pid"]), signal.SIGKILL)
    monkeypatch.setattr(broker_process, "PAUSE_MAX_S", 0.0)
    await until(lambda: serving.start_count >= 4)
    assert not serving.is_serving
    serving.command[:] = command
    await until(lambda: serving.is_serving)


async def test_a_stopped_one_stays_away(serving: BrokerProcess) -> None:
    pid = int(serving.facts["pid"])
    assert await serving.stop() == -signal.SIGTERM
    assert not serving.is_serving
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert await serving.stop() == 0


async def test_without_a_broker_there_is_no_page() -> None:
    ended = process(ENDS, with_http=True)
    with pytest.raises(ConnectionRefusedError, match="broker-a-1 is not running"):
        await ended.page("/readyz")
    await ended.stop()


async def test_modules_of_the_working_directory_are_none_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise RuntimeError")
    monkeypatch.chdir(tmp_path)
    ended = await asyncio.create_subprocess_exec(
        *command_of(["--version"]), stdout=asyncio.subprocess.DEVNULL
    )
    assert await ended.wait() == 0
