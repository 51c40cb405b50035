"""Spans of sends, receives and handlers: names, kinds, attributes, and how they hang together."""

import asyncio
import importlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="make test-extras brings it")

from opentelemetry import baggage, propagate
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind, StatusCode

import rockhopper
from rockhopper import ThreadedBroker, sync
from rockhopper.client import Message, MessageQueue, Processing, ReceivedMessage, Receiving, Sending
from rockhopper.client.middleware.opentelemetry import OpenTelemetry
from rockhopper.client.receipts import SendReceipt
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.message_ids import offset_message_id
from tests.support.hang import HANG_S

BORN_MS = 1000
QUEUE = MessageQueue("orders", "broker-a", 0)
RECEIPT = SendReceipt("id-1", offset_message_id(b"\x7f\x00\x00\x01", 10911, 0), QUEUE, 7)


class Traced:
    """Middleware whose spans are kept."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("test")
        self.middleware = OpenTelemetry(tracer_provider=provider)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    async def send(self, *messages: Message, operation: str = "send") -> list[Message]:
        """Return the messages as they go out."""
        sending = Sending(list(messages), operation, "shop", "me")  # type: ignore[arg-type]

        async def last(sending: Sending) -> Sequence[SendReceipt]:
            return [RECEIPT] * len(sending.messages)

        await self.middleware.on_send(sending, last)
        return sending.messages


def received(message: Message) -> ReceivedMessage:
    properties = message.wire_properties("id-1")
    return ReceivedMessage(
        QUEUE,
        StoredMessage(
            "orders", 0, 7, 100, message.body, born_time_ms=BORN_MS, properties=properties
        ),
    )


async def test_a_send_is_a_span_whose_context_travels_with_the_message() -> None:
    traced = Traced()
    message = Message("orders", b"hello", tags="new", keys=["o-1"], sharding_key="c-1")
    (sent,) = await traced.send(message)
    (span,) = traced.spans
    assert (span.name, span.kind) == ("send orders", SpanKind.PRODUCER)
    assert span.attributes == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.client.id": "me",
        "messaging.message.id": "id-1",
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.tag": "new",
        "messaging.rocketmq.message.keys": ("o-1",),
        "messaging.rocketmq.message.group": "c-1",
        "messaging.rocketmq.message.type": "fifo",
        "server.address": "127.0.0.1",
        "server.port": 10911,
    }
    scope = span.instrumentation_scope
    assert scope is not None
    assert scope.version == rockhopper.__version__
    assert scope.schema_url in {schema.value for schema in Schemas}
    assert span.context is not None
    trace_id, span_id = f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"
    assert sent.properties["traceparent"].startswith(f"00-{trace_id}-{span_id}-")


@pytest.mark.parametrize(
    ("message", "operation", "expected"),
    [
        (Message("orders"), "send", "normal"),
        (Message("orders"), "transaction", "transaction"),
        (Message("orders", delay_s=0.005), "send", "delay"),
    ],
)
async def test_the_type_of_a_message_is_rocketmqs(
    message: Message, operation: str, expected: str
) -> None:
    traced = Traced()
    await traced.send(message, operation=operation)
    assert (traced.spans[0].attributes or {})["messaging.rocketmq.message.type"] == expected


async def handled(traced: Traced, message: Message | ReceivedMessage) -> dict[str, object]:
    """The attributes of the span of a handler, by the part of their names that is RocketMQ's."""
    come = received(message) if isinstance(message, Message) else message

    async def last(_processing: Processing) -> object:
        return None

    processing = Processing(come, "billing", "me", "broadcasting")
    await traced.middleware.on_process(processing, last)
    start = "messaging.rocketmq."
    attributes = traced.spans[-1].attributes or {}
    return {
        name.removeprefix(start): value
        for name, value in attributes.items()
        if name.startswith(start)
    }


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message("orders"), {"message.type": "normal"}),
        (Message("orders", sharding_key="c-1"), {"message.type": "fifo", "message.group": "c-1"}),
        (
            Message("orders", delay_level=3),
            {"message.type": "delay", "message.delay_time_level": 3},
        ),
        (
            Message("orders", delay_s=0.05),
            {"message.type": "delay", "message.delivery_timestamp": BORN_MS + 50},
        ),
        (
            Message("orders", deliver_at_ms=5000),
            {"message.type": "delay", "message.delivery_timestamp": 5000},
        ),
    ],
)
async def test_a_handlers_span_has_what_the_senders_had(
    message: Message, expected: dict[str, object]
) -> None:
    assert await handled(Traced(), message) == {"consumption_model": "broadcasting", **expected}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"TRAN_MSG": "true"}, {"message.type": "transaction"}),
        ({"DELAY": "3", "RETRY_TOPIC": "orders"}, {"message.type": "normal"}),
        ({"DELAY": "soon", "TIMER_DELAY_MS": "-1"}, {"message.type": "normal"}),
    ],
)
async def test_what_brokers_wrote_is_no_delay_of_the_sender(
    properties: dict[str, str], expected: dict[str, object]
) -> None:
    come = ReceivedMessage(QUEUE, StoredMessage("orders", 0, 0, 0, b"", properties=properties))
    assert await handled(Traced(), come) == {"consumption_model": "broadcasting", **expected}


