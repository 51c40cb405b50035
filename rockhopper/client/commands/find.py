"""`rockhopper query` and `rockhopper message`: find single messages by key and by id."""

import re
import sys
from typing import TYPE_CHECKING

import click

from rockhopper.client.commands.output import (
    format_time,
    message_json,
    print_body,
    print_table,
    read_body,
    write_json,
    write_line,
    write_note,
)
from rockhopper.client.commands.parameters import TOPIC, PositionType
from rockhopper.client.commands.running import choose_nameserver, nameserver_option, run
from rockhopper.client.commands.shell.reachable_brokers import list_reachable
from rockhopper.client.printable import format_preview, make_printable
from rockhopper.protocol.addresses import join_address

if TYPE_CHECKING:
    from rockhopper.client.pull_consumer import Position
    from rockhopper.client.received import ReceivedMessage

_PREVIEW_MAX = 80
_NAME_WIDTH_MAX = 24
_ID = re.compile(r"[0-9A-Fa-f]{32,}")


@click.command()
@click.argument("topic", type=TOPIC)
@click.argument("key", required=False)
@click.option("--key", "-k", "named", help="The KEY; the same as the argument.")
@click.option(
    "--max",
    "max_count",
    type=click.IntRange(min=1),
    default=32,
    metavar="N",
    help="At most N; 32 by default.",
)
@click.option("--from", "begin", type=PositionType(), metavar="TIME", help="Stored at or after.")
@click.option("--to", "end", type=PositionType(), metavar="TIME", help="Stored before.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message.")
@nameserver_option
def query(
    topic: str,
    key: str | None,
    named: str | None,
    max_count: int,
    begin: "Position | None",
    end: "Position | None",
    as_json: bool,
) -> None:
    """Find the messages of TOPIC that have a KEY, newest first."""
    if (key is None) == (named is None):
        raise click.UsageError("give one KEY: rockhopper query TOPIC KEY, or --key KEY")
    run(
        _query(
            topic,
            key or named or "",
            max_count,
            _time_ms(begin, "--from") or 0,
            _time_ms(end, "--to"),
            as_json,
            choose_nameserver(),
        )
    )


def _time_ms(position: "Position | None", option: str) -> int | None:
    from datetime import datetime

    if position is None:
        return None
    if not isinstance(position, datetime):
        raise click.UsageError(f"{option} takes a time: 2024-05-01T12:00, 12:30 or -30m")
    return round(position.timestamp() * 1000)


async def _query(
    topic: str,
    key: str,
    max_count: int,
    begin_ms: int,
    end_ms: int | None,
    as_json: bool,
    nameserver: str | None,
) -> None:
    async with list_reachable(nameserver, topic=topic) as admin:
        messages = await admin.messages_by_key(
            topic, key, max_count=max_count, begin_time_ms=begin_ms, end_time_ms=end_ms
        )
    if as_json:
        for message in messages:
            write_json(message_json(message))
    elif messages:
        print_table(
            ("QUEUE", "OFFSET", "STORED", "TAG", "ID", "BODY"),
            [_row(message) for message in messages],
        )
    else:
        write_note(f"no message in {topic} has the key {key!r}")


def _row(message: "ReceivedMessage") -> tuple[object, ...]:
    body, problem = read_body(message)
    preview = format_preview(body) if problem is None else f"<{problem}>"
    return (
        f"{message.queue.broker_name}:{message.queue.queue_id}",
        message.queue_offset,
        format_time(message.store_time_ms),
        message.tags or "-",
        message.message_id,
        preview if len(preview) <= _PREVIEW_MAX else preview[: _PREVIEW_MAX - 1] + "…",
    )


@click.command(short_help="Show one message by its id.")
@click.argument("message_id", metavar="ID")
@click.option("--topic", "-t", type=TOPIC, help="Search only this topic.")
@click.option("--raw", is_flag=True, help="Print only the body, byte for byte.")
@click.option("--json", "as_json", is_flag=True, help="Print the message as a JSON object.")
@nameserver_option
def message(message_id: str, topic: str | None, raw: bool, as_json: bool) -> None:
    """Show the message with this ID, as `send` printed it or as a broker logs it."""
    if not _ID.fullmatch(message_id):
        raise click.UsageError(
            f"{message_id!r} is not a message id: an id has at least 32 hexadecimal digits; "
            "`rockhopper query TOPIC --key KEY` finds messages by key"
        )
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    run(_message(message_id, topic, raw, as_json, choose_nameserver()))


async def _message(
    message_id: str, topic: str | None, raw: bool, as_json: bool, nameserver: str | None
) -> None:
    from rockhopper.client.admin.tracks import find_due_ms

    async with list_reachable(nameserver, topic=topic) as admin:
        found = await admin.message(message_id, topic)
        due = None if raw or as_json else await find_due_ms(admin, found)
    if raw:
        sys.stdout.buffer.write(found.body)
    elif as_json:
        write_json(message_json(found))
    else:
        _print_message(found, due)


def _find_aim(message: "ReceivedMessage", due_ms: int | None) -> list[tuple[str, str]]:
    """Return the target topic and delivery time of a message that waits outside its own topic."""
    from rockhopper.client.admin.message_forms import find_first_topic, find_target_topic

    facts = []
    target, first = find_target_topic(message), find_first_topic(message)
    if target != message.queue.topic:
        facts.append(("waits for", target))
        facts.append(("comes", format_time(due_ms)))
    if first != target:
        facts.append(("first sent to", first))
    return facts


def _print_message(message: "ReceivedMessage", due_ms: int | None) -> None:
    stored = message.stored
    body, problem = read_body(message)
    born = join_address(stored.born_host, stored.born_port)
    store = join_address(stored.store_host, stored.store_port)
    facts = [
        ("topic", message.topic),
        *_find_aim(message, due_ms),
        ("queue", f"{message.queue.broker_name}:{message.queue.queue_id}"),
        ("offset", str(message.queue_offset)),
        ("id", message.message_id),
        ("offset id", message.offset_message_id),
        ("tag", message.tags or "-"),
        ("keys", " ".join(message.keys) or "-"),
        ("sent", f"{format_time(message.born_time_ms)} from {born}"),
        (
            "stored",
            f"{format_time(message.store_time_ms)} at {store}",
        ),
        ("commit log", f"offset {stored.commit_log_offset:,}, {stored.size_bytes:,} bytes"),
        ("redelivered", f"{stored.reconsume_times} times"),
        ("flags", f"flag {stored.flag}, sysFlag {stored.sys_flag:#x}"),
    ]
    facts += [
        (f"  {name}", value)
        for name, value in sorted(message.properties.items())
        if name not in ("TAGS", "KEYS", "UNIQ_KEY")
    ]
    width = min(max(len(name) for name, _ in facts), _NAME_WIDTH_MAX)
    for name, value in facts:
        write_line(f"{name:<{width}}  {make_printable(value)}")
    write_line("")
    print_body(body, problem)
