"""`rockhopper ha` against a broker that follows a master made by hand."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.app import TEMPORARY_SETTINGS
from rockhopper.broker.settings.config_file import build_config
from tests.support.classic_master import ClassicMaster
from tests.support.command_line import CommandLine
from tests.support.direct import send
from tests.support.turns import until


@pytest.fixture
async def apache(tmp_path: Path) -> AsyncIterator[ClassicMaster]:
    async with ClassicMaster(tmp_path / "apache") as apache:
        apache.send(10)
        yield apache


@pytest.fixture
async def follower(apache: ClassicMaster, tmp_path: Path) -> AsyncIterator[Broker]:
    own = {"storePathRootDir": str(tmp_path / "store"), "followMaster": apache.address}
    async with Broker(build_config(TEMPORARY_SETTINGS | own)) as broker:
        await until(lambda: broker.store.log.written_offset == apache.log.end)
        yield broker


@pytest.fixture
def line(follower: Broker) -> CommandLine:
    return CommandLine("127.0.0.1:1")


async def test_it_shows_how_far_a_copy_is(
    line: CommandLine, follower: Broker, apache: ClassicMaster
) -> None:
    shown = await line.run("ha", "status", "--broker", follower.address)
    expected = f"{follower.address}: following {apache.address}, 0 bytes behind\n"
    assert (shown.code, shown.out) == (0, expected)
    (facts,) = (await line.run("ha", "status", "-b", follower.address, "--json")).objects
    assert facts["master"] == apache.address
    assert facts["commitLogMaxOffset"] == apache.log.end


async def test_a_takeover_is_refused_then_done(
    line: CommandLine, follower: Broker, apache: ClassicMaster
) -> None:
    refused = await line.run("ha", "takeover", "--broker", follower.address)
    assert refused.code == 1
    assert "still accepts messages" in refused.err
    apache.settings["brokerPermission"] = "4"
    done = await line.run("ha", "takeover", "--broker", follower.address)
    assert (done.code, done.out) == (0, f"{follower.address} serves from now on\n")
    assert (await send(follower.address, "topic-0", b"new")).code == 0
    again = await line.run("ha", "takeover", "--broker", follower.address)
    assert (again.code, "follows no" in again.err) == (1, True)
    shown = await line.run("ha", "status", "--broker", follower.address)
    assert "follows no master, and serves" in shown.out


async def test_force_asks_nobody(line: CommandLine, follower: Broker) -> None:
    done = await line.run("ha", "takeover", "--broker", follower.address, "--force", "--yes")
    assert done.code == 0


async def test_following_is_a_broker_in_this_process(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: run.append(arguments))
    words = ["--master", "a:1", "--store", "copy", "--name", "broker-a", "--set", "brokerIP1=b"]
    assert (await line.run("ha", "follow", *words)).code == 0
    own = ["--store", "copy", "--set", "followMaster=a:1"]
    rest = ["--name", "broker-a", "--set", "brokerIP1=b"]
    assert run == [[sys.executable, "-m", "rockhopper.broker", *own, *rest]]


async def test_electing_is_done_where_the_directory_is(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: run.append(arguments))
    words = ["--engine", "static:///mnt", "--cluster", "c", "--name", "broker-a", "--id", "2"]
    assert (await line.run("ha", "elect", *words)).code == 0
    assert run == [
        [sys.executable, "-m", "rockhopper.broker.replication.engines.static.electing", *words]
    ]
