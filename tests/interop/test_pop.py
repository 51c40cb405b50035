"""The official Java push consumer in POP mode against our broker."""

import pytest

from tests.interop.bodies import hashes
from tests.interop.conftest import Server
from tests.interop.java_client import JavaClient
from tests.interop.reading import read_topic

pytestmark = pytest.mark.interop


def test_pop_consumer_gets_every_message_and_failed_ones_again(
    java: JavaClient, broker: Server
) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Popped"}
    server = {"broker": broker.broker_address}
    java.call("createTopic", **address, **server, queues=4)
    java.call("send", **address, count=300, prefix="p", tags=["x"])

    consumed = java.call(
        "pop", **address, **server, group="poppers", count=300, failEvery=10, timeoutMs=300_000
    )

    messages = consumed["messages"]
    assert sorted(m["sha1"] for m in messages) == hashes("p", range(300))
    again = [m for m in messages if m["reconsumeTimes"] > 0]
    assert consumed["failures"] == len(again) == 30
    assert {m["topic"] for m in messages} == {"Popped"}
    assert {m["tags"] for m in again} == {"x"}
    # What failed went by way of the group's pop retry topic.
    reading = read_topic(java, nameserver=broker.nameserver, topic="%RETRY%poppers+Popped")
    assert len(reading.messages) == 30
