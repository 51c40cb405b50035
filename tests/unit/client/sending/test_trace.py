"""Message trace: the records as RocketMQ's tools read them, and that it is never in the way."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.client import Message, Producer, TransactionProducer
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.sending.trace import ConsumeResult, MessageTrace, TraceRecord
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.properties import decode_properties
from tests.support.fake_server import route
from tests.support.held_clock import HeldClock
from tests.support.message_broker import MessageBroker

NOW_MS = 1_700_000_000_000


@pytest.fixture
async def broker() -> AsyncIterator[MessageBroker]:
    async with MessageBroker() as broker:
        broker.serve_routes(
            {
                "orders": route({"a": broker.address}),
                "RMQ_SYS_TRACE_TOPIC": route({"a": broker.address}, queues=1),
            }
        )
        yield broker


@pytest.fixture
async def trace(broker: MessageBroker) -> AsyncIterator[MessageTrace]:
    session = Session(broker.address)
    await session.start()
    trace = MessageTrace(session, now_ms=lambda: NOW_MS)
    trace.client_host = "10.1.1.1"
    trace.start()
    yield trace
    await trace.close()
    await session.close()


def traced(broker: MessageBroker) -> list[tuple[str, list[str], list[list[str]]]]:
    """Producer group, keys and records of every message in the trace topic."""
    found = []
    for request in broker.requests_of(310):
        ext = request.ext or {}
        if ext["b"] == "RMQ_SYS_TRACE_TOPIC":
            keys = decode_properties(ext["i"])["KEYS"].split(" ")
            *records, end = request.body.decode().split("\x02")
            assert end == ""
            found.append((ext["a"], keys, [record.split("\x01") for record in records]))
    return found


def consumed(message_id: str, keys: str = "", **properties: str) -> ReceivedMessage:
    given = {"UNIQ_KEY": message_id, "KEYS": keys, "MSG_REGION": "eu", **properties}
    stored = StoredMessage("orders", 1, 5, 900, b"x", reconsume_times=2, properties=given)
    return ReceivedMessage(MessageQueue("orders", "a", 1), stored)


async def test_a_send_is_recorded(broker: MessageBroker) -> None:
    async with Producer(broker.address, group="billing", trace=True) as producer:
        receipt = await producer.send(
            Message("orders", b"hello", tags="new", keys=["o-1", "o-2"], properties={"a": "b"})
        )
    ((group, keys, ((kind, *fields),)),) = traced(broker)
    assert group == "_INNER_TRACE_PRODUCER"
    assert keys == [receipt.message_id, "o-1", "o-2"]
    assert kind == "Pub"
    assert fields[0].isdigit()
    assert fields[1:8] == [
        "DefaultRegion",
        "billing",
        "orders",
        receipt.message_id,
        "new",
        "o-1 o-2",
        broker.address,
    ]
    assert fields[8] == "5"
    assert fields[9].isdigit()
    assert fields[10:13] == ["0", receipt.offset_message_id, "true"]
    assert len(fields) == 14


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Message("orders"), "0"),
        (Message("orders", delay_level=2), "3"),
        (Message("orders", delay_s=0.002), "3"),
        (Message("orders", sharding_key="alice"), "4"),
    ],
)
async def test_the_kind_of_a_message_is_recorded(
    broker: MessageBroker, message: Message, kind: str
) -> None:
    async with Producer(broker.address, trace=True) as producer:
        await producer.send(message)
    assert traced(broker)[0][2][0][11] == kind


async def test_a_transaction_and_its_end_are_recorded(broker: MessageBroker) -> None:
    async def check(message: ReceivedMessage) -> str:
        return "commit"

    async with TransactionProducer(
        "billing", check=check, nameserver=broker.address, trace=True
    ) as producer:
        async with producer.transaction(Message("orders", b"x", tags="t", keys=["k"])) as done:
            pass
    records = [record for _, _, records in traced(broker) for record in records]
    assert [record[0] for record in records] == ["Pub", "EndTransaction"]
    assert records[0][11] == "1"
    assert records[1][2:] == [
        "DefaultRegion",
        "billing",
        "orders",
        done.message_id,
        "t",
        "k",
        broker.address,
        "2",
        done.message_id,
        "COMMIT_MESSAGE",
        "false",
    ]


async def test_a_consumption_is_recorded_before_and_after(
    trace: MessageTrace, broker: MessageBroker
) -> None:
    consumption = trace.consuming("billing", [consumed("ID1", "k1"), consumed("ID2")])
    consumption.done(ConsumeResult.FAILED)
    await trace.close()
    ((_, keys, records),) = traced(broker)
    assert keys == ["ID1", "k1", "ID2"]
    request_id = records[0][4]
    assert len(request_id) == 32
    now = str(NOW_MS)
    assert records == [
        ["SubBefore", now, "eu", "billing", request_id, "ID1", "2", "k1", "10.1.1.1"],
        ["SubBefore", now, "eu", "billing", request_id, "ID2", "2", "", "10.1.1.1"],
        ["SubAfter", request_id, "ID1", "0", "false", "k1", "4", now, "billing"],
        ["SubAfter", request_id, "ID2", "0", "false", "", "4", now, "billing"],
    ]


async def test_what_the_broker_does_not_want_traced_is_not(
    trace: MessageTrace, broker: MessageBroker
) -> None:
    trace.consuming("billing", [consumed("ID1", TRACE_ON="false")]).done()
    await trace.close()
    assert traced(broker) == []


async def test_many_records_share_messages(trace: MessageTrace, broker: MessageBroker) -> None:
    for number in range(45):
        trace.buffer_record(TraceRecord("Pub", [number, "x\x01y\x02"], [f"ID{number}"]))
    await trace.close()
    batches = [records for _, _, records in traced(broker)]
    assert [len(records) for records in batches] == [20, 20, 5]
    assert [int(record[1]) for records in batches for record in records] == list(range(45))
    assert batches[0][0][2] == "x y "


async def test_records_that_find_no_room_are_counted(broker: MessageBroker) -> None:
    trace = MessageTrace(Session(broker.address))
    for number in range(3000):
        trace.buffer_record(TraceRecord("Pub", [number], [f"ID{number}"]))
    assert trace.dropped_count == 3000 - 2048


async def test_a_trace_that_cannot_be_sent_disturbs_nobody(
    broker: MessageBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.serve_routes({"orders": route({"a": broker.address})})
    async with Producer(broker.address, trace=True) as producer:
        for _ in range(3):
            await producer.send("orders", b"x")
    assert caplog.text.count("is lost") == 1


async def test_traces_can_go_to_a_topic_of_their_own(broker: MessageBroker) -> None:
    broker.serve_routes(
        {
            "orders": route({"a": broker.address}),
            "audit": route({"a": broker.address}, queues=1),
        }
    )
    async with Producer(broker.address, trace="audit") as producer:
        await producer.send("orders", b"x")
    assert [(request.ext or {})["b"] for request in broker.requests_of(310)] == ["orders", "audit"]


async def test_a_trace_that_hangs_delays_no_send(
    broker: MessageBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang_on_traces(request: Command) -> Command | None:
        return None if (request.ext or {})["b"] == "RMQ_SYS_TRACE_TOPIC" else broker.store(request)

    broker.on(310, hang_on_traces)
    async with Producer(broker.address, trace=True) as producer:
        await producer.send("orders", b"x")
        await broker.wait_for(310, 2)
        with monkeypatch.context() as patch:
            HeldClock(patch)
            await producer.send("orders", b"y")
        assert producer.trace is not None
        assert producer.trace.sender is not None
        producer.trace.sender.cancel()
