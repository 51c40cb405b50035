"""`rockhopper pull`."""

import asyncio
import heapq
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rockhopper.client.commands.output import flush
from rockhopper.client.commands.parameters import (
    GROUP,
    TOPIC,
    PositionType,
    QueueType,
    select_queues,
)
from rockhopper.client.commands.progress import ProgressBar
from rockhopper.client.commands.rows import MessageRows
from rockhopper.client.commands.running import nameserver, nameserver_option, run

if TYPE_CHECKING:
    from rockhopper.client.consuming.pulling import PullResult
    from rockhopper.client.pull_consumer import Position, PullConsumer
    from rockhopper.client.queues import MessageQueue
    from rockhopper.client.received import ReceivedMessage

_BATCH = 32


@dataclass(frozen=True)
class _Job:
    topic: str
    start: "Position | None"
    max_count: int | None
    follow: bool
    queues: Sequence[tuple[str | None, int]]
    group: str | None
    tag: str
    expression: str | None
    as_json: bool


@click.command()
@click.argument("topic", type=TOPIC)
@click.option(
    "--from",
    "start",
    type=PositionType(),
    metavar="earliest|latest|OFFSET|TIME",
    help="Where to begin; TIME is 2024-05-01T12:00, 12:30, @MILLISECONDS or -30m (ago). "
    "Default: where the group stands, else earliest.",
)
@click.option(
    "--max", "max_count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages."
)
@click.option("--follow", "-f", is_flag=True, help="Wait for new messages; end with Ctrl-C.")
@click.option(
    "--queue",
    "-q",
    "queues",
    type=QueueType(),
    metavar="[BROKER:]ID",
    multiple=True,
    help="Read only this queue; repeatable.",
)
@click.option(
    "--group",
    "-g",
    type=GROUP,
    help="Consumer group: begin where it stands, and commit at the end.",
)
@click.option("--tag", "-t", default="*", help='Only messages with these tags: "new || paid".')
@click.option(
    "--filter",
    "expression",
    metavar="EXPR",
    help='Only messages whose properties match this SQL92 expression: "price > 5".',
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message.")
@nameserver_option
def pull(**asked: Any) -> None:
    """Print the messages of TOPIC, oldest first.

    Ends at the queues' ends as they were at the start; with --follow it goes on with new messages
    as they come.

    \b
    Examples:
      rockhopper pull orders --from -1h --tag new
      rockhopper pull orders --filter "price > 5 AND region = 'eu'"
      rockhopper pull orders --from earliest --max 10 --json | jq .body
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.client.filters import Sql, subscription_to
    from rockhopper.protocol.errors import SubscriptionError

    job = _Job(**asked)
    if job.expression is not None and job.tag != "*":
        raise click.UsageError("--tag and --filter exclude each other: TAGS is a property, too")
    try:
        subscription_to(job.topic, job.tag if job.expression is None else Sql(job.expression))
    except SubscriptionError as error:
        raise click.UsageError(str(error)) from None
    run(_pull(job, nameserver()))


async def _pull(job: _Job, nameserver: str | None) -> None:
    from rockhopper.client.filters import Sql
    from rockhopper.client.pull_consumer import PullConsumer

    wanted = None if job.expression is None else Sql(job.expression)
    async with PullConsumer(
        nameserver=nameserver, group=job.group, tags=job.tag, filter=wanted
    ) as consumer:
        queues = select_queues(await consumer.queues(job.topic), job.queues, job.topic)
        await consumer.assign(queues)
        if job.start is not None:
            await asyncio.gather(*(consumer.seek(queue, job.start) for queue in queues))
        printer = _Printer(job)
        ends = await asyncio.gather(*(consumer.end_offset(queue) for queue in queues))
        spans = [
            _Span(queue, consumer.position(queue), end)
            for queue, end in zip(queues, ends, strict=True)
        ]
        printer.expect(sum(max(span.end - span.start, 0) for span in spans))
        source = _in_order(consumer, spans)
        if job.follow:
            source = _and_what_follows(source, consumer, spans)
        is_seen = True
        try:
            async with aclosing(source) as messages:
                await printer.print_all(messages)
            flush()
        except BrokenPipeError:
            is_seen = False
            raise
        finally:
            if job.group is not None and is_seen:
                await consumer.commit(printer.next_offsets)
        printer.print_end()


@dataclass(frozen=True)
class _Span:
    """A part of a queue: offsets from `start` up to but not including `end`."""

    queue: "MessageQueue"
    start: int
    end: int


class _Printer:
    """Prints messages as they come and remembers how far each queue was printed."""

    def __init__(self, job: _Job) -> None:
        self.next_offsets: dict[MessageQueue, int] = {}
        self._job = job
        self._rows = MessageRows(as_json=job.as_json)
        self._progress = ProgressBar(
            f"reading {job.topic}",
            job.max_count,
            is_wanted=not sys.stdout.isatty() and not job.follow,
        )

    def expect(self, count: int) -> None:
        """Say how many messages there are at most."""
        self._progress.total = min(count, self._job.max_count or count)

    async def print_all(self, messages: "AsyncIterator[ReceivedMessage]") -> None:
        with self._progress as progress:
            async for message in messages:
                self._rows.print(message)
                self.next_offsets[message.queue] = message.queue_offset + 1
                if self._job.follow:
                    flush()
                progress.advance()
                if self._rows.count == self._job.max_count:
                    return

    def print_end(self) -> None:
        if not self._job.as_json and self._rows.count == 0:
            print(f"no messages in {self._job.topic} from there on", file=sys.stderr)


async def _in_order(
    consumer: "PullConsumer", spans: Sequence[_Span]
) -> "AsyncGenerator[ReceivedMessage]":
    """Yield the messages of several queues in the order in which they were stored."""
    streams = [_read(consumer, span) for span in spans]
    heads: list[tuple[int, int, ReceivedMessage]] = []
    try:
        firsts = await asyncio.gather(*(anext(stream, None) for stream in streams))
        for index, message in enumerate(firsts):
            if message is not None:
                heads.append((message.store_time_ms, index, message))
        heapq.heapify(heads)
        while heads:
            _, index, message = heads[0]
            yield message
            following = await anext(streams[index], None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.store_time_ms, index, following))
    finally:
        for stream in streams:
            await stream.aclose()


async def _and_what_follows(
    there: "AsyncGenerator[ReceivedMessage]", consumer: "PullConsumer", spans: Sequence[_Span]
) -> "AsyncGenerator[ReceivedMessage]":
    """Yield what is *there*, then the messages behind the spans as they come."""
    async with aclosing(there) as messages:
        async for message in messages:
            yield message
    for span in spans:
        if span.start < span.end:
            await consumer.seek(span.queue, span.end)
    async with aclosing(consumer.__aiter__()) as messages:
        async for message in messages:
            yield message


async def _read(consumer: "PullConsumer", span: _Span) -> "AsyncGenerator[ReceivedMessage]":
    """Yield the messages of a queue, asking for the next ones ahead of need."""
    request: asyncio.Task[PullResult] | None = None
    queue, offset, end = span.queue, span.start, span.end
    if offset < end:
        request = asyncio.create_task(consumer.pull_from(queue, offset, _BATCH))
    try:
        while request is not None:
            result = await request
            request = None
            # No progress means that the end was deleted since it was asked for.
            if offset < result.next_offset < end:
                offset = result.next_offset
                request = asyncio.create_task(consumer.pull_from(queue, offset, _BATCH))
            for message in result.messages:
                if message.queue_offset >= end:
                    return
                yield message
    finally:
        if request is not None:
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
