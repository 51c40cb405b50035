"""The first page, the brokers and their counters."""

import json
import re

from rockhopper.broker.app import Broker
from rockhopper.broker.gateways.console.views.overview import BrokerState
from rockhopper.client import Producer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.network.addresses import BrokerAddress
from tests.support.console import Browser

BROKER = BrokerAddress("C", "broker-a", 0, "127.0.0.1:1")


async def test_it_counts_what_there_is(browser: Browser, producer: Producer) -> None:
    await producer.send("orders", b"x")
    await producer.send("%RETRY%billing", b"x")
    text = (await browser.get()).text
    assert "1 topic 1 consumer group 0 groups with dead letters 1 broker" in text
    assert "broker-a" in text
    assert "serves" in text


async def test_groups_that_are_behind_are_named(
    browser: Browser, producer: Producer, admin: Admin
) -> None:
    await producer.send("orders", b"x", queue=0)
    await producer.send("orders", b"x", queue=0)
    (queue, *_) = (await admin.route("orders")).read_queues
    for group, offset in (("billing", 1), ("far", 0), ("done", 2)):
        await admin.groups.create(group)
        await producer.send(f"%RETRY%{group}", b"x", queue=0)
        (retries, *_) = (await admin.route(f"%RETRY%{group}")).read_queues
        await admin.offsets.commit(group, retries, 1)
        await admin.offsets.commit(group, queue, offset)
    text = (await browser.get()).text
    assert "far 2 offline orders billing 1 offline orders" in text
    assert "done" not in text


async def test_brokers_tell_everything(served: Broker, browser: Browser) -> None:
    text = (await browser.get("brokers")).text
    assert served.address in text
    assert "putMessageDistributeTime" in text


async def test_figures_of_a_broker_say_of_what(browser: Browser, producer: Producer) -> None:
    assert "Send latency – (no recent sends)" in (await browser.get("brokers")).text
    await producer.send("orders", b"x")
    text = (await browser.get("brokers")).text
    assert re.search(r"Send latency 99 % (in under 1|within [\d.]+) ms, 99.9 % ", text)
    assert re.search(
        r"% used of what the broker may fill; [\d.]+ \w+ are free, on a disk of [\d.]+ \w+", text
    )


async def test_counters_grow(browser: Browser, producer: Producer) -> None:
    before = json.loads((await browser.get("rates.json")).body)
    await producer.send("orders", b"x")
    after = json.loads((await browser.get("rates.json")).body)
    assert after["timeMs"] >= before["timeMs"]
    assert (list(after["brokers"]), after["away"]) == (["broker-a/0"], {})
    assert after["brokers"]["broker-a/0"]["cells"]["state"] == "serves"
    assert after["brokers"]["broker-a/0"]["in"] == before["brokers"]["broker-a/0"]["in"] + 1


def test_alarms_say_what_is_wrong() -> None:
    assert BrokerState(BROKER, {}, "refused").alarms == ["broker-a does not answer: refused"]
    replica = BrokerState(BrokerAddress("C", "broker-a", 2, "127.0.0.1:2"), {}, "refused")
    assert replica.alarms == ["replica 2 of broker-a does not answer: refused"]
    nothing = {"in": "–", "out": "–", "started": "–", "state": "does not answer"}
    assert replica.cells == nothing
    facts = {
        "commitLogDiskRatio": "0.80",
        "consumeQueueDiskRatio": "0.91",
        "brokerActive": "false",
        "dispatchBehindBytes": str(5 << 20),
    }
    assert BrokerState(BROKER, facts, "").alarms == [
        "broker-a: its disk is full, 91 % are used",
        "broker-a accepts no messages",
        "broker-a: 5 MiB of messages are not in queues yet",
    ]
    assert BrokerState(BROKER, facts, "").cells["state"] == "accepts no messages"
    # Apache's brokers say less, or something else.
    odd = {"commitLogDiskRatio": "", "dispatchBehindBytes": "many", "putTps": "x"}
    state = BrokerState(BROKER, odd, "")
    assert (state.alarms, state.rates("putTps"), state.log_bytes) == ([], [], None)
    assert state.was_sent_to
