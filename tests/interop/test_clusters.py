"""Brokers of both makes side by side, found through name servers of both makes."""

import asyncio
from collections import Counter

import pytest

from rockhopper.client import Admin, Producer, PullConsumer
from rockhopper.client.received import ReceivedMessage
from tests.interop.apache import SMALL_FILES
from tests.interop.bodies import body, hashes
from tests.interop.conftest import Launcher
from tests.interop.java_client import JavaClient
from tests.support.hang import HANG_S

pytestmark = pytest.mark.interop

TOPIC = "Both"


async def _exchange(java: JavaClient, nameserver: str, brokers: set[str]) -> None:
    """Create a topic on all brokers, fill and empty it with the Java client and with ours."""
    address = {"nameserver": nameserver, "topic": TOPIC}
    async with Admin(nameserver=nameserver) as admin, asyncio.timeout(60):
        # A broker registers with foreign name servers once its own port is open; they tell nobody.
        while {broker.name for broker in await admin.brokers()} != brokers:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert {target.name for target in await admin.create_topic(TOPIC, queues=2)} == brokers
    async with Producer(nameserver=nameserver) as producer:
        receipts = [await producer.send(TOPIC, body("py", i)) for i in range(40)]
    java.call("send", **address, count=40, prefix="java")

    consumed = java.call("consume", **address, group="both", count=80)
    async with PullConsumer(TOPIC, nameserver=nameserver) as consumer:
        pulled: list[ReceivedMessage] = []
        while len(pulled) < 80:
            messages = await consumer.pull(timeout_s=HANG_S)
            assert messages, f"nothing came after {len(pulled)} of 80 messages"
            pulled += messages

    expected = [body(name, i) for name in ("py", "java") for i in range(40)]
    assert {receipt.queue.broker_name for receipt in receipts} == brokers
    assert Counter(message.body for message in pulled) == Counter(expected)
    assert {message.queue.broker_name for message in pulled} == brokers
    assert sorted(m["sha1"] for m in consumed["messages"]) == sorted(
        hashes("py", range(40)) + hashes("java", range(40))
    )


async def test_our_broker_serves_through_apaches_name_service(
    java: JavaClient, launch: Launcher
) -> None:
    peer = launch.apache(SMALL_FILES)
    ours = launch.rockhopper(
        {**SMALL_FILES, "namesrvAddr": peer.nameserver, "role": "broker", "namesrvPort": "0"}
    )

    await _exchange(java, peer.nameserver, {"apache", "rockhopper"})

    ours.stop()
    assert list(java.call("cluster", nameserver=peer.nameserver)) == ["apache"]


async def test_apaches_broker_serves_through_our_name_service(
    java: JavaClient, launch: Launcher
) -> None:
    ours = launch.rockhopper(SMALL_FILES)
    launch.apache({**SMALL_FILES, "namesrvAddr": ours.nameserver}, namesrv_port=None)

    await _exchange(java, ours.nameserver, {"apache", "rockhopper"})
