"""`rockhopper request` and `rockhopper reply`: request messages from the command line."""

import asyncio
import shlex
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from rockhopper.client.commands.output import (
    flush,
    message_json,
    print_body,
    read_body,
    write_json,
    write_line,
)
from rockhopper.client.commands.parameters import GROUP, TOPIC
from rockhopper.client.commands.running import (
    Failure,
    choose_nameserver,
    nameserver_option,
    report,
    run,
)
from rockhopper.client.commands.send import parse_properties, tell_of_new_topic

if TYPE_CHECKING:
    from rockhopper.client.received import ReceivedMessage
    from rockhopper.protocol.message import Message


@click.command()
@click.argument("topic", type=TOPIC)
@click.argument("body", required=False)
@click.option(
    "--file", "-f", "source", type=click.File("rb"), help="Read the body from a file, - for stdin."
)
@click.option("--tag", "-t", "tags", help="Tag that consumers can filter by.")
@click.option("--key", "-k", "keys", multiple=True, help="Key to find the message by; repeatable.")
@click.option(
    "--property", "-p", "properties", multiple=True, metavar="NAME=VALUE", help="Repeatable."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.001),
    default=5.0,
    metavar="SECONDS",
    help="How long to wait for the reply; 5 by default.",
)
@click.option("--raw", is_flag=True, help="Print only the reply's body.")
@click.option("--json", "as_json", is_flag=True, help="Print the reply as a JSON object.")
@nameserver_option
def request(
    topic: str,
    body: str | None,
    source: BinaryIO | None,
    properties: tuple[str, ...],
    timeout_s: float,
    raw: bool,
    as_json: bool,
    **labels: Any,
) -> None:
    """Send a request to TOPIC and print the reply.

    A service, or `rockhopper reply`, has to consume TOPIC and reply.

    \b
    Examples:
      rockhopper request prices "apples"
      rockhopper request prices "apples" --timeout 30 --json | jq .body
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    from rockhopper.protocol.message import Message

    if (body is None) == (source is None):
        raise click.UsageError("give one of BODY and --file")
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    content = source.read() if source is not None else (body or "").encode(errors="surrogateescape")
    try:
        message = Message(topic, content, properties=parse_properties(properties), **labels)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    run(_request(message, timeout_s, raw, as_json, choose_nameserver()))


async def _request(
    message: "Message", timeout_s: float, raw: bool, as_json: bool, names: str | None
) -> None:
    from rockhopper.client.producer import Producer

    async with Producer(names) as producer:
        await tell_of_new_topic(producer, message.topic, names)
        reply = await producer.request(message, timeout_s=timeout_s)
    if as_json:
        write_json(message_json(reply))
    elif raw:
        sys.stdout.buffer.write(reply.body)
    else:
        print_body(*read_body(reply))


@click.command()
@click.argument("topic", type=TOPIC)
@click.argument("body", required=False)
@click.option("--group", "-g", type=GROUP, required=True, help="The consumer group to join.")
@click.option(
    "--command",
    "-c",
    metavar="COMMAND",
    help=(
        "Reply with the output of this command; it reads the request's body. It runs without a "
        "shell."
    ),
)
@click.option(
    "--max", "max_count", type=click.IntRange(min=1), metavar="N", help="Stop after N replies."
)
@nameserver_option
def reply(
    topic: str, body: str | None, group: str, command: str | None, max_count: int | None
) -> None:
    """Reply to the requests in TOPIC, until Ctrl-C.

    Messages that are not requests, and requests whose sender has disconnected, are acknowledged
    without a reply. If COMMAND fails, this command ends, and the request is redelivered.

    \b
    Examples:
      rockhopper reply prices "4.20" --group prices
      rockhopper reply words --group words --command "wc -w"
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    if (body is None) == (command is None):
        raise click.UsageError("give one of BODY and --command")
    words: list[str] = []
    if command is not None:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise click.UsageError(f"--command {command!r} cannot be parsed: {error}") from None
        if not words:
            raise click.UsageError("--command is empty")
    content = (body or "").encode(errors="surrogateescape")
    run(_reply(topic, group, content, words, max_count, choose_nameserver()))


async def _reply(
    topic: str,
    group: str,
    content: bytes,
    command: list[str],
    max_count: int | None,
    names: str | None,
) -> None:
    from rockhopper.client.consumer import Consumer
    from rockhopper.client.errors import ClientError, MessageRejectedError
    from rockhopper.client.producer import Producer

    count = 0
    async with (
        Producer(names) as producer,
        Consumer(group, topic, nameserver=names, start_from="latest") as consumer,
    ):
        async for message in consumer:
            answer = await _output(command, message) if command else content
            try:
                await producer.reply(message, answer)
            except MessageRejectedError:
                continue  # not a request
            except ClientError as error:
                report(error)
                continue
            write_line(f"replied to {message.message_id} with {len(answer):,} bytes")
            flush()
            count += 1
            if count == max_count:
                return


async def _output(command: list[str], message: "ReceivedMessage") -> bytes:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    except OSError as error:
        raise Failure(f"{command[0]} cannot be run: {error.strerror or error}") from None
    output, _ = await process.communicate(message.body)
    if process.returncode:
        raise Failure(f"{command[0]} failed with exit code {process.returncode}: no reply was sent")
    return output
