"""Sends that continue whatever happens to brokers: the time of each answer, and the failures.

The body of each message is its number. Times are milliseconds of the wall clock, which both ends of
a JVM's pipe share.
"""

import asyncio
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, Self

from rockhopper.client import Producer
from rockhopper.client.errors import ClientError
from rockhopper.client.receipts import SendStatus
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.store.message_codec import decode_messages
from tests.interop.java_client import JavaClient
from tests.support.direct import pull_fields
from tests.support.wire import WireClient

LOOK_INTERVAL_S = 0.1
TIMEOUT_S = 90.0


class Answer(NamedTuple):
    """An acknowledged send."""

    number: int
    invoked_ms: float
    ended_ms: float


class Failure(NamedTuple):
    """A failed send."""

    number: int
    invoked_ms: float
    ended_ms: float
    why: str


@dataclass
class Sent:
    """The results of the sends so far."""

    answers: list[Answer] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def pause_ms(self, since_ms: float) -> float:
        """Return the longest time between answers, from the last one before *since_ms* on."""
        moments = sorted(answer.ended_ms for answer in self.answers)
        return max((b - a for a, b in pairwise(moments) if b >= since_ms), default=0.0)

    def numbers(self) -> set[int]:
        """Return the acknowledged numbers."""
        return {answer.number for answer in self.answers}


class Sender(Protocol):
    """A client that sends continuously inside ``async with``."""

    sent: Sent

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def look(self) -> Sent:
        """Return all results so far."""


async def answered_since(sender: Sender, moment_ms: float, count: int = 1) -> Sent:
    """Wait until *count* sends that began after *moment_ms* are acknowledged.

    Raises:
        TimeoutError: they are not; the message lists the failures.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        sent = await sender.look()
        if sum(answer.invoked_ms >= moment_ms for answer in sent.answers) >= count:
            return sent
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"no send is acknowledged any more: {sent.failures[-3:]}")
        await asyncio.sleep(LOOK_INTERVAL_S)


def wall_ms() -> float:
    """Return the current time."""
    return time.time() * 1000


class OurSender:
    """The bundled client."""

    def __init__(
        self,
        nameserver: str,
        topic: str,
        *,
        senders: int = 4,
        pause_s: float = 0.002,
        timeout_s: float | None = None,
    ) -> None:
        """*timeout_s* applies to each send; None: the client's default."""
        self.sent = Sent()
        self._nameserver, self._topic = nameserver, topic
        self._senders, self._pause_s, self._timeout_s = senders, pause_s, timeout_s
        self._next = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._producer = await Producer(self._nameserver, group="steady").__aenter__()
        self._tasks = [asyncio.create_task(self._send_on()) for _ in range(self._senders)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._producer.__aexit__(None, None, None)

    async def look(self) -> Sent:
        """See Sender."""
        for task in self._tasks:
            if task.done():
                await task  # raises
        return self.sent

    async def _send_on(self) -> None:
        while True:
            number, invoked_ms = self._next, wall_ms()
            self._next += 1
            try:
                receipt = await self._producer.send(
                    self._topic, b"%d" % number, timeout_s=self._timeout_s
                )
                why = "" if receipt.status is SendStatus.OK else receipt.status.name
            except ClientError as error:
                why = str(error)
            if why:
                self.sent.failures.append(Failure(number, invoked_ms, wall_ms(), why))
            else:
                self.sent.answers.append(Answer(number, invoked_ms, wall_ms()))
            await asyncio.sleep(self._pause_s)


class JavaSender:
    """The official Java client; *options* are those of interop.JavaSteady."""

    def __init__(self, java: JavaClient, nameserver: str, topic: str, **options: object) -> None:
        self.sent = Sent()
        self._java = java
        self._name = f"{topic}-{id(self)}"
        self._options = {"nameserver": nameserver, "topic": topic, **options}

    async def __aenter__(self) -> Self:
        await self._call("steady", **self._options)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._note(await self._call("steadyHalt"))

    async def look(self) -> Sent:
        """See Sender."""
        self._note(await self._call("steadyTaken"))
        return self.sent

    async def _call(self, op: str, **options: object) -> Any:
        return await asyncio.to_thread(self._java.call, op, name=self._name, **options)

    def _note(self, told: dict[str, list[list[Any]]]) -> None:
        self.sent.answers += [Answer(*each) for each in told["answers"]]
        self.sent.failures += [Failure(*each) for each in told["failures"]]


async def read_numbers(address: str, topic: str, queues: int) -> dict[tuple[int, int], int]:
    """Return the contents of a topic at *address*: (queue id, offset) -> number."""
    found: dict[tuple[int, int], int] = {}
    async with WireClient(address) as client:
        for queue_id in range(queues):
            offset = 0
            while True:
                fields = pull_fields(topic, offset, queue_id)
                answer = await client.ask(RequestCode.PULL_MESSAGE, fields)
                for message in decode_messages(answer.body):
                    found[queue_id, message.queue_offset] = int(message.body)
                following = int((answer.ext or {}).get("nextBeginOffset", offset))
                if following <= offset:
                    break
                offset = following
    return found
