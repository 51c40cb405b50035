"""Middleware that sends a tenant with every message and measures the handlers."""

import asyncio
import time
from collections.abc import Sequence
from contextvars import ContextVar

from rockhopper import Consumer, Middleware, Processing, Producer, ReceivedMessage, Sending
from rockhopper.client import SendReceipt
from rockhopper.client.middleware.hooks import ProcessNext, SendNext

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class Tenants(Middleware):
    """Send the current tenant as a property, and restore it while a handler runs."""

    async def on_send(self, sending: Sending, call_next: SendNext) -> Sequence[SendReceipt]:
        for message in sending.messages:
            message.properties["tenant"] = tenant.get()
        return await call_next(sending)

    async def on_process(self, processing: Processing, call_next: ProcessNext) -> object:
        token = tenant.set(processing.message.properties.get("tenant", "nobody"))
        try:
            return await call_next(processing)
        finally:
            tenant.reset(token)


class Timing(Middleware):
    """Print the duration of each handler call, failed calls included."""

    async def on_process(self, processing: Processing, call_next: ProcessNext) -> object:
        began_s = time.perf_counter()
        try:
            return await call_next(processing)
        finally:
            took_ms = (time.perf_counter() - began_s) * 1000
            print(f"{processing.group}: {processing.message.topic} took {took_ms:.1f} ms")


async def main() -> None:
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        print(f"order from {tenant.get()}: {message.body.decode()}")
        done.set()

    async with Producer(middleware=[Tenants()]) as producer:
        tenant.set("acme")
        await producer.send("tenant-orders", b"o-1")
    tenant.set("nobody")
    async with Consumer(
        "billing", "tenant-orders", handler=handle, middleware=[Timing(), Tenants()]
    ):
        await done.wait()


if __name__ == "__main__":
    asyncio.run(main())
