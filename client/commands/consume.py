"""`rockhopper consume`."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from client.commands.output import flush
from client.commands.positions import PositionType
from client.commands.rows import MessageRows
from client.commands.running import (
    EXIT_INTERRUPTED,
    nameserver,
    nameserver_option,
    report,
    run,
)

if TYPE_CHECKING:
    from client.consuming.settings import StartFrom
    from client.filters import Sql
    from client.pull_consumer import Position


@dataclass(frozen=True)
class _Job:
    topic: str
    group: str
    wanted: str | Sql
    start: StartFrom
    is_orderly: bool
    max_count: int | None
    as_json: bool


@click.command()
@click.argument("topic")
@click.option("--group", "-g", required=True, help="The consumer group to join.")
@click.option(
    "--tag",
    "--tags",
    "-t",
    "tag",
    default="*",
    help='Only messages with these tags: "new || paid".',
)
@click.option(
    "--filter",
    "expression",
    metavar="EXPR",
    help='Only messages whose properties match this SQL92 expression: "price > 5".',
)
@click.option("--order", "is_orderly", is_flag=True, help="Lock queues: each in its order.")
@click.option(
    "--from",
    "start",
    type=PositionType(),
    default="earliest",
    metavar="earliest|latest|TIME",
    help="Where a group begins that has never committed; TIME as for `pull`. Default: earliest.",
)
@click.option(
    "--max", "max_count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message.")
@nameserver_option
def consume(
    topic: str,
    group: str,
    tag: str,
    expression: str | None,
    is_orderly: bool,
    start: Position,
    max_count: int | None,
    as_json: bool,
) -> None:
    """Print the messages of TOPIC as a member of a consumer group.

    The group's members share the messages; one that is printed is acknowledged. It goes on until
    Ctrl-C, or until nobody reads its output any more.

    \b
    Examples:
      rockhopper consume orders --group billing --tag "new || paid"
      rockhopper consume orders --group billing --max 10 --json | jq .body
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from client.filters import Sql, subscription_to
    from protocol.errors import SubscriptionError
    from protocol.names import group_error

    if mistake := group_error(group):
        raise click.UsageError(mistake)
    if expression is not None and tag != "*":
        raise click.UsageError("--tag and --filter exclude each other: TAGS is a property, too")
    if isinstance(start, int):
        raise click.UsageError(
            "--from takes earliest, latest or a time; `rockhopper group reset` moves a group to an "
            "offset"
        )
    try:
        wanted: str | Sql = tag if expression is None else Sql(expression)
        subscription_to(topic, wanted)
    except SubscriptionError as error:
        raise click.UsageError(str(error)) from None
    ended = _Ended()
    job = _Job(topic, group, wanted, start, is_orderly, max_count, as_json)
    run(_consume(job, nameserver(), ended))
    if ended.by_signal:
        sys.exit(EXIT_INTERRUPTED)


class _Ended:
    """Why the reading ended."""

    by_signal = False


async def _consume(job: _Job, nameserver: str | None, ended: _Ended) -> None:
    from client.consumer import Consumer

    rows = MessageRows(as_json=job.as_json)
    consumer = Consumer(
        job.group,
        {job.topic: job.wanted},
        nameserver=nameserver,
        start_from=job.start,
        orderly=job.is_orderly,
    )

    def interrupted() -> None:
        ended.by_signal = True
        consumer.stop()

    with _watch(interrupted, consumer.stop):
        async with consumer:
            async for message in consumer:
                rows.print(message)
                # Before the next one is asked for, which acknowledges this one.
                flush()
                if rows.count == job.max_count:
                    break
    if ended.by_signal:
        noun = "message was" if rows.count == 1 else "messages were"
        report(f"{rows.count:,} {noun} consumed and acknowledged before Ctrl-C")


@contextmanager
def _watch(interrupted: Callable[[], None], reader_gone: Callable[[], None]) -> Iterator[None]:
    """Tell of Ctrl-C, and of a reader of our output that goes away while nothing is printed."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    mode = os.fstat(1).st_mode
    is_pipe = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)

    def looked_at() -> None:
        loop.remove_reader(1)
        poll = select.poll()
        poll.register(1, 0)
        # A socket may also have something to read, or be closed in that direction alone.
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
            reader_gone()

    def first() -> None:
        for number in signals:
            loop.remove_signal_handler(number)  # the second one ends the program at once
        interrupted()

    for number in signals:
        loop.add_signal_handler(number, first)
    if is_pipe:
        # There is nothing to read: it becomes ready when the other end goes.
        loop.add_reader(1, looked_at)
    try:
        yield
    finally:
        if is_pipe:
            loop.remove_reader(1)
        for number in signals:
            loop.remove_signal_handler(number)
