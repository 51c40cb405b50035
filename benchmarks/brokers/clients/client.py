"""A Python client as its users drive it, and the ways of using it that are measured.

A client lacks a way if its library has nothing for it. Every send is acknowledged, and every
consumer confirms its messages to the broker, as the library's own guide shows it.
"""

import abc
import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import ClassVar, Self

from benchmarks.client import cpu_s
from benchmarks.errors import BenchError
from benchmarks.topics import TOPIC

SENT_AT_ONCE = 1000
BATCH = 500
"""The most messages of a consumer's batch."""
LOOK_EVERY = 64
"""A consumer of single messages looks at the clock after so many."""
EMPTY_MAX = 30
"""A consumer gives up after so many empty answers of a second each."""

ONE, GATHERED, MANY, BATCHES = "one", "gathered", "many", "batches"
EACH, IN_BATCHES, LIVE, CATCH_UP = "each", "in-batches", "live", "catch-up"
WAYS = {
    ONE: "one send awaited at a time",
    GATHERED: f"{SENT_AT_ONCE:,} sends gathered",
    MANY: f"{SENT_AT_ONCE:,} sends in one call, a receipt each",
    BATCHES: f"batches of {SENT_AT_ONCE:,}",
    EACH: "consume, one by one",
    IN_BATCHES: f"consume, batches of up to {BATCH}",
    LIVE: "end to end at 1,000/s",
    CATCH_UP: "catch-up, bodies of 1 KiB, in batches",
}
"""The ways of using a client, and their titles."""


@dataclass(frozen=True, slots=True)
class Times:
    """A moment: the wall clock, and the CPU seconds of the client and of the server so far."""

    wall_s: float
    client_s: float
    server_s: float

    @classmethod
    def now(cls, server_pid: int) -> Self:
        """Read all clocks."""
        return cls(time.perf_counter(), time.process_time(), cpu_s(server_pid))


class Tally:
    """Counts the messages of a consumer from its first look on, and ends its loop.

    The time before the first message is not counted: consumers of a group wait for each other, some
    for seconds.
    """

    def __init__(self, now: Callable[[], Times], count: int, seconds: float) -> None:
        self._now = now
        self._count = count
        self._seconds = seconds
        self._first: int | None = None
        self.began: Times | None = None
        self.ended: Times | None = None
        self.messages = 0

    def is_over(self, seen: int) -> bool:
        """Note that a consumer has *seen* so many messages; return whether that is enough."""
        if self._first is None or self.began is None:
            self._first, self.began = seen, self._now()
            return False
        self.messages = seen - self._first
        is_over = self.messages >= self._count or (
            time.perf_counter() - self.began.wall_s >= self._seconds
        )
        if is_over:
            self.ended = self._now()
        return is_over


class Client(abc.ABC):
    """A client of one broker: a topic, and the ways of sending to it and of consuming it."""

    library: ClassVar[str]
    """The distribution's name."""
    ways: ClassVar[Mapping[str, str]]
    """How each way is done: the calls. A way that is missing is not measured."""
    keeps_consumed: ClassVar[bool] = True
    """Whether another group can consume again what one has consumed."""

    def __init__(self, port: int, nameserver_port: int, stack: contextlib.AsyncExitStack) -> None:
        """*stack* closes what the client opens."""
        self.topic = TOPIC
        """The topic of sends and consumers, for a client whose catch-up has one of its own."""
        self._port = port
        self._nameserver_port = nameserver_port
        self._stack = stack
        self._posted = set[asyncio.Task[None]]()

    @classmethod
    def version(cls) -> str:
        """Return the version of the library."""
        return metadata.version(cls.library)

    @abc.abstractmethod
    async def open(self) -> None:
        """Connect, and create the topic."""

    @abc.abstractmethod
    async def send(self, body: bytes) -> None:
        """Send one message and wait for its acknowledgement."""

    def post(self, body: bytes) -> None:
        """Begin to send one message."""
        task = asyncio.ensure_future(self.send(body))
        self._posted.add(task)
        task.add_done_callback(self._posted.discard)

    async def drain(self) -> None:
        """Wait for the acknowledgements of all posted messages."""
        await asyncio.gather(*self._posted)

    async def send_gathered(self, bodies: Sequence[bytes]) -> None:
        """Send each message with a call of its own, all at the same time."""
        await asyncio.gather(*[self.send(body) for body in bodies])

    async def send_many(self, bodies: Sequence[bytes]) -> None:
        """Send a list of messages, each of which has its own receipt."""
        raise NotImplementedError

    async def send_batch(self, bodies: Sequence[bytes]) -> None:
        """Send a list of messages as one, or as few as possible."""
        raise NotImplementedError

    @abc.abstractmethod
    async def consume_each(self, group: str, tally: Tally) -> None:
        """Consume from the first message on, one by one."""

    async def consume_in_batches(self, group: str, tally: Tally) -> None:
        """Consume from the first message on, in lists."""
        raise NotImplementedError

    @abc.abstractmethod
    async def receive(self, group: str, take: Callable[[bytes], None]) -> None:
        """Give each new body to *take*, until the task is cancelled."""

    async def fill(self, bodies: Sequence[bytes], count: int) -> None:
        """Store at least *count* messages in the quickest way."""
        send = self.send_gathered
        if MANY in self.ways:
            send = self.send_many
        if BATCHES in self.ways:
            send = self.send_batch
        for _ in range(0, count, len(bodies)):
            await send(bodies)


def refuse_silence(empty: int) -> None:
    """Raise BenchError if a consumer got nothing for too many seconds."""
    if empty >= EMPTY_MAX:
        raise BenchError(f"the consumer got nothing for {empty} s")