async def test_a_delay_is_told_as_the_time_of_delivery() -> None:
    traced = Traced()
    before_ms = time.time_ns() // 1_000_000
    await traced.send(Message("orders", delay_s=60))
    told_ms = (traced.spans[0].attributes or {})["messaging.rocketmq.message.delivery_timestamp"]
    assert before_ms <= told_ms - 60_000 <= time.time_ns() // 1_000_000  # type: ignore[operator]


async def test_messages_of_a_batch_that_have_a_context_keep_it_and_are_linked() -> None:
    traced = Traced()
    (made,) = await traced.send(Message("orders"))
    first, second = await traced.send(made, Message("orders"), operation="send_batch")
    origin, batch = traced.spans
    assert (batch.kind, (batch.attributes or {})["messaging.batch.message_count"]) == (
        SpanKind.PRODUCER,
        2,
    )
    assert [link.context.span_id for link in batch.links] == [origin.get_span_context().span_id]  # type: ignore[union-attr]
    assert first.properties["traceparent"] == made.properties["traceparent"]
    assert first.properties["traceparent"] != second.properties["traceparent"]
    await traced.send(first, second, operation="send_batch")
    assert traced.spans[-1].kind is SpanKind.CLIENT  # it made none of the contexts


async def test_a_handler_is_the_child_of_the_send() -> None:
    traced = Traced()
    (sent,) = await traced.send(Message("orders", b"hello"))

    async def fails(_processing: Processing) -> object:
        with traced.tracer.start_as_current_span("inside"):
            raise KeyError("o-1")

    with pytest.raises(KeyError):
        await traced.middleware.on_process(Processing(received(sent), "billing", "me"), fails)
    send, inside, process = traced.spans
    assert (process.name, process.kind) == ("process orders", SpanKind.CONSUMER)
    attributes = process.attributes or {}
    assert attributes["messaging.consumer.group.name"] == "billing"
    assert (attributes["messaging.message.id"], attributes["error.type"]) == ("id-1", "KeyError")
    assert process.status.status_code is StatusCode.ERROR
    assert process.parent is not None
    assert send.context is not None
    assert process.parent.span_id == process.links[0].context.span_id == send.context.span_id
    assert inside.parent == process.context


async def test_a_receive_is_linked_with_all_that_came_and_nothing_makes_no_span() -> None:
    traced = Traced()
    (one,) = await traced.send(Message("orders"))
    (two,) = await traced.send(Message("orders"))
    come = [received(one), received(two)]

    async def last(_receiving: Receiving) -> Sequence[ReceivedMessage]:
        return come

    await traced.middleware.on_receive(Receiving("billing", "me"), last)
    span = traced.spans[-1]
    assert (span.name, span.kind) == ("receive orders", SpanKind.CLIENT)
    assert (span.attributes or {})["messaging.batch.message_count"] == 2
    assert [link.context.span_id for link in span.links] == [
        each.context.span_id for each in traced.spans[:2] if each.context
    ]
    count = len(traced.spans)
    come = []
    await traced.middleware.on_receive(Receiving("billing", "me"), last)
    assert len(traced.spans) == count


async def test_the_body_of_a_loop_can_be_a_span() -> None:
    traced = Traced()
    (sent,) = await traced.send(Message("orders"))
    with traced.middleware.processing(received(sent), "billing"):
        pass
    send, process = traced.spans
    assert process.parent is not None
    assert send.context is not None
    assert process.parent.span_id == send.context.span_id
    assert (process.attributes or {})["messaging.consumer.group.name"] == "billing"


async def test_what_is_cancelled_has_not_succeeded() -> None:
    traced = Traced()
    message = Message("orders")

    async def cancelled(_event: Sending | Processing) -> Any:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await traced.middleware.on_send(Sending([message], "send", "shop", "me"), cancelled)
    with pytest.raises(asyncio.CancelledError):
        await traced.middleware.on_process(Processing(received(message), "g", "me"), cancelled)
    for span in traced.spans:
        assert (span.attributes or {})["error.type"] == "CancelledError"
        assert span.status.status_code is StatusCode.ERROR
    assert [span.name for span in traced.spans] == ["send orders", "process orders"]


def with_baggage() -> Message:
    message = Message("orders", b"hello")
    propagate.inject(message.properties, baggage.set_baggage("tenant", "acme"))
    return message


async def test_a_handler_has_the_baggage_of_the_send_and_nothing_stays_behind() -> None:
    traced = Traced()
    message = received(with_baggage())

    async def handle(_processing: Processing) -> object:
        return baggage.get_baggage("tenant")

    seen = await traced.middleware.on_process(Processing(message, "billing", "me"), handle)
    assert (seen, baggage.get_baggage("tenant")) == ("acme", None)
    with traced.middleware.processing(message):
        assert baggage.get_baggage("tenant") == "acme"
    assert baggage.get_baggage("tenant") is None


def test_a_handler_in_a_thread_has_the_baggage_too() -> None:
    traced = Traced()
    seen = []

    def handle(message: ReceivedMessage) -> None:
        seen.append(baggage.get_baggage("tenant"))
        consumer.stop()

    with ThreadedBroker() as broker:
        with sync.Producer(broker.nameserver, timeout_s=HANG_S) as producer:
            producer.send(with_baggage())
        with sync.Consumer(
            "billing", "orders", nameserver=broker.nameserver, middleware=[traced.middleware]
        ) as consumer:
            consumer.run(handle)
    assert seen == ["acme"]


def test_without_the_extra_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "rockhopper.client.middleware.opentelemetry"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"pip install 'rockhopper-mq\[otel\]'"):
        importlib.import_module(name)
