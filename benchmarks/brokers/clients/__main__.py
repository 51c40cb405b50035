"""One client's figures, as lines of JSON: a child process of `python -m benchmarks.brokers`.

    python -m benchmarks.brokers.clients nats-py --port 4222 --pid 123

Each way runs for a while unmeasured, and then several rounds. CPU times are of the process, all
threads included, and latencies those that the program sees: an awaited send from its call to its
return, and end to end from the call of send to the return of the receive.
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict

import uvloop

from benchmarks.brokers.clients.client import (
    BATCHES,
    CATCH_UP,
    EACH,
    GATHERED,
    IN_BATCHES,
    LIVE,
    MANY,
    ONE,
    SENT_AT_ONCE,
    WAYS,
    Client,
    Tally,
    Times,
)
from benchmarks.brokers.results import ClientSample
from benchmarks.errors import BenchError
from benchmarks.topics import SQL_TOPIC

CLIENTS = {
    "rockhopper": ("rocketmq", "Rockhopper"),
    "confluent-kafka": ("kafka", "ConfluentKafka"),
    "aiokafka": ("kafka", "AioKafka"),
    "nats-py": ("nats", "NatsPy"),
    "aio-pika": ("rabbitmq", "AioPika"),
    "redis-py": ("redis", "RedisPy"),
}
"""The module and the class of each client."""
RATE_PER_S = 1000
PROBES = 16
PROBED_WITHIN_S = 60.0
WAY_WITHIN_S = 120.0
CATCH_UP_BODY_BYTES = 1024
CATCH_UP_WITHIN_S = 240.0
_STAMP = struct.Struct(">qq")


def find_client(name: str) -> type[Client]:
    """Return the class of a client. Raises BenchError if its library is not installed."""
    module, cls = CLIENTS[name]
    try:
        found = importlib.import_module(f"benchmarks.brokers.clients.{module}")
    except ImportError as error:
        raise BenchError(
            f"{name} is not installed ({error}): pip install -e '.[test-brokers]'"
        ) from error
    client: type[Client] = getattr(found, cls)
    return client


class Measures:
    """The ways of one client, each a generator of samples."""

    def __init__(self, client: Client, options: argparse.Namespace) -> None:
        self._client = client
        self._options = options
        self._bodies = [bytes(options.body)] * SENT_AT_ONCE
        self._filled = 0

    async def measure(self, way: str) -> list[ClientSample]:
        """Return the samples of a way, one for each round."""
        options, client = self._options, self._client
        if way in (EACH, IN_BATCHES):
            consume = client.consume_each if way == EACH else client.consume_in_batches
            return [await self._consume(consume) for _ in range(options.rounds)]
        if way == CATCH_UP:
            return [await self._catch_up()]
        if way == LIVE:
            async with asyncio.timeout(WAY_WITHIN_S):
                return await Live(client, options).measure()
        actions: dict[str, Callable[[], Awaitable[None]]] = {
            ONE: lambda: client.send(self._bodies[0]),
            GATHERED: lambda: client.send_gathered(self._bodies),
            MANY: lambda: client.send_many(self._bodies),
            BATCHES: lambda: client.send_batch(self._bodies),
        }
        count = 1 if way == ONE else SENT_AT_ONCE
        async with asyncio.timeout(WAY_WITHIN_S):
            await self._send(actions[way], count)
            return [await self._send(actions[way], count) for _ in range(options.rounds)]

    def _now(self) -> Times:
        return Times.now(self._options.pid)

    async def _send(self, action: Callable[[], Awaitable[None]], count: int) -> ClientSample:
        took_us = []
        began = self._now()
        until_s = began.wall_s + self._options.seconds
        after_s = began.wall_s
        while after_s < until_s:
            before_s = after_s
            await action()
            after_s = time.perf_counter()
            took_us.append((after_s - before_s) * 1e6)
        return sample_of(len(took_us) * count, began, self._now(), took_us if count == 1 else ())

    async def _consume(self, consume: Callable[[str, Tally], Awaitable[None]]) -> ClientSample:
        client, options = self._client, self._options
        if not self._filled or not client.keeps_consumed:
            await client.fill(self._bodies, options.count + 2 * SENT_AT_ONCE)
            self._filled = options.count
        tally = Tally(self._now, options.count, options.consume_seconds)
        async with asyncio.timeout(WAY_WITHIN_S):
            await consume(f"bench-{time.monotonic_ns()}", tally)
        return _sample_of_tally(tally)

    async def _catch_up(self) -> ClientSample:
        """Consume messages of 1 KiB, which have a topic of their own."""
        count, self._client.topic = self._options.catch_up, SQL_TOPIC
        async with asyncio.timeout(CATCH_UP_WITHIN_S):
            bodies = [bytes(CATCH_UP_BODY_BYTES)] * (SENT_AT_ONCE // 2)
            await self._client.fill(bodies, count + 2 * SENT_AT_ONCE)
            tally = Tally(self._now, count, CATCH_UP_WITHIN_S)
            await self._client.consume_in_batches(f"bench-{time.monotonic_ns()}", tally)
        return _sample_of_tally(tally)


class Live:
    """Sends at a rate, and receives."""

    def __init__(self, client: Client, options: argparse.Namespace) -> None:
        self._client = client
        self._options = options
        self._padding = bytes(options.body - _STAMP.size)
        self._sent = 0
        self._latencies_us: dict[int, float] = {}
        """By the number of the message; a probe or a message that came twice counts once."""

    async def measure(self) -> list[ClientSample]:
        """Return one sample for each round."""
        options = self._options
        group = f"bench-{time.monotonic_ns()}"
        receiver = asyncio.ensure_future(self._client.receive(group, self._take))
        try:
            await self._probe(receiver)
            await self._round(options.seconds)
            return [await self._round(options.seconds) for _ in range(options.rounds)]
        finally:
            receiver.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await receiver

    def _take(self, body: bytes) -> None:
        if len(body) >= _STAMP.size:
            sent_ns, number = _STAMP.unpack_from(body)
            self._latencies_us[number] = (time.perf_counter_ns() - sent_ns) / 1e3

    def _post(self) -> None:
        self._sent += 1
        body = _STAMP.pack(time.perf_counter_ns(), self._sent) + self._padding
        self._client.post(body)

    async def _probe(self, receiver: "asyncio.Future[None]") -> None:
        """Send until everything that is sent arrives: the receiver then has its place."""
        until_s = time.perf_counter() + PROBED_WITHIN_S
        while time.perf_counter() < until_s:
            first = self._sent + 1
            for _ in range(PROBES):
                self._post()
                await asyncio.sleep(1 / RATE_PER_S)
            if await self._arrive(first, 1.0):
                return
            if receiver.done():
                receiver.result()
        raise BenchError(f"no message arrived within {PROBED_WITHIN_S:.0f} s")

    async def _arrive(self, first: int, seconds: float) -> bool:
        until_s = time.perf_counter() + seconds
        while time.perf_counter() < until_s:
            if all(number in self._latencies_us for number in range(first, self._sent + 1)):
                return True
            await asyncio.sleep(0.01)
        return False

    async def _round(self, seconds: float) -> ClientSample:
        self._latencies_us.clear()
        first, began = self._sent + 1, Times.now(self._options.pid)
        due_s = began.wall_s
        for _ in range(max(1, int(seconds * RATE_PER_S))):
            due_s += 1 / RATE_PER_S
            if (wait_s := due_s - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            self._post()
        await self._client.drain()
        ended = Times.now(self._options.pid)
        if not await self._arrive(first, 10.0):
            missing = self._sent + 1 - first - len(self._latencies_us)
            raise BenchError(f"{missing} messages did not arrive within 10 s")
        return sample_of(self._sent + 1 - first, began, ended, list(self._latencies_us.values()))


def sample_of(
    messages: int, began: Times, ended: Times, took_us: Sequence[float] = ()
) -> ClientSample:
    """Return the figures between two moments."""
    ordered = sorted(took_us)
    last = len(ordered) - 1
    return ClientSample(
        messages_per_s=messages / (ended.wall_s - began.wall_s),
        client_us=(ended.client_s - began.client_s) / messages * 1e6,
        server_us=(ended.server_s - began.server_s) / messages * 1e6,
        p50_us=ordered[round(last * 0.5)] if ordered else 0.0,
        p99_us=ordered[round(last * 0.99)] if ordered else 0.0,
    )


def _sample_of_tally(tally: Tally) -> ClientSample:
    if tally.began is None or tally.ended is None or not tally.messages:
        raise BenchError("the consumer ended before it had consumed anything")
    return sample_of(tally.messages, tally.began, tally.ended)


async def measure_all(client_class: type[Client], options: argparse.Namespace) -> None:
    """Print each way's figures as soon as they are there; a failure ends its way only."""
    async with contextlib.AsyncExitStack() as stack:
        client = client_class(options.port, options.nameserver_port, stack)
        async with asyncio.timeout(WAY_WITHIN_S):
            await client.open()
            await client.send(bytes(options.body))
        measures = Measures(client, options)
        for way in _chosen(client_class, options):
            try:
                samples = await measures.measure(way)
            except Exception as error:
                _print({"way": way, "failure": f"{type(error).__name__}: {error}"})
            else:
                _print({"way": way, "samples": [asdict(sample) for sample in samples]})


