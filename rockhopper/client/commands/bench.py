"""`rockhopper bench`: measures what this client achieves against the brokers it finds."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rockhopper.client.commands.output import print_table, write_json, write_line
from rockhopper.client.commands.parameters import TOPIC
from rockhopper.client.commands.progress import ProgressBar
from rockhopper.client.commands.running import choose_nameserver, nameserver_option, run

if TYPE_CHECKING:
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.producer import Producer
    from rockhopper.client.queues import MessageQueue

_QUEUES = 4
_PULLS_UNDER_WAY = 4


@dataclass(frozen=True)
class _BenchArguments:
    topic: str
    count: int
    size_bytes: int
    under_way: int
    batch: int
    as_json: bool


@dataclass(frozen=True)
class _Measured:
    case: str
    messages: int
    seconds: float
    latencies_s: list[float]
    """The latency of each request."""

    def percentile_ms(self, percent: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] * 1000


@click.command()
@click.option("--topic", type=TOPIC, help="Use this topic; otherwise a temporary one is created.")
@click.option(
    "--count",
    "-c",
    type=click.IntRange(min=1),
    default=20_000,
    metavar="N",
    help="Messages per case; 20000 by default.",
)
@click.option(
    "--size",
    type=click.IntRange(min=1),
    default=128,
    metavar="BYTES",
    help="Body size; 128 by default.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(min=1),
    default=256,
    metavar="N",
    help="Single sends in flight; 256 by default.",
)
@click.option(
    "--batch",
    "-b",
    type=click.IntRange(min=1),
    default=32,
    metavar="N",
    help="Messages per batch and pull; 32 by default.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per case.")
@nameserver_option
def bench(
    topic: str | None, count: int, size: int, in_flight: int, batch: int, as_json: bool
) -> None:
    """Measure sends and pulls from here to the brokers.

    One process with one connection to each broker: this shows what a Python program reaches, not
    what a broker can do.
    """
    name = topic or f"bench_{time.time_ns() // 1_000_000}"
    job = _BenchArguments(name, count, size, in_flight, batch, as_json)
    run(_bench(job, choose_nameserver(), is_temporary=topic is None), fast=True)


async def _bench(job: _BenchArguments, nameserver: str | None, *, is_temporary: bool) -> None:
    from rockhopper.client.admin.admin import Admin

    async with Admin(nameserver) as admin:
        if is_temporary:
            await admin.create_topic(job.topic, queues=_QUEUES)
        try:
            await _measure_all(job, nameserver, admin)
        finally:
            if is_temporary:
                await admin.delete_topic(job.topic)


async def _measure_all(job: _BenchArguments, nameserver: str | None, admin: "Admin") -> None:
    from rockhopper.client.producer import Producer

    async with Producer(nameserver, timeout_s=30.0) as producer:
        starts = {each.queue: each.max_offset for each in await admin.ranges(job.topic)}
        results = [await _bench_single_sends(job, producer), await _bench_batches(job, producer)]
    results.append(await _bench_pulls(job, nameserver, admin, starts))
    rows = []
    for each in results:
        rate = each.messages / each.seconds
        if job.as_json:
            write_json(
                {
                    "case": each.case,
                    "messages": each.messages,
                    "seconds": round(each.seconds, 4),
                    "messagesPerSecond": round(rate),
                    "p50Ms": round(each.percentile_ms(50), 3),
                    "p99Ms": round(each.percentile_ms(99), 3),
                }
            )
        rows.append(
            (
                each.case,
                each.messages,
                f"{each.seconds:.2f}",
                f"{rate:,.0f}",
                f"{rate * job.size_bytes / 1e6:,.1f}",
                f"{each.percentile_ms(50):,.2f}",
                f"{each.percentile_ms(99):,.2f}",
            )
        )
    if not job.as_json:
        print_table(("CASE", "MESSAGES", "SECONDS", "PER SECOND", "MB/S", "P50 MS", "P99 MS"), rows)
        write_line(f"bodies of {job.size_bytes:,} bytes; milliseconds are per request")


async def _bench_single_sends(job: _BenchArguments, producer: "Producer") -> _Measured:
    from rockhopper.protocol.message import Message

    message = Message(job.topic, bytes(job.size_bytes))

    async def send() -> int:
        await producer.send(message)
        return 1

    case = f"single sends, {job.under_way} in flight"
    return await _measure(case, send, job.count, 1, job.under_way)


async def _bench_batches(job: _BenchArguments, producer: "Producer") -> _Measured:
    from rockhopper.protocol.message import Message

    messages = [Message(job.topic, bytes(job.size_bytes))] * job.batch

    async def send() -> int:
        return len(await producer.send_batch(messages))

    under_way = max(job.under_way // job.batch, 1)
    case = f"batches of {job.batch}, {under_way} in flight"
    return await _measure(case, send, job.count, job.batch, under_way)


async def _bench_pulls(
    job: _BenchArguments, nameserver: str | None, admin: "Admin", starts: "dict[MessageQueue, int]"
) -> _Measured:
    """Read the sent messages, each queue from several offsets concurrently."""
    from rockhopper.client.pull_consumer import PullConsumer

    ends = {each.queue: each.max_offset for each in await admin.ranges(job.topic)}
    places: list[tuple[MessageQueue, int]] = [
        (queue, offset)
        for queue, end in ends.items()
        for offset in range(starts.get(queue, 0), end, job.batch)
    ]
    total = len(places) * job.batch
    async with PullConsumer(nameserver=nameserver) as consumer:

        async def pull() -> int:
            queue, offset = places.pop()
            result = await consumer.pull_from(queue, offset, job.batch)
            return len(result.messages)

        case = f"pulls of {job.batch}, {_PULLS_UNDER_WAY} in flight"
        return await _measure(case, pull, total, job.batch, _PULLS_UNDER_WAY)


async def _measure(
    case: str, request: Callable[[], Awaitable[int]], total: int, step: int, under_way: int
) -> _Measured:
    """Call `request` until `total` messages are moved; each call moves up to `step`."""
    clock = time.perf_counter
    latencies_s: list[float] = []
    moved = 0
    wanted = total

    with ProgressBar(case, total) as progress:

        async def repeat() -> None:
            nonlocal moved, wanted
            while wanted > 0:
                wanted -= step
                started = clock()
                count = await request()
                latencies_s.append(clock() - started)
                moved += count
                progress.advance(count)

        began = clock()
        await asyncio.gather(*(repeat() for _ in range(under_way)))
        return _Measured(case, moved, clock() - began, latencies_s)
