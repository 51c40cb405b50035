"""Requests of sinks: their permissions, what is refused when it is staged, and what is answered."""

from typing import Any

import pytest

from rockhopper.broker.features.sinks.processors import (
    PROPERTIES_SIZE_BYTES_MAX,
    PUBLISHING,
    STAGED_TOPICS,
)
from rockhopper.broker.server.remoting.dispatcher import Request
from rockhopper.broker.server.remoting.permissions import RequiredPermission
from rockhopper.protocol.bodies.sinks import SinkMessage, encode_sink_body
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from tests.support.peers import Peer
from tests.support.served_broker import ServedBroker

SINK_ID = "nightly"


@pytest.fixture(autouse=True)
def topic(broker: ServedBroker) -> None:
    broker.create_topic("orders", 2)
    broker.create_topic("sealed", perm=4)


def names(permission: RequiredPermission, body: bytes = b"", **ext: str) -> set[str]:
    return set(permission.names(Request(Peer().connection, Command(1, ext=ext, body=body))))


def test_each_topic_of_a_staged_part_is_named_once() -> None:
    messages = [SinkMessage(topic, 0, 0, 0, "", b"x") for topic in ("orders", "bills", "orders")]
    assert names(STAGED_TOPICS, encode_sink_body(messages)) == {"orders", "bills"}
    assert names(PUBLISHING, sinkId="nightly") == {"nightly"}


def message(**changes: Any) -> SinkMessage:
    fields = {"topic": "orders", "queue_id": 0, "flag": 0, "born_time_ms": 1, "properties": ""}
    return SinkMessage(**{**fields, "body": b"x", **changes})


async def stage(broker: ServedBroker, *messages: SinkMessage, **ext: str) -> Command:
    fields = {"sinkId": SINK_ID, "batchId": "0", "part": "p0", "sequence": "0", **ext}
    return await broker.ask(Code.SINK_STAGE, fields, encode_sink_body(list(messages)))


async def staged_bytes(broker: ServedBroker) -> str:
    answer = await broker.ask(Code.SINK_STATUS, {"sinkId": SINK_ID})
    return (answer.ext or {})["stagedBytes"]


async def test_a_message_for_any_queue_is_staged(broker: ServedBroker) -> None:
    answer = await stage(broker, message(queue_id=-1), message(queue_id=1))
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"messageCount": "2"})
    assert await staged_bytes(broker) != "0"


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"queue_id": 2}, "topic orders has 2 queues"),
        ({"queue_id": -2}, "topic orders has 2 queues"),
        ({"topic": "sealed"}, "forbidden"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "forbidden"),
        ({"topic": "%RETRY%billing"}, "forbidden"),
        ({"topic": "a/b"}, "topic"),
        ({"flag": 2**31}, "32 bits"),
        ({"flag": -(2**31) - 1}, "32 bits"),
        ({"born_time_ms": -1}, "born time"),
        ({"properties": "RH_SINK\x01x\x02"}, "RH_SINK"),
        ({"properties": "DELAY\x01soon\x02"}, "DELAY"),
        ({"properties": f"a\x01{'b' * PROPERTIES_SIZE_BYTES_MAX}\x02"}, "properties"),
        ({"body": bytes((4 << 20) + 1)}, "maxMessageSize"),
    ],
)
async def test_a_message_that_could_not_be_published_is_not_staged(
    broker: ServedBroker, wrong: dict[str, Any], remark: str
) -> None:
    answer = await stage(broker, message(), message(**wrong))
    assert answer.code != ResponseCode.SUCCESS
    assert remark in (answer.remark or "")
    assert await staged_bytes(broker) == "0"


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"part": "../p0"}, "a part cannot be"),
        ({"sequence": "-1"}, "sequence"),
        ({"sequence": "1"}, "sequence"),
        ({"batchId": "-1"}, "batch id"),
        ({"sinkId": "s" * 256}, "255"),
        ({"owner": "o" * 256}, "255"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    broker: ServedBroker, wrong: dict[str, str], remark: str
) -> None:
    answer = await stage(broker, message(), **wrong)
    assert answer.code != ResponseCode.SUCCESS
    assert remark in (answer.remark or "")


@pytest.mark.parametrize("sink_id", ["", "s" * 256])
@pytest.mark.parametrize("code", [Code.SINK_STATUS, Code.SINK_ABORT, Code.SINK_HOME])
async def test_an_id_that_no_sink_can_have_is_refused(
    broker: ServedBroker, code: Code, sink_id: str
) -> None:
    answer = await broker.ask(code, {"sinkId": sink_id, "batchId": "0", "broker": "broker-b"})
    assert (answer.code, "255" in (answer.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)


async def test_the_broker_that_publishes_a_sink_is_remembered(broker: ServedBroker) -> None:
    for table in broker.tables.all:
        table.start_saving()
    ext = {"sinkId": SINK_ID, "broker": "broker-b"}
    assert (await broker.ask(Code.SINK_HOME, ext)).code == ResponseCode.SUCCESS
    answer = await broker.ask(Code.SINK_STATUS, {"sinkId": SINK_ID})
    assert (answer.ext or {})["home"] == "broker-b"
    answer = await broker.ask(Code.SINK_HOME, {**ext, "broker": ""})
    assert answer.code != ResponseCode.SUCCESS
