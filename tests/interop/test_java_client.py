"""The official Java client against our broker, as its users run it."""

import time
from typing import Any

import pytest

from tests.interop.bodies import body, hashes, sha1
from tests.interop.conftest import Server
from tests.interop.java_client import JavaClient, JavaClientError
from tests.interop.reading import read_topic

pytestmark = pytest.mark.interop


def _ids(receipts: list[list[Any]]) -> list[str]:
    """The unique ids in the receipts of the Java producer; a batch's receipt has several."""
    return sorted(name for receipt in receipts for name in receipt[1].split(","))


def test_10000_sends_reach_a_push_consumer(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Thousands"}

    receipts = java.call("send", **address, count=10_000, threads=4, prefix="k", keys=True)
    consumed = java.call("consume", **address, group="counter", count=10_000)

    assert {receipt[0] for receipt in receipts} == {"SEND_OK"}
    assert sorted(m["msgId"] for m in consumed["messages"]) == _ids(receipts)
    assert sorted(m["sha1"] for m in consumed["messages"]) == hashes("k", range(10_000))
    assert consumed["deliveries"] == 10_000
    places = {(m["queueId"], m["queueOffset"]): m["offsetMsgId"] for m in consumed["messages"]}
    assert places == {(r[3], r[4]): r[2] for r in receipts}


def test_a_waiting_push_consumer_is_woken(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Woken"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=2)
    waiting = java.begin("consume", **address, group="woken", count=201, timeoutMs=300_000)
    java.call("send", **address, count=1, prefix="first")

    java.call("send", **address, count=200, prefix="more", mode="async")

    consumed = waiting.result(90)
    expected = sorted(hashes("first", [0]) + hashes("more", range(200)))
    assert sorted(m["sha1"] for m in consumed["messages"]) == expected
    delays = [m["properties"]["CONSUME_START_TIME"] for m in consumed["messages"][1:]]
    slowest = max(
        int(start) - m["storeTimestamp"]
        for start, m in zip(delays, consumed["messages"][1:], strict=True)
    )
    assert slowest < 12_000, "a parked pull was not answered when its messages came"


def test_a_group_goes_on_where_it_stopped(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Resumed"}
    java.call("send", **address, count=100, prefix="early")
    java.call("consume", **address, group="resuming", count=100)
    java.call("send", **address, count=50, prefix="late")

    consumed = java.call("consume", **address, group="resuming", count=50)

    assert sorted(m["sha1"] for m in consumed["messages"]) == hashes("late", range(50))


def test_two_consumers_of_a_group_share_the_queues(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Shared"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=4)
    # Each ends once it has what two queues hold.
    consumers = [
        java.begin("consume", **address, group="sharing", count=40, timeoutMs=300_000)
        for _ in range(2)
    ]
    java.until_assigned("sharing", "Shared", [2, 2])

    for queue_id in range(4):
        java.call("send", **address, count=20, first=20 * queue_id, prefix="s", queueId=queue_id)

    seen = [consumer.result(150)["messages"] for consumer in consumers]
    assert sorted(m["sha1"] for part in seen for m in part) == hashes("s", range(80))
    assert [len({m["queueId"] for m in part}) for part in seen] == [2, 2]


@pytest.mark.parametrize("mode", ["batch", "oneway", "async"])
def test_every_way_to_send_is_stored(java: JavaClient, broker: Server, mode: str) -> None:
    address = {"nameserver": broker.nameserver, "topic": f"Mode-{mode}"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=2)

    receipts = java.call("send", **address, count=200, prefix=mode, mode=mode, tags=["a"])

    reading = read_topic(java, **address)
    if mode == "oneway":
        deadline = time.monotonic() + 60
        while len(reading.messages) < 200 and time.monotonic() < deadline:
            reading = read_topic(java, **address)
    else:
        assert reading.ids == _ids(receipts)
    reading.assert_whole()
    assert reading.hashes == hashes(mode, range(200))


def test_large_and_compressed_bodies_come_back(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Large"}
    java.call("send", **address, count=5, prefix="large", bodySize=900_000)

    reading = read_topic(java, **address)

    assert reading.hashes == hashes("large", range(5), 900_000)


def test_a_batch_topic_keeps_batches_as_inner_messages(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "InnerBatches"}
    attributes = {"queue.type": "BatchCQ"}
    java.call(
        "createTopic", **address, broker=broker.broker_address, queues=2, attributes=attributes
    )

    java.call("send", **address, count=40, prefix="b", mode="batch", batchSize=8, keys=True)
    java.call("send", **address, count=4, prefix="single")

    reading = read_topic(java, **address)
    reading.assert_whole()
    assert reading.hashes == sorted(hashes("b", range(40)) + hashes("single", range(4)))
    consumed = java.call("consume", **address, group="inner", count=44)
    assert sorted(m["sha1"] for m in consumed["messages"]) == reading.hashes
    assert (broker.store / "batchconsumequeue" / "InnerBatches").is_dir()


def test_tags_choose_what_is_consumed(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Tagged"}
    java.call("send", **address, count=90, prefix="t", tags=["red", "green", "blue"])

    pushed = java.call("consume", **address, group="some", count=60, expression="red || blue")
    pulled = read_topic(java, **address, expression="green")

    chosen = [number for number in range(90) if number % 3 != 1]
    assert sorted(m["sha1"] for m in pushed["messages"]) == hashes("t", chosen)
    assert pulled.hashes == hashes("t", range(1, 90, 3))


def test_the_lite_pull_consumer_reads_all(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Lite"}
    java.call("send", **address, count=300, prefix="lite")

    messages = java.call("litePull", **address, group="lite", count=300)

    assert sorted(m["sha1"] for m in messages) == hashes("lite", range(300))


def test_a_message_is_found_by_key_and_by_both_ids(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Found"}
    properties = {"region": "eu", "Ωmega": "ü"}
    receipts = java.call(
        "send", **address, count=20, prefix="f", keys=True, tags=["x"], properties=properties
    )
    _, unique_id, offset_id, queue_id, queue_offset = receipts[7]

    by_key = java.call("query", **address, key="f-7")
    by_unique_id = java.call("query", **address, msgId=unique_id)
    by_offset_id = java.call("message", **address, msgId=offset_id)

    for found in (by_key[0], by_unique_id[0], by_offset_id):
        assert (found["queueId"], found["queueOffset"]) == (queue_id, queue_offset)
        assert (found["msgId"], found["offsetMsgId"]) == (unique_id, offset_id)
        assert (found["keys"], found["tags"]) == ("f-7", "x")
        assert found["sha1"] == sha1(body("f", 7))
        assert properties.items() <= found["properties"].items()
    assert len(by_key) == len(by_unique_id) == 1


def test_offsets_are_found_by_time(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Timed"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=1)
    java.call("send", **address, count=10, prefix="before")
    middle_ms = java.call("send", **address, count=1, prefix="middle") and time.time() * 1000
    time.sleep(0.05)
    java.call("send", **address, count=10, prefix="after")

    [[_, low, high, earliest_ms, offset]] = java.call(
        "offsets", **address, queues=1, timeMs=int(middle_ms) + 20
    )

    assert (low, high, offset) == (0, 21, 11)
    assert 0 < earliest_ms <= middle_ms


def test_a_delayed_message_comes_later(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Delayed"}
    java.call("send", **address, count=3, prefix="d", delayLevel=1, keys=True)

    consumed = java.call("consume", **address, group="patient", count=3, timeoutMs=300_000)

    assert sorted(m["sha1"] for m in consumed["messages"]) == hashes("d", range(3))
    for message in consumed["messages"]:
        assert message["storeTimestamp"] - message["bornTimestamp"] >= 900
        assert message["keys"] == f"d-{int(message['keys'][2:])}"


def test_the_admin_client_manages_topics(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Managed"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=3)
    java.call("send", **address, count=6, prefix="m")
    assert "Managed" in java.call("topics", nameserver=broker.nameserver)
    assert len(read_topic(java, **address).queues) == 3

    java.call("deleteTopic", **address, cluster="DefaultCluster")

    assert "Managed" not in java.call("topics", nameserver=broker.nameserver)
    with pytest.raises(JavaClientError, match=r"No route|Can not find"):
        read_topic(java, **address)


def test_the_admin_client_sees_the_broker(java: JavaClient, broker: Server) -> None:
    server = {"nameserver": broker.nameserver, "broker": broker.broker_address}

    cluster = java.call("cluster", nameserver=broker.nameserver)
    config = java.call("brokerConfig", **server)
    stats = java.call("brokerStats", **server)

    assert list(cluster.values()) == [broker.broker_address]
    assert config["brokerName"] == next(iter(cluster))
    assert config["storePathRootDir"] == str(broker.store)
    assert int(stats["commitLogMaxOffset"]) >= int(stats["commitLogMinOffset"]) >= 0


def test_an_oversized_message_is_refused_and_others_go_on(java: JavaClient, broker: Server) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Oversized"}
    java.call("send", **address, count=1, prefix="before")

    with pytest.raises(JavaClientError, match="CODE: 13"):
        java.call(
            "send", **address, count=2, prefix="x", mode="batch", bodySize=3 << 20,
            maxMessageSize=16 << 20,
        )  # fmt: skip

    java.call("send", **address, count=1, prefix="after")
    expected = sorted(hashes("before", [0]) + hashes("after", [0]))
    assert read_topic(java, **address).hashes == expected