def _chosen(client_class: type[Client], options: argparse.Namespace) -> Iterator[str]:
    wanted = [way for way in options.ways.split(",") if way]
    for way in WAYS:
        is_wanted = way in wanted or not wanted
        if way in client_class.ways and is_wanted and (way != CATCH_UP or options.catch_up):
            yield way


def _print(line: object) -> None:
    print(json.dumps(line), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one client; return 2 if it is not installed or cannot connect."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.brokers.clients")
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--port", type=int, required=True, help="of the broker")
    parser.add_argument("--nameserver-port", type=int, default=0, help="of a RocketMQ broker")
    parser.add_argument("--pid", type=int, required=True, help="of the broker")
    parser.add_argument("--ways", default="", help=f"some of {','.join(WAYS)}")
    parser.add_argument("--rounds", type=int, default=5, help="of each way (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each round (default 1)")
    parser.add_argument("--consume-seconds", type=float, default=5.0, help="at most (default 5)")
    parser.add_argument("--count", type=int, default=100_000, help="messages to consume")
    parser.add_argument("--catch-up", type=int, default=0, help="messages of 1 KiB to consume")
    parser.add_argument("--body", type=int, default=128, help="bytes (default 128)")
    options = parser.parse_args(arguments)
    try:
        client_class = find_client(options.client)
        _print({"version": client_class.version(), "ways": dict(client_class.ways)})
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(measure_all(client_class, options))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
