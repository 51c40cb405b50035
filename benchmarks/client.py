"""The speed of the bundled client: one broker of ours on one core, the client on the other.

Wall times depend on the neighbours of the machine. Compare CPU time per message instead, and an
awaited send with the round trip of a bare echo, which alternates with it. Each case runs several
short rounds, and the median of their CPU times counts. Messages that one process sends at 1,000/s
and consumes show the latency from end to end. `--only` selects cases by words in their names;
`--catch-up 2000000` adds a consumer that reads as many messages of 1 KiB.
"""

import argparse
import asyncio
import os
import platform
import statistics
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks import servers
from benchmarks.errors import BenchError
from benchmarks.load import cores
from benchmarks.report import judged, table
from benchmarks.servers import Server
from benchmarks.topics import TOPIC
from rockhopper import Consumer, Linger, Message, Producer, PullConsumer, ReceivedMessage
from rockhopper.tasks import start_task

BODY_SIZE_BYTES = 128
GATHERED = 1000
BATCH = 1000
CONSUMED_BATCH = 500
CATCH_UP_SIZE_BYTES = 1024
ROUND_TRIPS = 200
ECHO_RATIO_MAX = 2.0
PACE_PER_S = 1000
WARM_UP_COUNT = 200
END_TO_END_MS_MAX = 0.30
END_TO_END_CPU_US_MAX = 110.0
_SENT_S = struct.Struct(">d")


@dataclass(slots=True)
class Figures:
    """The times of one case, and the CPU seconds."""

    case: str
    messages: int
    wall_s: float
    client_cpu_s: float
    broker_cpu_s: float
    target_per_s: int | None = None

    def row(self) -> list[str]:
        """Return a row of the table; the target is for the client's core."""
        client_us = self.client_cpu_s / self.messages * 1e6
        broker_us = self.broker_cpu_s / self.messages * 1e6
        on_one_core = 1e6 / client_us
        verdict = ""
        if self.target_per_s is not None:
            verdict = "ok" if on_one_core >= self.target_per_s else "BELOW"
            verdict = f">= {self.target_per_s / 1000:g} {verdict}"
        return [
            self.case,
            f"{self.messages / self.wall_s / 1000:,.1f}",
            f"{client_us:.2f}",
            f"{broker_us:.2f}",
            f"{on_one_core / 1000:,.1f}",
            verdict,
        ]


HEADING = ["case", "k/s", "client CPU us", "broker CPU us", "k/s of a client's core", "to reach"]


