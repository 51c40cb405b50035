"""The speed of the bundled client: one broker of ours on one core, the client on the other.

Wall times depend on the neighbours of the machine. Compare CPU time per message instead, and an
awaited send with the round trip of a bare echo, which alternates with it. Each case runs several
short rounds, and the best one counts, because neighbours can only slow it down.
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

BODY_SIZE_BYTES = 128
GATHERED = 1000
LINGER_S = 0.005
BATCH = 100
ROUND_TRIPS = 200
ECHO_RATIO_MAX = 2.0
SENDS_PER_S_MIN = 60_000
CONSUMED_PER_S_MIN = 150_000


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

    def __init__(self, server: Server, rounds: int) -> None:
        self._server = server
        self._rounds = rounds
        self.figures: list[Figures] = []

    async def measure(
        self, case: str, run: Callable[[], Awaitable[int]], target_per_s: int | None = None
    ) -> None:
        """Time *run*, which returns the number of messages it moved; keep the best round."""
        found = [await self._once(case, run, target_per_s) for _ in range(self._rounds)]
        self.figures.append(min(found, key=lambda each: each.client_cpu_s / each.messages))

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
    async with Consumer(new_group(), TOPIC, nameserver=address(server)) as consumer:
        seen = 0
        async for message in consumer:
            seen += len(message.body) > 0
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
    seconds, count = options.seconds, options.count
    meter = Meter(server, options.rounds)
    async with Producer(address(server), timeout_s=30) as producer:
        await producer.send(TOPIC, b"the route is known")
        loop = asyncio.get_running_loop()
        transport, peer = await loop.create_connection(EchoPeer, "127.0.0.1", echo.port)
        sends, echoes = await latencies(producer, peer, seconds)
        transport.close()
        await meter.measure("send, awaited one by one", lambda: awaited(producer, seconds))
        await meter.measure(
            f"send, {GATHERED:,} gathered", lambda: gathered(producer, seconds), SENDS_PER_S_MIN
        )
        async with Producer(address(server), timeout_s=30, linger=Linger(LINGER_S)) as lingering:
            case = f"the same with Linger({LINGER_S:g})"
            await meter.measure(case, lambda: gathered(lingering, seconds), SENDS_PER_S_MIN)
        case = f"send_batch of {BATCH}"
        await meter.measure(case, lambda: batches(producer, seconds))
        await fill(producer, count)
    target = CONSUMED_PER_S_MIN
    await meter.measure("Consumer, async for", lambda: by_loop(server, count), target)
    await meter.measure("Consumer, handler", lambda: by_handler(server, count), target)
    await meter.measure("PullConsumer, async for", lambda: by_pulls(server, count), target)
    send_us, echo_us = (statistics.median(each) * 1e6 for each in (sends, echoes))
    ratio = judged(send_us / echo_us, ECHO_RATIO_MAX, at_most=True)
    return (
        f"awaited send: p50 {send_us:.0f} us; bare echo: p50 {echo_us:.0f} us; ratio {ratio}\n\n"
        + table([HEADING, *(each.row() for each in meter.figures)])
    )


async def fill(producer: Producer, count: int) -> None:
    """Store at least *count* messages."""
    for _ in range(0, count, BATCH * 10):
        messages = [Message(TOPIC, bytes(BODY_SIZE_BYTES)) for _ in range(BATCH)]
        await asyncio.gather(*[producer.send_batch(messages) for _ in range(10)])


def address(server: Server) -> str:
    """Return the address of our broker's name server."""
    return f"127.0.0.1:{server.namesrv_port}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 2 if it could not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each case (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="per round of a sending case")
    parser.add_argument("--count", type=int, default=50_000, help="messages per round to consume")
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
