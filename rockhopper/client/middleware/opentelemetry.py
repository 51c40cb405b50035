"""OpenTelemetry spans around sends, receives and handlers; needs the extra ``[otel]``.

Names, kinds and attributes follow OpenTelemetry's conventions for messaging and RocketMQ. The
context of a span travels in the properties of its messages, in the W3C format: traceparent,
tracestate.

    send orders       PRODUCER; its context goes into the messages. A message that has one already
                      keeps it and is linked; CLIENT if that is true of all of them
    receive orders    CLIENT, linked with the contexts of the messages
    process orders    CONSUMER, the child of the message's context, and linked with it; the handler
                      has the baggage
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any

from rockhopper.client.middleware.hooks import (
    Middleware,
    Processing,
    ProcessNext,
    ReceiveNext,
    Receiving,
    Sending,
    SendNext,
)
from rockhopper.client.receipts import SendReceipt
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.message import Message
from rockhopper.protocol.message_ids import decode_offset_message_id
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_PREPARED,
    parse_whole_number,
)

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as error:
    raise ImportError(
        "spans need OpenTelemetry's API: pip install 'rockhopper-mq[otel]', and an SDK that "
        "collects them (opentelemetry-sdk)"
    ) from error

INSTRUMENTATION = "rockhopper.client"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
SYSTEM = "rocketmq"
_ROCKETMQ = "messaging.rocketmq"


class OpenTelemetry(Middleware):
    """A middleware that creates spans: ``Producer(middleware=[OpenTelemetry()])``.

    It uses the application's global provider and propagator unless you pass others.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(INSTRUMENTATION, _version(), tracer_provider, SCHEMA_URL)
        self._propagator = propagator or propagate.get_global_textmap()

    async def on_send(self, sending: Sending, call_next: SendNext) -> Sequence[SendReceipt]:
        """See Middleware."""
        messages = sending.messages
        links = [self._link(message.properties) for message in messages]
        without = [m for m, link in zip(messages, links, strict=True) if link is None]
        kind = SpanKind.PRODUCER if without else SpanKind.CLIENT
        found = [link for link in links if link is not None]
        attributes = _of_send(sending)
        topics = {message.topic for message in messages}
        topic = topics.pop() if len(topics) == 1 else None
        with self._span("send", topic, kind, attributes, found) as span:
            for message in without:
                self._propagator.inject(message.properties)
            receipts = await call_next(sending)
            if len(receipts) == 1:
                span.set_attribute("messaging.message.id", receipts[0].message_id)
            if receipts:
                span.set_attributes(_of_broker(receipts[0]))
            return receipts

    async def on_receive(
        self, receiving: Receiving, call_next: ReceiveNext
    ) -> Sequence[ReceivedMessage]:
        """See Middleware. A wait without a message has no span."""
        began_ns = time.time_ns()
        try:
            messages = await call_next(receiving)
        except Exception as error:
            with self._span("receive", None, SpanKind.CLIENT, {}, [], began_ns) as span:
                _fail(span, error)
            raise
        if messages:
            links = [link for each in messages if (link := self._link(each.properties))]
            topics = {message.topic for message in messages}
            topic = topics.pop() if len(topics) == 1 else None
            attributes = _of_consumer(receiving)
            if len(messages) == 1:
                attributes["messaging.message.id"] = messages[0].message_id
            else:
                attributes["messaging.batch.message_count"] = len(messages)
            with self._span("receive", topic, SpanKind.CLIENT, attributes, links, began_ns):
                pass
        return messages

    async def on_process(self, processing: Processing, call_next: ProcessNext) -> object:
        """See Middleware."""
        with self._process(processing.message, _of_consumer(processing)):
            return await call_next(processing)

    @contextmanager
    def processing(self, message: ReceivedMessage, group: str | None = None) -> Iterator[Span]:
        """Create a process span around a loop's body, which middleware cannot wrap."""
        with self._process(message, _of_client(None, group)) as span:
            yield span

    @contextmanager
    def _process(self, message: ReceivedMessage, attributes: dict[str, Any]) -> Iterator[Span]:
        link = self._link(message.properties)
        attributes |= _of_message(message)
        attributes["messaging.message.id"] = message.message_id
        links = [] if link is None else [link]
        token = context.attach(self._propagator.extract(message.properties))
        try:
            with self._span("process", message.topic, SpanKind.CONSUMER, attributes, links) as span:
                yield span
        finally:
            context.detach(token)

    @contextmanager
    def _span(
        self,
        operation: str,
        topic: str | None,
        kind: SpanKind,
        attributes: dict[str, Any],
        links: Sequence[Link],
        began_ns: int | None = None,
    ) -> Iterator[Span]:
        attributes |= {
            "messaging.system": SYSTEM,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
        }
        if topic is not None:
            attributes["messaging.destination.name"] = topic
        with self._tracer.start_as_current_span(
            operation if topic is None else f"{operation} {topic}",
            kind=kind,
            attributes=attributes,
            links=links,
            start_time=began_ns,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _fail(span, error)
                raise

    def _link(self, properties: Mapping[str, str]) -> Link | None:
        """Return a link to the span context in a message's properties, if it is valid."""
        there = trace.get_current_span(self._propagator.extract(properties, Context()))
        origin = there.get_span_context()
        return Link(origin) if origin.is_valid else None


def _version() -> str | None:
    try:
        return metadata.version("rockhopper-mq")
    except metadata.PackageNotFoundError:
        return None


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def _of_client(client_id: str | None, group: str | None) -> dict[str, Any]:
    attributes = {"messaging.client.id": client_id, "messaging.consumer.group.name": group}
    return {name: value for name, value in attributes.items() if value is not None}


def _of_consumer(event: Receiving | Processing) -> dict[str, Any]:
    attributes = _of_client(event.client_id, event.group)
    if event.consumption_model is not None:
        attributes[f"{_ROCKETMQ}.consumption_model"] = event.consumption_model
    return attributes


def _of_broker(receipt: SendReceipt) -> dict[str, Any]:
    try:
        address, port, _ = decode_offset_message_id(receipt.offset_message_id)
    except FieldError:
        return {}
    return {"server.address": address, "server.port": port}


def _of_send(sending: Sending) -> dict[str, Any]:
    attributes = _of_client(sending.client_id, None)
    messages = sending.messages
    if len(messages) > 1 or sending.operation in ("send_batch", "send_many"):
        attributes["messaging.batch.message_count"] = len(messages)
    if len(messages) == 1:
        attributes |= _of_message(messages[0])
        if sending.operation == "transaction":
            attributes[f"{_ROCKETMQ}.message.type"] = "transaction"
    return attributes


def _of_message(message: Message | ReceivedMessage) -> dict[str, Any]:
    attributes: dict[str, Any] = {"messaging.message.body.size": len(message.body)}
    if message.tags:
        attributes[f"{_ROCKETMQ}.message.tag"] = message.tags
    if message.keys:
        attributes[f"{_ROCKETMQ}.message.keys"] = list(message.keys)
    if isinstance(message, Message):
        properties: Mapping[str, str] = message.wire_properties()
        sent_ms = time.time_ns() // 1_000_000
    else:
        properties, sent_ms = message.properties, message.born_time_ms
    group = properties.get(PROPERTY_SHARDING_KEY)
    if group is not None:
        attributes[f"{_ROCKETMQ}.message.group"] = group
    delay = _delay(properties, sent_ms)
    attributes |= delay
    if PROPERTY_TRANSACTION_PREPARED in properties:
        kind = "transaction"
    else:
        kind = "delay" if delay else "normal" if group is None else "fifo"
    attributes[f"{_ROCKETMQ}.message.type"] = kind
    return attributes


def _delay(properties: Mapping[str, str], sent_ms: int) -> dict[str, int]:
    for name, since_ms in (
        (PROPERTY_TIMER_OUT_MS, 0),
        (PROPERTY_TIMER_DELIVER_MS, 0),
        (PROPERTY_TIMER_DELAY_MS, sent_ms),
    ):
        if (time_ms := parse_whole_number(properties.get(name))) >= 0:
            return {f"{_ROCKETMQ}.message.delivery_timestamp": since_ms + time_ms}
    level = parse_whole_number(properties.get(PROPERTY_DELAY_LEVEL))
    if level > 0 and PROPERTY_RETRY_TOPIC not in properties:  # else it is the level of a redelivery
        return {f"{_ROCKETMQ}.message.delay_time_level": level}
    return {}
