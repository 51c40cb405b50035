"""`rockhopper send`."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from rockhopper.client.commands.output import (
    flush,
    format_count,
    format_time,
    write_json,
    write_line,
)
from rockhopper.client.commands.parameters import (
    TOPIC,
    DurationType,
    QueueType,
    TimeType,
    select_queues,
)
from rockhopper.client.commands.progress import ProgressBar
from rockhopper.client.commands.running import choose_nameserver, nameserver_option, report, run
from rockhopper.client.commands.stdin_lines import read_stdin_lines
from rockhopper.protocol.names import tag_error
from rockhopper.tasks import start_task

if TYPE_CHECKING:
    from rockhopper.client.producer import Producer
    from rockhopper.client.queues import MessageQueue
    from rockhopper.client.receipts import SendReceipt
    from rockhopper.protocol.message import Message

_Send = Callable[[], "Coroutine[Any, Any, list[SendReceipt]]"]

_UNDER_WAY_MAX = 128


@dataclass(frozen=True)
class _SendArguments:
    """The arguments of the command."""

    topic: str
    body: bytes | None
    """None: send each line of the source as a message."""
    source: BinaryIO | None
    """The file whose lines are sent; None: standard input."""
    tag: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    count: int
    batch: int
    is_oneway: bool
    queue: tuple[str | None, int] | None
    sharding_key: str | None
    delay_ms: int | None
    deliver_at_ms: int | None
    as_json: bool
    timeout_s: float

    @property
    def is_typed(self) -> bool:
        """Whether a user types the messages, one a line, at a terminal."""
        return self.body is None and self.source is None and sys.stdin.isatty()

    def message(self, body: bytes) -> "Message":
        from rockhopper.protocol.message import Message

        return Message(
            self.topic,
            body,
            tags=self.tag,
            keys=self.keys,
            properties=self.properties,
            sharding_key=self.sharding_key,
            delay_s=None if self.delay_ms is None else self.delay_ms / 1000,
            deliver_at_ms=self.deliver_at_ms,
        )


@click.command()
@click.argument("topic", type=TOPIC)
@click.argument("body", required=False)
@click.option(
    "--file",
    "-f",
    "source",
    type=click.File("rb"),
    help="Send a file as one message.",
)
@click.option("--lines", "is_by_line", is_flag=True, help="Send each line of --file as a message.")
@click.option("--tag", "-t", help="Tag that consumers can filter by.")
@click.option("--key", "-k", "keys", multiple=True, help="Key to find the message by; repeatable.")
@click.option(
    "--property", "-p", "properties", multiple=True, metavar="NAME=VALUE", help="Repeatable."
)
@click.option("--queue", "-q", type=QueueType(), metavar="[BROKER:]ID", help="Send to this queue.")
@click.option("--sharding-key", help="Messages with the same key go to the same queue, in order.")
@click.option(
    "--delay",
    "delay_ms",
    type=DurationType(),
    metavar="DURATION",
    help="Deliver after this time: 30s, 10m, 1h30m.",
)
@click.option(
    "--at",
    "deliver_at_ms",
    type=TimeType(),
    metavar="TIME",
    help="Deliver at this time: 2030-05-01T12:00, 18:30 (today) or @MILLISECONDS.",
)
@click.option(
    "--count", "-c", type=click.IntRange(min=1), default=1, metavar="N", help="Send it N times."
)
@click.option(
    "--batch",
    "-b",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Put N messages into one request.",
)
@click.option(
    "--oneway",
    "is_oneway",
    is_flag=True,
    help="Do not wait for the broker's answer.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.001),
    default=3.0,
    metavar="SECONDS",
    help="Give up a send after this time; 3 by default.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message.")
@nameserver_option
def send(
    body: str | None,
    source: BinaryIO | None,
    is_by_line: bool,
    properties: tuple[str, ...],
    **asked: Any,
) -> None:
    """Send messages to TOPIC.

    BODY is the text of the message; "-" sends each line of standard input as one message (except
    empty lines). --file sends a whole file as one message, or with --lines each of its lines.

    \b
    Examples:
      rockhopper send orders "hello" --tag new --key o-1
      rockhopper send orders "remind me" --delay 10m
      seq 1000 | rockhopper send orders - --batch 50
      rockhopper send orders --file orders.jsonl --lines
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    if (body is None) == (source is None):
        raise click.UsageError('give one of BODY, "-" or --file')
    if is_by_line and source is None:
        raise click.UsageError('--lines needs --file; "-" sends the lines of standard input')
    is_by_line |= body == "-"
    _check_options(asked, is_by_line=is_by_line)
    content = None
    if not is_by_line:
        content = _read_content(body, source)
    job = _SendArguments(
        body=content, source=source, properties=parse_properties(properties), **asked
    )
    try:
        job.message(b"")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    run(_send(job, choose_nameserver()))


