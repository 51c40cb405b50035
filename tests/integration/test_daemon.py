"""The daemon as an operator sees it: one process, its log lines, its exit codes."""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.codes import ResponseCode
from tests.support.direct import pull, route, send

COMMAND = (sys.executable, "-m", "broker")
FREE_PORTS = ("--listen-port", "0", "--namesrv-port", "0", "--http-port", "0")
SMALL_FILES = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "maxHashSlotNum=1000")
ROOT = Path(__file__).parents[2]


class Daemon:
    """A broker process."""

    def __init__(self, process: asyncio.subprocess.Process, lines: list[dict[str, Any]]) -> None:
        self.process = process
        self.lines = lines
        self.broker = str(lines[0].get("broker", ""))
        self.nameserver = str(lines[0].get("nameserver", ""))

    @classmethod
    async def start(cls, *arguments: str) -> "Daemon":
        process = await launch(*FREE_PORTS, *arguments)
        assert process.stderr is not None
        lines: list[dict[str, Any]] = []
        while not lines or lines[-1]["event"] != "serving":
            lines.append(json.loads(await process.stderr.readline()))
        return cls(process, lines)

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        await self.process.communicate()
        return self.process.returncode or 0


async def launch(*arguments: str) -> asyncio.subprocess.Process:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("ROCKHOPPER_")
    }
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def refused(*arguments: str) -> tuple[int, str]:
    """Exit code and the one line of a daemon that does not start."""
    process = await launch(*arguments)
    output, errors = await process.communicate()
    assert output == b""
    (line,) = errors.decode().splitlines()
    return process.returncode or 0, line


async def test_the_first_line_says_where_it_serves_and_a_signal_stops_it(tmp_path: Path) -> None:
    daemon = await Daemon.start("--store", str(tmp_path / "s"), *SMALL_FILES)
    assert daemon.lines[0]["store"] == str(tmp_path / "s")
    assert (await send(daemon.broker, "orders", b"hello")).code == ResponseCode.SUCCESS
    assert (await route(daemon.nameserver, "orders")).code == ResponseCode.SUCCESS
    assert len(await pull(daemon.broker, "orders")) == 1
    assert await daemon.end(signal.SIGTERM) == 0
    assert not (tmp_path / "s" / "abort").exists()


async def test_an_interrupt_stops_it_in_order_too(tmp_path: Path) -> None:
    daemon = await Daemon.start("--store", str(tmp_path / "s"), *SMALL_FILES)
    assert await daemon.end(signal.SIGINT) == 0
    assert not (tmp_path / "s" / "abort").exists()


async def test_what_was_sent_before_a_kill_is_there_afterwards(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "s"), *SMALL_FILES)
    daemon = await Daemon.start(*store)
    await send(daemon.broker, "orders", b"hello", queue_id=1)
    assert await daemon.end(signal.SIGKILL) == -signal.SIGKILL
    daemon = await Daemon.start(*store)
    (message,) = await pull(daemon.broker, "orders", queue_id=1)
    assert message.body == b"hello"
    assert (await route(daemon.nameserver, "orders")).code == ResponseCode.SUCCESS
    assert await daemon.end() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_an_idle_broker_stays_below_50_mb(tmp_path: Path) -> None:
    daemon = await Daemon.start("--store", str(tmp_path / "s"))
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    (resident_kb,) = [
        int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")
    ]
    assert await daemon.end() == 0
    assert resident_kb < 50_000


async def test_a_second_broker_on_the_store_is_refused_with_one_line(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "s"), *SMALL_FILES)
    daemon = await Daemon.start(*store)
    code, line = await refused(*FREE_PORTS, *store)
    assert code == 1
    assert str(tmp_path / "s") in line
    assert "in use" in line
    assert await daemon.end() == 0


async def test_a_port_in_use_is_refused_with_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, line = await refused(
            *FREE_PORTS, "--store", str(tmp_path / "s"), *SMALL_FILES, "--listen-port", port
        )
    assert code == 1
    assert port in line
    assert "listenPort" in line


async def test_a_store_that_cannot_be_made_is_refused_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, line = await refused(*FREE_PORTS, "--store", str(tmp_path / "file" / "s"))
    assert code == 1
    assert "--store" in line


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--listen-port", "99999"), "listenPort=99999"),
        (("--set", "flushDiskType=MAYBE"), "flushDiskType=MAYBE"),
        (("-c", "nowhere/broker.conf"), "nowhere/broker.conf"),
    ],
)
async def test_a_setting_that_makes_no_sense_is_refused_with_one_line(
    arguments: tuple[str, ...], named: str
) -> None:
    code, line = await refused(*arguments)
    assert code == 2
    assert named in line


async def test_an_unknown_key_is_warned_about_and_the_broker_starts(tmp_path: Path) -> None:
    daemon = await Daemon.start(
        "--store", str(tmp_path / "s"), *SMALL_FILES, "--set", "listenPrt=1"
    )
    (warning,) = [line["event"] for line in daemon.lines if line["level"] == "warning"]
    assert "listenPort" in warning
    assert await daemon.end() == 0


async def test_a_name_service_runs_alone(tmp_path: Path) -> None:
    daemon = await Daemon.start("--role", "nameserver", "--store", str(tmp_path / "s"))
    assert (await route(daemon.nameserver, "orders")).code == ResponseCode.TOPIC_NOT_EXIST
    assert await daemon.end() == 0
    assert not (tmp_path / "s").exists()


async def test_every_setting_can_be_printed() -> None:
    process = await launch("--print-config", "--set", "brokerName=mine")
    output, _ = await process.communicate()
    lines = output.decode().splitlines()
    assert "brokerName=mine" in lines
    assert "listenPort=10911" in lines
    assert process.returncode == 0