class Meter:
    """Measures one case after another against one server."""

    def __init__(self, server: Server, rounds: int, only: str = "") -> None:
        self._server = server
        self._rounds = rounds
        self._only = only
        self.figures: list[Figures] = []

    async def measure(
        self, case: str, run: Callable[[], Awaitable[int]], target_per_s: int | None = None
    ) -> None:
        """Time *run*, which returns the number of messages it moved; keep the median round."""
        if self._only and self._only not in case:
            return
        found = [await self._once(case, run, target_per_s) for _ in range(self._rounds)]
        found.sort(key=lambda each: each.client_cpu_s / each.messages)
        self.figures.append(found[len(found) // 2])

    async def _once(
        self, case: str, run: Callable[[], Awaitable[int]], target_per_s: int | None
    ) -> Figures:
        broker_before = cpu_s(self._server.pid)
        client_before, began = time.process_time(), time.perf_counter()
        messages = await run()
        wall_s, client_cpu_s = time.perf_counter() - began, time.process_time() - client_before
        broker_cpu_s = cpu_s(self._server.pid) - broker_before
        return Figures(case, messages, wall_s, client_cpu_s, broker_cpu_s, target_per_s)


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of all threads of a process so far."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


class EchoPeer(asyncio.Protocol):
    """The bare round trip: a frame is written, and a future waits for its return."""

    def __init__(self) -> None:
        self._frame = struct.pack(">I", BODY_SIZE_BYTES * 3) + bytes(BODY_SIZE_BYTES * 3)
        self._missing_bytes = 0
        self._back: asyncio.Future[None] | None = None
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = transport  # type: ignore[assignment]

    async def round_trip(self) -> None:
        """Send the frame and wait until all of it is back."""
        assert self._transport is not None
        self._missing_bytes = len(self._frame)
        self._back = asyncio.get_running_loop().create_future()
        self._transport.write(self._frame)
        await self._back

    def data_received(self, data: bytes) -> None:
        """Count the bytes that are back."""
        self._missing_bytes -= len(data)
        if not self._missing_bytes and self._back is not None:
            self._back.set_result(None)

    def close(self) -> None:
        """Close the connection."""
        assert self._transport is not None
        self._transport.close()


async def latencies(
    producer: Producer, peer: EchoPeer, seconds: float
) -> tuple[list[float], list[float]]:
    """Return the seconds of awaited sends and of bare round trips, taken in turn."""

    async def send() -> None:
        await producer.send(message)

    message = Message(TOPIC, bytes(BODY_SIZE_BYTES))
    sends: list[float] = []
    echoes: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for action, found in ((send, sends), (peer.round_trip, echoes)):
            for _ in range(ROUND_TRIPS):
                began = time.perf_counter()
                await action()
                found.append(time.perf_counter() - began)
    return sends, echoes


async def awaited(producer: Producer, seconds: float) -> int:
    """Send one message after another."""
    message = Message(TOPIC, bytes(BODY_SIZE_BYTES))
    return await repeat(seconds, lambda: producer.send(message), 1)


async def gathered(producer: Producer, seconds: float) -> int:
    """Send as many messages at once as asyncio.gather is given."""
    body = bytes(BODY_SIZE_BYTES)

    async def once() -> None:
        await asyncio.gather(*[producer.send(TOPIC, body) for _ in range(GATHERED)])

    return await repeat(seconds, once, GATHERED)


async def many(producer: Producer, seconds: float) -> int:
    """Send as many messages with each call of send_many."""

    async def once() -> None:
        await producer.send_many([Message(TOPIC, bytes(BODY_SIZE_BYTES)) for _ in range(GATHERED)])

    return await repeat(seconds, once, GATHERED)


async def batches(producer: Producer, seconds: float) -> int:
    """Send one batch after another."""

    async def once() -> None:
        messages = [Message(TOPIC, bytes(BODY_SIZE_BYTES)) for _ in range(BATCH)]
        await producer.send_batch(messages)

    return await repeat(seconds, once, BATCH)


async def repeat(seconds: float, action: Callable[[], Awaitable[object]], count: int) -> int:
    """Repeat an action that moves *count* messages; return the total number moved."""
    moved = 0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        await action()
        moved += count
    return moved


async def by_loop(server: Server, count: int) -> int:
    """Consume with `async for`."""
    seen = 0
    async with Consumer(new_group(), TOPIC, nameserver=address(server)) as consumer:
        async for message in consumer:
            seen += len(message.body) > 0
            if seen >= count:
                break
    return seen


async def by_batches(server: Server, count: int) -> int:
    """Consume with `batches`."""
    seen = 0
    async with Consumer(new_group(), TOPIC, nameserver=address(server)) as consumer:
        async for batch in consumer.batches(CONSUMED_BATCH, 0.1):
            seen += sum([len(message.body) > 0 for message in batch])
            if seen >= count:
                break
    return seen


def new_group() -> str:
    """Return the name of a group that has consumed nothing yet."""
    return f"bench-{time.monotonic_ns()}"


async def by_handler(server: Server, count: int) -> int:
    """Consume with a handler."""
    seen = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal seen
        seen += len(message.body) > 0
        if seen >= count:
            consumer.stop()

    async with Consumer(new_group(), TOPIC, nameserver=address(server)) as consumer:
        await consumer.run(handle)
    return seen


async def by_pulls(server: Server, count: int) -> int:
    """Read the queues without a group."""
    seen = 0
    async with PullConsumer(TOPIC, nameserver=address(server)) as consumer:
        async for message in consumer:
            seen += len(message.body) > 0
            if seen >= count:
                break
    return seen


async def measure_all(server: Server, echo: Server, options: argparse.Namespace) -> str:
    """Run every case and return the report."""
    meter = Meter(server, options.rounds, options.only)
    awaited_text = ""
    async with Producer(address(server), timeout_s=30) as producer:
        await producer.send(TOPIC, b"the route is known")
        if not options.only:
            awaited_text = await compare_with_echo(producer, echo, options.seconds)
            awaited_text += await end_to_end(server, options.seconds * options.rounds)
        if options.catch_up:
            await fill(producer, options.catch_up, CATCH_UP_SIZE_BYTES)
            await meter.measure(
                f"catch-up of {options.catch_up:,} of 1 KiB",
                lambda: by_batches(server, options.catch_up),
                400_000,
            )
        else:
            await measure_sends(meter, producer, server, options.seconds)
            await fill(producer, options.count, BODY_SIZE_BYTES)
            await measure_consumers(meter, server, options.count)
    return awaited_text + table([HEADING, *(each.row() for each in meter.figures)])


async def compare_with_echo(producer: Producer, echo: Server, seconds: float) -> str:
    """Return a line about awaited sends and bare round trips."""
    loop = asyncio.get_running_loop()
    transport, peer = await loop.create_connection(EchoPeer, "127.0.0.1", echo.port)
    sends, echoes = await latencies(producer, peer, seconds)
    transport.close()
    send_us, echo_us = (statistics.median(each) * 1e6 for each in (sends, echoes))
    ratio = judged(send_us / echo_us, ECHO_RATIO_MAX, at_most=True)
    return f"awaited send: p50 {send_us:.0f} us; bare echo: p50 {echo_us:.0f} us; ratio {ratio}\n\n"


async def end_to_end(server: Server, seconds: float) -> str:
    """Return a line about messages that one process sends at a rate, and consumes one by one."""
    took_s: list[float] = []
    rest = bytes(BODY_SIZE_BYTES - _SENT_S.size)
    count = WARM_UP_COUNT + int(seconds * PACE_PER_S)

    async def consume() -> None:
        async for message in consumer:
            took_s.append(time.perf_counter() - _SENT_S.unpack_from(message.body)[0])
            if len(took_s) == count:
                return

    consumer = Consumer(new_group(), TOPIC, nameserver=address(server), start_from="latest")
    async with Producer(address(server), timeout_s=30) as producer, consumer:
        consuming = start_task(consume())
        sends = []
        cpu_before_s = began_s = 0.0
        for number in range(count):
            if number == WARM_UP_COUNT:
                cpu_before_s = time.process_time()
            if number in (0, WARM_UP_COUNT):
                began_s = time.perf_counter() - number / PACE_PER_S
            await asyncio.sleep(began_s + number / PACE_PER_S - time.perf_counter())
            body = _SENT_S.pack(time.perf_counter()) + rest
            sends.append(start_task(producer.send(TOPIC, body)))
        await asyncio.gather(*sends)
        await consuming
        cpu_us = (time.process_time() - cpu_before_s) / (count - WARM_UP_COUNT) * 1e6
    p50_ms = statistics.median(took_s[WARM_UP_COUNT:]) * 1e3
    p50 = judged(p50_ms, END_TO_END_MS_MAX, at_most=True)
    cpu = judged(cpu_us, END_TO_END_CPU_US_MAX, at_most=True)
    return f"end to end at {PACE_PER_S:,}/s: p50 in ms {p50}; CPU of both clients in us {cpu}\n\n"


async def measure_sends(meter: Meter, producer: Producer, server: Server, seconds: float) -> None:
    """Measure the ways of sending."""
    await meter.measure("send, awaited one by one", lambda: awaited(producer, seconds))
    case = f"send, {GATHERED:,} gathered"
    await meter.measure(case, lambda: gathered(producer, seconds), 100_000)
    async with Producer(address(server), timeout_s=30, linger=Linger(0)) as lingering:
        await meter.measure("the same with Linger(0)", lambda: gathered(lingering, seconds))
    case = f"send_many of {GATHERED:,}"
    await meter.measure(case, lambda: many(producer, seconds), 300_000)
    await meter.measure(f"send_batch of {BATCH:,}", lambda: batches(producer, seconds), 600_000)


async def measure_consumers(meter: Meter, server: Server, count: int) -> None:
    """Measure the ways of consuming *count* stored messages."""
    await meter.measure("Consumer, async for", lambda: by_loop(server, count), 600_000)
    case = f"Consumer, batches of {CONSUMED_BATCH}"
    await meter.measure(case, lambda: by_batches(server, count), 800_000)
    await meter.measure("Consumer, handler", lambda: by_handler(server, count))
    await meter.measure("PullConsumer, async for", lambda: by_pulls(server, count))


async def fill(producer: Producer, count: int, size_bytes: int) -> None:
    """Store at least *count* messages, in batches of 100 KB and more."""
    messages = [Message(TOPIC, bytes(size_bytes)) for _ in range(100)]
    for _ in range(0, count, len(messages) * 10):
        await asyncio.gather(*[producer.send_batch(messages) for _ in range(10)])


def address(server: Server) -> str:
    """Return the address of our broker's name server."""
    return f"127.0.0.1:{server.namesrv_port}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 2 if it could not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each case (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="per round of a sending case")
    parser.add_argument("--count", type=int, default=100_000, help="messages per round to consume")
    parser.add_argument("--only", default="", help="cases with these words in their names")
    parser.add_argument("--catch-up", type=int, default=0, help="measure this instead: messages")
    parser.add_argument("--asyncio", action="store_true", help="asyncio's own loop, not uvloop")
    options = parser.parse_args(arguments)
    factory = asyncio.new_event_loop if options.asyncio else uvloop.new_event_loop
    try:
        with servers.echo() as echo, servers.rockhopper({}) as server:
            os.sched_setaffinity(0, {cores()[1]})
            with asyncio.Runner(loop_factory=factory) as runner:
                report = runner.run(measure_all(server, echo, options))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    loop_name = factory.__module__.partition(".")[0]
    print(f"CPython {platform.python_version()}, {loop_name}, bodies of {BODY_SIZE_BYTES} bytes\n")
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