def _read_content(body: str | None, source: BinaryIO | None) -> bytes:
    """Return the body of the one message; report a file of several lines."""
    if source is None:
        return (body or "").encode(errors="surrogateescape")
    content = source.read()
    line_count = len(content.splitlines())
    if line_count > 1:
        report(
            f"{source.name} is one message of {line_count:,} lines; "
            "--lines sends each line as a message"
        )
    return content


def _check_options(asked: dict[str, Any], *, is_by_line: bool) -> None:
    if is_by_line and asked["count"] > 1:
        raise click.UsageError("--count does not work with lines: every line is sent once")
    if reason := tag_error(asked["tag"] or ""):
        raise click.UsageError(reason)
    if asked["is_oneway"] and asked["batch"] > 1:
        raise click.UsageError("--oneway and --batch exclude each other")
    _check_delivery(asked)


def _check_delivery(asked: dict[str, Any]) -> None:
    at_ms = asked["deliver_at_ms"]
    if at_ms is not None and asked["delay_ms"] is not None:
        raise click.UsageError("--delay and --at exclude each other")
    if at_ms is not None and at_ms <= time.time() * 1000:
        raise click.UsageError(
            f"--at: {format_time(at_ms)} has passed; "
            f"it is {format_time(round(time.time() * 1000))} now"
        )
    if (at_ms or asked["delay_ms"]) and asked["batch"] > 1:
        raise click.UsageError("--batch excludes --delay and --at: send them one by one")


def parse_properties(texts: Sequence[str]) -> dict[str, str]:
    """Return the properties of the --property options, or end the program with exit code 2."""
    properties: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--property {text!r} must look like NAME=VALUE")
        properties[name] = value
    return properties


async def _send(job: _SendArguments, nameserver: str | None) -> None:
    from rockhopper.client.producer import Producer

    started = time.monotonic()
    total = job.count if job.body is not None else None
    is_chatty = total == 1 or job.is_typed
    async with Producer(nameserver, timeout_s=job.timeout_s) as producer:
        queue = await _queue(producer, job)
        await tell_of_new_topic(producer, job.topic, nameserver)
        with ProgressBar(f"sending to {job.topic}", total, is_wanted=not job.as_json) as progress:

            def stored(receipts: "Sequence[SendReceipt]") -> None:
                progress.advance(len(receipts))
                if job.as_json or is_chatty:
                    for receipt in receipts:
                        _print_receipt(receipt, job)
                    flush()

            try:
                if job.is_oneway:
                    await _send_oneway(producer, job, queue, progress)
                else:
                    await _send_pipelined(producer, job, queue, stored)
            except asyncio.CancelledError:
                report(f"{_format_sent_count(progress.done)} sent before Ctrl-C")
                raise
            except Exception as error:
                if total != 1:
                    error.add_note(f"{_format_sent_count(progress.done)} sent before the error")
                raise
    if not job.as_json and (job.is_oneway or not is_chatty):
        _print_summary(job, progress.done, time.monotonic() - started)


async def _queue(producer: "Producer", job: _SendArguments) -> "MessageQueue | None":
    if job.queue is None:
        return None
    chosen = select_queues(await producer.queues(job.topic), [job.queue], job.topic)
    if len(chosen) > 1:
        names = ", ".join(f"{each.broker_name}:{each.queue_id}" for each in chosen)
        raise ValueError(f"several brokers have a queue {job.queue[1]}: use one of {names}")
    return chosen[0]


async def _bodies(job: _SendArguments) -> AsyncIterator[bytes]:
    if job.body is None:
        lines = read_stdin_lines() if job.source is None else read_stdin_lines(job.source.fileno())
        async for line in lines:
            yield line
    else:
        for _ in range(job.count):
            yield job.body


async def _send_oneway(
    producer: "Producer", job: _SendArguments, queue: "MessageQueue | None", progress: ProgressBar
) -> None:
    async for body in _bodies(job):
        await producer.send_oneway(job.message(body), queue=queue)
        progress.advance()


