"""ali-ons, the JavaScript client, against our broker."""

from pathlib import Path

import pytest

from rockhopper.client import Admin
from tests.interop import node
from tests.interop.apache import SMALL_FILES
from tests.interop.bodies import hashes
from tests.interop.conftest import Launcher, Server

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("npm")]


async def test_10000_sends_reach_a_push_consumer(broker: Server, tmp_path: Path) -> None:
    async with Admin(nameserver=broker.nameserver) as admin:
        await admin.create_topic("Scripted", queues=4)
    address = {"nameserver": broker.nameserver, "topic": "Scripted"}

    receipts = node.run("send.js", tmp_path, **address, prefix="js", count=10_000, keys=True)
    consumed = node.run("consume.js", tmp_path, **address, group="scripts", count=10_000)

    assert {status for status, *_ in receipts} == {"SEND_OK"}
    assert sorted(m["sha1"] for m in consumed["messages"]) == hashes("js", range(10_000))
    assert consumed["deliveries"] == 10_000
    places = {(m["queueId"], m["queueOffset"]) for m in consumed["messages"]}
    assert places == {(queue_id, offset) for _, _, queue_id, offset in receipts}


def test_a_look_up_creates_the_topic_where_the_broker_allows_it(
    launch: Launcher, tmp_path: Path
) -> None:
    server = launch.rockhopper({**SMALL_FILES, "autoCreateTopic": "on-lookup"})
    address = {"nameserver": server.nameserver, "topic": "Unheard"}

    node.run("send.js", tmp_path, **address, prefix="js", count=10)
    consumed = node.run("consume.js", tmp_path, **address, group="scripts", count=10)

    assert sorted(m["sha1"] for m in consumed["messages"]) == hashes("js", range(10))


def test_a_waiting_consumer_gets_compressed_and_tagged_messages(
    launch: Launcher, tmp_path: Path
) -> None:
    server = launch.rockhopper({**SMALL_FILES, "autoCreateTopic": "on-lookup"})
    address = {"nameserver": server.nameserver, "topic": "Waiting"}
    node.run("send.js", tmp_path, **address, prefix="other", count=5, tag="other")
    consumer = node.NodeJob(
        "consume.js", tmp_path, **address, group="tagged", expression="mine", count=20
    )

    node.run("send.js", tmp_path, **address, prefix="big", count=20, tag="mine", bodySize=50_000)

    consumed = consumer.result(90)
    assert sorted(m["sha1"] for m in consumed["messages"]) == hashes("big", range(20), 50_000)
    assert {m["tags"] for m in consumed["messages"]} == {"mine"}


def test_an_unknown_topic_is_refused_while_look_ups_create_none(
    broker: Server, tmp_path: Path
) -> None:
    with pytest.raises(node.NodeError, match="No topic route info"):
        node.run(
            "send.js", tmp_path, nameserver=broker.nameserver, topic="None", prefix="js", count=1
        )
