"""Groups of foreign clients only: sharing, being killed, failing for good, consuming in order."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.interop import node, rockhopper
from tests.interop.apache import SMALL_FILES
from tests.interop.bodies import hashes
from tests.interop.conftest import Launcher, Server
from tests.interop.java_client import JavaClient
from tests.interop.processes import LineProcess, wait_for_port

pytestmark = pytest.mark.interop

TIMEOUT_MS = 300_000  # only bounds a failure: members end once they have what they count
RESULT_S = 150.0


def _wait_for_text(path: Path, text: str) -> None:
    deadline = time.monotonic() + RESULT_S
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < deadline, f"{path} does not name {text}"
        time.sleep(0.05)


def _hashes_of(*results: dict[str, Any]) -> list[str]:
    return sorted(m["sha1"] for result in results for m in result["messages"])


def test_java_and_ali_ons_share_a_topic(
    java: JavaClient, npm: None, broker: Server, tmp_path: Path
) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Joint"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=4)
    member = {**address, "group": "joint", "count": 40, "timeoutMs": TIMEOUT_MS}
    ours = java.begin("consume", **member)
    java.until_assigned("joint", "Joint", [4])
    theirs = node.NodeJob("consume.js", tmp_path, **member, stays=True)
    java.until_assigned("joint", "Joint", [2])

    for queue_id in range(4):
        java.call("send", **address, count=20, first=20 * queue_id, prefix="j", queueId=queue_id)

    java_saw, ali_saw = ours.result(RESULT_S), theirs.result(RESULT_S)
    assert _hashes_of(java_saw, ali_saw) == hashes("j", range(80))
    assert java_saw["deliveries"] == ali_saw["deliveries"] == 40


def test_nothing_is_lost_when_a_member_is_killed(
    java: JavaClient, npm: None, broker: Server, tmp_path: Path
) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Killed"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=4)
    member = {**address, "group": "killed", "count": 80, "timeoutMs": TIMEOUT_MS}
    staying = java.begin("consume", **member)
    java.until_assigned("killed", "Killed", [4])
    dying = node.NodeJob("consume.js", tmp_path, **member)
    java.until_assigned("killed", "Killed", [2])
    dying.process.kill()

    for queue_id in range(4):
        java.call("send", **address, count=20, first=20 * queue_id, prefix="k", queueId=queue_id)

    assert _hashes_of(staying.result(RESULT_S)) == hashes("k", range(80))


def test_what_fails_for_good_climbs_the_ladder_to_the_dead_letters(
    java: JavaClient, launch: Launcher
) -> None:
    broker = launch.rockhopper({**SMALL_FILES, "messageDelayLevel": "1s 1s 1s 1s 1s 1s"})
    address = {"nameserver": broker.nameserver, "topic": "Hopeless"}
    receipts = java.call("send", **address, count=5, prefix="h")

    tries = java.call(
        "fail", **address, group="hopeless", count=15, maxReconsumeTimes=2, lingerMs=500
    )

    ids = sorted(receipt[1] for receipt in receipts)
    assert sorted(map(tuple, tries)) == sorted((name, n) for name in ids for n in range(3))
    dead = java.call(
        "consume",
        nameserver=broker.nameserver,
        topic="%DLQ%hopeless",
        group="undertakers",
        count=5,
    )
    assert _hashes_of(dead) == hashes("h", range(5))


def test_order_is_kept_when_a_member_leaves(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Ordered"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=2)
    leaving = java.begin("inOrder", **address, group="ordered", count=20, timeoutMs=TIMEOUT_MS)
    staying = java.begin("inOrder", **address, group="ordered", count=180, timeoutMs=TIMEOUT_MS)
    java.until_assigned("ordered", "Ordered", [1, 1])

    for queue_id in range(2):
        java.call("send", **address, count=100, first=100 * queue_id, prefix="o", queueId=queue_id)

    seen = sorted(leaving.result(RESULT_S) + staying.result(RESULT_S), key=lambda row: row[2])
    for queue_id in range(2):
        first_time = list(dict.fromkeys(row[1] for row in seen if row[0] == queue_id))
        assert first_time == list(range(100))


def test_orderly_consumer_that_gives_up_fills_the_dead_letters(
    java: JavaClient, launch: Launcher
) -> None:
    broker = launch.rockhopper({**SMALL_FILES, "messageDelayLevel": "1s 1s 1s 1s 1s 1s"})
    address = {"nameserver": broker.nameserver, "topic": "GaveUp"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=1)
    java.call("send", **address, count=5, prefix="g")
    poison = hashes("g", [2])[0]

    seen = java.call(
        "inOrder", **address, group="gaveup", count=4, maxReconsumeTimes=2, poison=poison
    )

    assert [row[1] for row in seen] == [0, 1, 3, 4]
    dead = java.call(
        "consume", nameserver=broker.nameserver, topic="%DLQ%gaveup", group="u", count=1
    )
    assert [m["sha1"] for m in dead["messages"]] == [poison]


def test_java_consumers_go_on_at_once_after_kill_9_of_the_broker(
    java: JavaClient, launch: Launcher, tmp_path: Path
) -> None:
    broker = launch.rockhopper(SMALL_FILES)
    address = {"nameserver": broker.nameserver, "topic": "Restarted"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=4)
    # No heartbeat falls into the test but the first one.
    waiting = java.begin(
        "consume",
        **address,
        group="restarted",
        count=41,
        heartbeatMs=600_000,
        timeoutMs=TIMEOUT_MS,
    )
    java.until_assigned("restarted", "Restarted", [4])
    java.call("send", **address, count=1, prefix="before")
    _wait_for_text(broker.store / "rockhopper" / "groups" / "subscriptions.json", "restarted")
    broker.kill()

    conf = broker.store.parent / "broker.conf"
    command = [sys.executable, "-m", "rockhopper.broker", "-c", str(conf)]
    again = LineProcess(command, tmp_path / "again.log", cwd=rockhopper.ROOT)
    try:
        wait_for_port(again, broker.broker_port, RESULT_S)
        java.call("send", **address, count=40, prefix="after")
        consumed = waiting.result(RESULT_S)
    finally:
        again.kill()

    assert _hashes_of(consumed) == sorted(hashes("before", [0]) + hashes("after", range(40)))