async def _send_pipelined(
    producer: "Producer",
    job: _SendArguments,
    queue: "MessageQueue | None",
    stored: "Callable[[Sequence[SendReceipt]], None]",
) -> None:
    """Send with several requests in flight, and report in the order of the input."""
    # Send to one queue sequentially: a broker may handle pipelined requests in another order.
    under_way_max = 1 if queue is not None or job.sharding_key is not None else _UNDER_WAY_MAX
    slots = asyncio.Semaphore(under_way_max)
    sends: asyncio.Queue[asyncio.Task[list[SendReceipt]] | None] = asyncio.Queue()

    async def feed() -> None:
        try:
            async for request in _requests(producer, job, queue):
                await slots.acquire()
                sends.put_nowait(start_task(request()))
        finally:
            sends.put_nowait(None)

    feeder = start_task(feed())
    try:
        while (task := await sends.get()) is not None:
            stored(await task)
            slots.release()
        await feeder
    finally:
        feeder.cancel()
        await asyncio.gather(feeder, return_exceptions=True)
        while not sends.empty():
            if (left := sends.get_nowait()) is not None:
                left.cancel()
                await asyncio.gather(left, return_exceptions=True)


async def _requests(
    producer: "Producer", job: _SendArguments, queue: "MessageQueue | None"
) -> AsyncIterator[_Send]:
    batch: list[Message] = []

    async for body in _bodies(job):
        message = job.message(body)
        if job.batch == 1:
            yield partial(_send_one, producer, message, queue)
            continue
        batch.append(message)
        if len(batch) == job.batch:
            yield partial(producer.send_batch, batch, queue=queue)
            batch = []
    if batch:
        yield partial(producer.send_batch, batch, queue=queue)


async def _send_one(
    producer: "Producer", message: "Message", queue: "MessageQueue | None"
) -> "list[SendReceipt]":
    return [await producer.send(message, queue=queue)]


async def tell_of_new_topic(producer: "Producer", topic: str, nameserver: str | None) -> None:
    """Report that the send will create its topic, and which missing brokers may have the topic."""
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.errors import ClientError
    from rockhopper.client.network.absent import format_names

    try:
        if not (await producer.session.routes.route(topic, for_sending=True)).is_guess:
            return
        async with Admin(nameserver) as admin:
            away = await admin.away()
    except ClientError:
        return  # the send reports the error
    what = f"no topic {topic!r}" + (" on the reachable brokers" if away else "")
    where = f"; not reachable: {format_names(away)}, which may have it" if away else ""
    report(f"there was {what}: it has been created{where}")


def _print_receipt(receipt: "SendReceipt", job: _SendArguments) -> None:
    queue = receipt.queue
    if job.as_json:
        handle = receipt.recall_handle
        write_json(
            {
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "offset": receipt.queue_offset,
                "messageId": receipt.message_id,
                "offsetMessageId": receipt.offset_message_id,
                "status": receipt.status.name,
                **({} if handle is None else {"recallHandle": handle}),
            }
        )
        return
    if later := _format_delivery(job):
        # The message gets its queue and offset only when it is delivered.
        write_line(f"kept for {queue.topic} by {queue.broker_name}, id {receipt.message_id}{later}")
        return
    doubt = "" if receipt.status == 0 else f" ({receipt.status.name})"
    write_line(
        f"stored in {queue.topic}: {queue.broker_name} queue {queue.queue_id} "
        f"offset {receipt.queue_offset}, id {receipt.message_id}{doubt}"
    )


def _format_delivery(job: _SendArguments) -> str:
    at_ms = job.deliver_at_ms
    if job.delay_ms is not None:
        at_ms = round(time.time() * 1000) + job.delay_ms
    return "" if at_ms is None else f", to be delivered at {format_time(at_ms)}"


def _print_summary(job: _SendArguments, done: int, seconds: float) -> None:
    messages = format_count(done, "message")
    if job.is_oneway:
        write_line(f"sent {messages} to {job.topic}, unconfirmed (--oneway)")
        return
    rate = f", {done / seconds:,.0f} per second" if done > 1 else ""
    write_line(f"stored {messages} in {job.topic} in {seconds:.2f} s{rate}")


def _format_sent_count(done: int) -> str:
    return "1 message was" if done == 1 else f"{done:,} messages were"
