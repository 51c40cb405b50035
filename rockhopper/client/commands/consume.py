"""`rockhopper consume`."""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from rockhopper.client.commands.parameters import GROUP, TOPIC, PositionType, check_readable
from rockhopper.client.commands.reader import OutputReader
from rockhopper.client.commands.rows import MessageRows
from rockhopper.client.commands.running import (
    EXIT_SIGNALLED,
    choose_nameserver,
    nameserver_option,
    report,
    run,
)

if TYPE_CHECKING:
    from rockhopper.client.consuming.options import StartFrom
    from rockhopper.client.filters import Sql
    from rockhopper.client.pull_consumer import Position

_HANGUP: int | None = getattr(signal, "SIGHUP", None)  # None on Windows
_NAMES: dict[int, str] = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    **({_HANGUP: "the terminal was closed (SIGHUP)"} if _HANGUP is not None else {}),
}


@dataclass(frozen=True)
class _ConsumeArguments:
    topic: str
    group: str
    wanted: "str | Sql"
    start: "StartFrom"
    is_orderly: bool
    max_count: int | None
    as_json: bool


@click.command()
@click.argument("topic", type=TOPIC)
@click.option("--group", "-g", type=GROUP, required=True, help="The consumer group to join.")
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
@click.option(
    "--order", "is_orderly", is_flag=True, help="Lock queues: keep the order of each queue."
)
@click.option(
    "--from",
    "start",
    type=PositionType(),
    default="earliest",
    metavar="earliest|latest|TIME",
    help="Where a new group starts; TIME as for `pull`. Default: earliest.",
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
    start: "Position",
    max_count: int | None,
    as_json: bool,
) -> None:
    """Print the messages of TOPIC as a member of a consumer group.

    The group's members share the messages. A message is acknowledged once it is printed and, if the
    output is a pipe, read from it. The command runs until Ctrl-C, or until the reader of the pipe
    exits.

    \b
    Examples:
      rockhopper consume orders --group billing --tag "new || paid"
      rockhopper consume orders --group billing --max 10 --json | jq .body
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.client.filters import Sql, make_subscription
    from rockhopper.protocol.errors import SubscriptionError

    if expression is not None and tag != "*":
        raise click.UsageError(
            "--tag and --filter exclude each other: a filter can name the property TAGS"
        )
    if isinstance(start, int):
        raise click.UsageError(
            "--from takes earliest, latest or a time; `rockhopper group reset` moves a group to an "
            "offset"
        )
    try:
        wanted: str | Sql = tag if expression is None else Sql(expression)
        make_subscription(topic, wanted)
    except SubscriptionError as error:
        raise click.UsageError(str(error)) from None
    ended = _EndSignal()
    job = _ConsumeArguments(topic, group, wanted, start, is_orderly, max_count, as_json)
    run(_consume(job, choose_nameserver(), ended))
    if ended.by_signal is not None:
        sys.exit(EXIT_SIGNALLED + ended.by_signal)


class _EndSignal:
    """The signal that ended the reading, if any."""

    by_signal: int | None = None


async def _consume(job: _ConsumeArguments, nameserver: str | None, ended: _EndSignal) -> None:
    from rockhopper.client.consumer import Consumer

    rows = MessageRows(as_json=job.as_json)
    reader = OutputReader()
    consumer = Consumer(
        job.group,
        {job.topic: job.wanted},
        nameserver=nameserver,
        start_from=job.start,
        orderly=job.is_orderly,
    )

    def interrupted(number: int) -> None:
        ended.by_signal = number
        consumer.stop()

    with _signals(interrupted), reader.watched(consumer.stop):
        async with consumer:
            route = await consumer.engine.session.routes.route(job.topic)
            check_readable(route.read_queues, job.topic)
            async for message in consumer:
                # A message that the reader did not take was not consumed: `| head -1` consumes only
                # one.
                if not (
                    await reader.takes(rows.print_head)
                    and await reader.takes(partial(rows.print, message))
                ):
                    consumer.put_back(message)
                    break
                if rows.count == job.max_count:
                    break
    if ended.by_signal is not None:
        noun = "message was" if rows.count == 1 else "messages were"
        name = _NAMES[ended.by_signal]
        report(f"{rows.count:,} {noun} consumed and acknowledged before {name}")


@contextmanager
def _signals(interrupted: Callable[[int], None]) -> Iterator[None]:
    """Call `interrupted` at the first signal; a second one ends the program at once."""
    # nohup ignores SIGHUP, so keep ignoring it.
    numbers = [each for each in _NAMES if each != _HANGUP or not _is_ignored(each)]
    ends = ExitStack()

    def first(number: int) -> None:
        ends.close()
        interrupted(number)

    with ends:
        for number in numbers:
            ends.callback(_handle(number, partial(first, number)))
        yield


def _handle(number: int, handler: Callable[[], None]) -> Callable[[], object]:
    """Call *handler* in the event loop on a signal; return a function that removes it."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, handler)
    except NotImplementedError:  # Windows
        before = signal.signal(number, lambda *_: loop.call_soon_threadsafe(handler))
        return partial(signal.signal, number, before)
    return partial(loop.remove_signal_handler, number)


def _is_ignored(number: int) -> bool:
    return signal.getsignal(number) == signal.SIG_IGN
