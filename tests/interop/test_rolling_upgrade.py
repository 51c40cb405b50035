"""A set goes from one release to the next under sends, by the steps of docs/replication.md.

The next release is this one in a tree of its own that calls itself by another version: what is
tried is the way from one process to the next, not what a release changes.
"""

import asyncio
import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from rockhopper.client.admin.admin import Admin
from rockhopper.protocol.codes import RequestCode
from tests.chaos.replicas.network import Host, Network
from tests.chaos.replicas.set_of_replicas import ReplicaProcess, SetOfReplicas, running
from tests.support.command_line import CommandLine
from tests.support.daemon import ROOT
from tests.support.direct import ask
from tests.support.hang import HANG_S
from tests.support.steady_sends import OurSender, answered_since, read_numbers, wall_ms

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("etcd_server")]

TOPIC, QUEUES = "Upgraded", 4
LOOK_INTERVAL_S = 0.1
BETWEEN = 100
SEND_TIMEOUT_S = 30.0
"""The page says ten or more; a process may take seconds to start where others work as well."""
THIS, NEXT = "V5_3_3", "V_THE_NEXT"
TELLS_VERSION = Path("rockhopper/broker/kernel/processors/runtime_info.py")


def next_release(directory: Path) -> Path:
    """A tree from which brokers start that say that they are of the next release."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "rockhopper", directory / "rockhopper", ignore=ignored)
    module = directory / TELLS_VERSION
    changed = module.read_text().replace(f'"{THIS}"', f'"{NEXT}"')
    assert NEXT in changed
    module.write_text(changed)
    return directory


async def version_of(replica: ReplicaProcess) -> str:
    answer = await ask(replica.address, RequestCode.GET_BROKER_RUNTIME_INFO)
    return str(json.loads(answer.body)["table"]["brokerVersionDesc"])


def _is_ready(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{http}/readyz", timeout=HANG_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


async def ready(replica: ReplicaProcess) -> None:
    """Return when its /readyz says yes."""
    async with asyncio.timeout(HANG_S):
        while True:
            if await asyncio.to_thread(_is_ready, replica.http):
                return
            await asyncio.sleep(LOOK_INTERVAL_S)


async def status(replica: ReplicaProcess) -> dict[str, Any]:
    """What `rockhopper ha status` says."""
    done = await CommandLine("").run("ha", "status", "-b", replica.address, "--json")
    return done.objects[0] if done.code == 0 else {"masterId": 0, "replicas": []}


async def in_sync(replicas: SetOfReplicas, asked: ReplicaProcess, wanted: set[int]) -> int:
    """Return who leads once `ha status` of *asked* shows *wanted* in sync."""
    async with asyncio.timeout(HANG_S):
        while True:
            told = await status(asked)
            found = {each["id"] for each in told["replicas"] if each["isInSync"]}
            if wanted <= found and told["masterId"]:
                return int(told["masterId"])
            await asyncio.sleep(LOOK_INTERVAL_S)


async def upgrade(replica: ReplicaProcess, release: Path) -> None:
    await replica.stop()
    replica.tree = release
    replica.start()
    await ready(replica)
    assert await version_of(replica) == NEXT


async def test_a_set_is_upgraded_without_a_failed_send(tmp_path: Path) -> None:
    release = next_release(tmp_path / "next")
    network = Network(["e0"], is_cuttable=False)
    network.hosts |= {f"r{n}": Host(f"r{n}", "127.0.0.1") for n in (1, 2, 3)}
    async with running(tmp_path, network, 1) as found:
        replicas = found.replicas
        for each in replicas.values():
            await ready(each)
        old = replicas[await in_sync(found, replicas[1], {1, 2, 3})]
        assert {await version_of(each) for each in replicas.values()} == {THIS}
        async with Admin(found.nameserver) as admin:
            await admin.create_topic(TOPIC, queues=QUEUES)
        async with OurSender(found.nameserver, TOPIC, timeout_s=SEND_TIMEOUT_S) as sender:
            await answered_since(sender, wall_ms(), BETWEEN)
            for each in replicas.values():
                if each is not old:
                    await upgrade(each, release)
                    await answered_since(sender, wall_ms(), BETWEEN)
            done = await CommandLine("").run("ha", "switch", "-b", old.address)
            assert done.code == 0, done.err
            master = replicas[await in_sync(found, old, {old.id})]
            assert master is not old
            await answered_since(sender, wall_ms(), BETWEEN)
            await upgrade(old, release)
            await in_sync(found, master, {1, 2, 3})
            sent = await answered_since(sender, wall_ms(), BETWEEN)
        assert sent.failures == []
        there = await read_numbers(master.address, TOPIC, QUEUES)
        assert sent.numbers() - set(there.values()) == set()
