"""Transactions of the official Java client, with our broker and with both in turn on one store."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.interop.apache import SMALL_FILES
from tests.interop.bodies import hashes
from tests.interop.conftest import Launcher, Server
from tests.interop.java_client import JavaClient
from tests.interop.reading import read_topic
from tests.support.hang import HANG_S

pytestmark = pytest.mark.interop

QUICK = SMALL_FILES | {"transactionTimeOut": "3000", "transactionCheckInterval": "1000"}
DELIVERED_S = HANG_S
ENDS_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


def serve(launch: Launcher, name: str, settings: Mapping[str, str]) -> Server:
    return launch.apache(settings) if name == "apache" else launch.rockhopper(settings)


def delivered(java: JavaClient, server: Server, topic: str, count: int) -> list[str]:
    """The hashes of what is in a topic, once it is *count* messages: ends travel oneway."""
    deadline = time.monotonic() + DELIVERED_S
    while True:
        found = read_topic(java, nameserver=server.nameserver, topic=topic).hashes
        if len(found) >= count or time.monotonic() > deadline:
            return found


def wait_until_ended(store: Path, count: int) -> None:
    """Return when a store notes that *count* transactions ended: RocketMQ gathers ends for 3 s."""
    dump = [sys.executable, "-m", "rockhopper.broker", "store", "dump", str(store)]
    deadline = time.monotonic() + DELIVERED_S
    ended: set[str] = set()
    while len(ended) < count and time.monotonic() < deadline:
        done = subprocess.run(dump, capture_output=True, text=True, check=True)
        messages = [json.loads(line) for line in done.stdout.splitlines()]
        notes = [message["body"] for message in messages if message["topic"] == ENDS_TOPIC]
        ended = {offset for note in notes for offset in note.split(",") if offset}
    assert len(ended) == count


def test_commit_rollback_and_check_back(java: JavaClient, launch: Launcher) -> None:
    broker = launch.rockhopper(QUICK)
    address = {"nameserver": broker.nameserver, "topic": "Payments"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=2)

    done = java.call("transactions", **address, count=12, prefix="t", checks=4)

    assert {receipt[0] for receipt in done["receipts"]} == {"SEND_OK"}
    assert all(receipt[1] == receipt[3] for receipt in done["receipts"])
    assert sorted(set(done["checked"])) == sorted(f"t-{number}" for number in (2, 5, 8, 11))
    committed = [0, 3, 6, 9, 2, 8]
    assert delivered(java, broker, "Payments", 6) == hashes("t", committed)


@pytest.mark.parametrize("order", [("apache", "rockhopper"), ("rockhopper", "apache")])
def test_the_other_broker_ends_what_the_first_left_open(
    java: JavaClient, launch: Launcher, tmp_path: Path, order: tuple[str, str]
) -> None:
    quick = {**QUICK, "storePathRootDir": str(tmp_path / "store")}
    # The first one asks nobody; the second one does.
    first = serve(launch, order[0], quick | {"transactionTimeOut": "600000"})
    address = {"nameserver": first.nameserver, "topic": "Payments"}
    java.call("createTopic", **address, broker=first.broker_address, queues=2)
    java.call("transactions", **address, count=9, prefix="t")
    assert delivered(java, first, "Payments", 3) == hashes("t", [0, 3, 6])
    wait_until_ended(tmp_path / "store", 6)
    first.stop()

    second = serve(launch, order[1], quick)
    address["nameserver"] = second.nameserver
    done = java.call("transactions", **address, checks=3)

    assert sorted(set(done["checked"])) == ["t-2", "t-5", "t-8"]
    assert delivered(java, second, "Payments", 5) == hashes("t", [0, 3, 6, 2, 8])
