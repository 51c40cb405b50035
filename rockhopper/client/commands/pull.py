"""`rockhopper pull`."""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rockhopper.client.commands.messages.reading import (
    OffsetSpan,
    follow_after,
    read_in_order,
    read_newest,
)
from rockhopper.client.commands.messages.wanted import LocalFilter, wanted_options
from rockhopper.client.commands.output import flush, write_note
from rockhopper.client.commands.parameters import (
    GROUP,
    TOPIC,
    PositionType,
    QueueType,
    check_readable,
    select_queues,
)
from rockhopper.client.commands.progress import ProgressBar
from rockhopper.client.commands.rows import MessageRows
from rockhopper.client.commands.running import choose_nameserver, nameserver_option, run
from rockhopper.client.commands.shell.reachable_brokers import list_reachable

if TYPE_CHECKING:
    from rockhopper.client.pull_consumer import Position, PullConsumer
    from rockhopper.client.queues import MessageQueue
    from rockhopper.client.received import ReceivedMessage

_LAST_MAX = 10_000


@dataclass(frozen=True)
class _PullArguments:
    topic: str
    start: "Position | None"
    end: "Position | None"
    last: int | None
    wanted: LocalFilter
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
    help=(
        "Where to start; TIME is 2024-05-01T12:00, 12:30, @MILLISECONDS or -30m (ago). Default: "
        "the group's offset, else earliest; with --follow, latest."
    ),
)
@click.option(
    "--to",
    "end",
    type=PositionType(),
    metavar="OFFSET|TIME",
    help="Where to stop, exclusive.",
)
@click.option(
    "--last",
    "-l",
    type=click.IntRange(min=1, max=_LAST_MAX),
    metavar="N",
    help="Only the newest N; with --follow, also new messages.",
)
@click.option(
    "--max", "max_count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages."
)
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Wait for new messages, and begin with those; stop with Ctrl-C.",
)
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
    help="Consumer group: start at its offset, and commit at the end.",
)
@click.option("--tag", "-t", default="*", help='Only messages with these tags: "new || paid".')
@click.option(
    "--filter",
    "expression",
    metavar="EXPR",
    help='Only messages whose properties match this SQL92 expression: "price > 5".',
)
@wanted_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message.")
@nameserver_option
def pull(**asked: Any) -> None:
    """Print the messages of TOPIC, oldest first.

    Stops at the ends that the queues had at the start. With --follow, prints new messages as they
    arrive, and earlier ones only if --from, --last or the offset of --group says so.

    \b
    Examples:
      rockhopper pull orders --last 5
      rockhopper pull orders --from 09:00 --to 09:15 --grep "refused|failed"
      rockhopper pull orders --where region=eu --follow
      rockhopper pull orders --filter "price > 5 AND region = 'eu'"
      rockhopper pull orders --from earliest --max 10 --json | jq .body
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.client.filters import Sql, make_subscription
    from rockhopper.protocol.errors import SubscriptionError

    job = _PullArguments(
        wanted=LocalFilter.from_options(asked.pop("pattern"), asked.pop("pairs")), **asked
    )
    if job.last is not None and (job.start is not None or job.max_count is not None):
        raise click.UsageError("--last excludes --from and --max, because it sets both")
    if job.end is not None and job.follow:
        raise click.UsageError("--to and --follow exclude each other: --follow has no end")
    if job.expression is not None and job.tag != "*":
        raise click.UsageError(
            "--tag and --filter exclude each other: a filter can name the property TAGS"
        )
    try:
        make_subscription(job.topic, job.tag if job.expression is None else Sql(job.expression))
    except SubscriptionError as error:
        raise click.UsageError(str(error)) from None
    run(_pull(job, choose_nameserver()))


async def _pull(job: _PullArguments, nameserver: str | None) -> None:
    from rockhopper.client.filters import Sql
    from rockhopper.client.pull_consumer import PullConsumer

    wanted = None if job.expression is None else Sql(job.expression)
    async with (
        list_reachable(nameserver, topic=job.topic) as admin,
        PullConsumer(
            nameserver=nameserver,
            group=job.group,
            tags=job.tag,
            filter=wanted,
            start_from="latest" if job.follow and job.last is None else "earliest",
        ) as consumer,
    ):
        consumer.session.routes.leave_out(admin.session.routes.left_out)
        readable = await consumer.queues(job.topic)
        check_readable(readable, job.topic)
        queues = select_queues(readable, job.queues, job.topic)
        await consumer.assign(queues)
        if job.start is not None:
            await asyncio.gather(*(consumer.seek(queue, job.start) for queue in queues))
        printer = _Printer(job)
        spans = await asyncio.gather(*(_find_span(consumer, queue, job) for queue in queues))
        source = _read_source(consumer, spans, job, printer)
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


async def _find_span(
    consumer: "PullConsumer", queue: "MessageQueue", job: _PullArguments
) -> OffsetSpan:
    end = await consumer.end_offset(queue)
    if job.end is not None:
        start = consumer.position(queue)
        await consumer.seek(queue, job.end)
        end = min(end, consumer.position(queue))
        await consumer.seek(queue, start)
    if job.last is not None:
        return OffsetSpan(queue, await consumer.begin_offset(queue), end)
    return OffsetSpan(queue, consumer.position(queue), end)


async def _read_source(
    consumer: "PullConsumer", spans: Sequence[OffsetSpan], job: _PullArguments, printer: "_Printer"
) -> "AsyncGenerator[ReceivedMessage]":
    """Yield the messages to filter and print; with --last they are filtered already."""
    if job.last is None:
        printer.expect(sum(max(span.end - span.start, 0) for span in spans))
        source = read_in_order(consumer, spans)
        if job.follow:
            source = follow_after(source, consumer, spans)
    else:
        source = _replay(await read_newest(consumer, spans, job.last, job.wanted))
        if job.follow:
            source = follow_after(source, consumer, spans)
    async with aclosing(source) as messages:
        async for message in messages:
            yield message


async def _replay(messages: "list[ReceivedMessage]") -> "AsyncGenerator[ReceivedMessage]":
    for message in messages:
        yield message


class _Printer:
    """Prints messages as they arrive and records the progress in each queue."""

    def __init__(self, job: _PullArguments) -> None:
        self.next_offsets: dict[MessageQueue, int] = {}
        self._job = job
        self._rows = MessageRows(as_json=job.as_json)
        self._progress = ProgressBar(
            f"reading {job.topic}",
            job.max_count,
            is_wanted=not sys.stdout.isatty() and not job.follow,
        )

    def expect(self, count: int) -> None:
        """Set the maximum number of messages to expect."""
        self._progress.total = min(count, self._job.max_count or count)

    async def print_all(self, messages: "AsyncIterator[ReceivedMessage]") -> None:
        with self._progress as progress:
            async for message in messages:
                self.next_offsets[message.queue] = message.queue_offset + 1
                progress.advance()
                if not self._job.wanted(message):
                    continue
                self._rows.print(message)
                if self._job.follow:
                    flush()
                if self._rows.count == self._job.max_count:
                    return

    def print_end(self) -> None:
        if not self._job.as_json and self._rows.count == 0:
            which = "such messages" if self._job.wanted.is_choosy else "messages"
            write_note(f"no {which} in {self._job.topic} {_describe_place(self._job)}")


def _describe_place(job: _PullArguments) -> str:
    if job.end is not None:
        return "before that" if job.start is None else "in that part"
    return "yet" if job.last is not None else "from there on"
