"""Trace a message from the producer to the consumer and print each span."""

import asyncio

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from rockhopper import Consumer, Producer, ReceivedMessage
from rockhopper.client.middleware.opentelemetry import OpenTelemetry


def line_of(span: ReadableSpan) -> str:
    assert span.context is not None
    parent = "" if span.parent is None else f" child of {span.parent.span_id:016x}"
    return (
        f"{span.context.trace_id:032x} {span.context.span_id:016x} {span.kind.name:8} "
        f"{span.name}{parent}\n"
    )


async def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line_of)))
    trace.set_tracer_provider(provider)
    tracing = OpenTelemetry()
    tracer = trace.get_tracer("shop")
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        with tracer.start_as_current_span("charge the card"):
            done.set()

    async with Producer(middleware=[tracing]) as producer:
        with tracer.start_as_current_span("POST /orders"):
            await producer.send("traced-orders", b"o-1", keys=["o-1"])
    async with Consumer("billing", "traced-orders", handler=handle, middleware=[tracing]):
        await done.wait()


if __name__ == "__main__":
    asyncio.run(main())
