"""Formats messages, tables and times, for people and for programs."""

import base64
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from rockhopper.client.commands.screen.fitting import fit_table
from rockhopper.client.printable import (
    decode_text,
    format_preview,
    make_printable,
    make_printable_json,
)

if TYPE_CHECKING:
    from rockhopper.client.received import ReceivedMessage


def write_json(value: dict[str, Any]) -> None:
    """Write one object as a line of UTF-8, regardless of the locale, safe for a terminal."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    sys.stdout.buffer.write(make_printable_json(line).encode() + b"\n")


def write_line(text: str, *, is_bold: bool = False) -> None:
    """Write a line of text, with control and direction characters escaped.

    Characters that the terminal's encoding lacks are escaped too.
    """
    line = make_printable(text)
    if is_bold:
        line = f"\x1b[1m{line}\x1b[0m"
    sys.stdout.buffer.write(line.encode(sys.stdout.encoding or "utf-8", "backslashreplace") + b"\n")


def write_note(text: str) -> None:
    """Write *text* to standard error, escaped as by ``write_line``."""
    click.echo("\n".join(map(make_printable, text.split("\n"))), err=True)


def flush() -> None:
    """Flush standard output."""
    sys.stdout.buffer.flush()


def format_count(count: int, noun: str) -> str:
    """Return "1 queue", or "2 queues"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def read_body(message: "ReceivedMessage") -> tuple[bytes, str | None]:
    """Return the body, or the stored bytes and the reason why they cannot be decompressed."""
    from rockhopper.protocol.errors import CompressionError

    try:
        return message.body, None
    except CompressionError as error:
        return message.stored.body, str(error)


def print_body(body: bytes, problem: str | None = None) -> None:
    """Print a body: its text, safe for a terminal, or its first bytes in hex."""
    text = decode_text(body) if problem is None else None
    if problem is not None:
        write_line(f"<{problem}>")
    elif text is None:
        write_line(f"{format_preview(body)}  (--raw writes the bytes)")
    else:
        for line in text.removesuffix("\n").split("\n"):
            write_line(make_printable(line))


def message_json(message: "ReceivedMessage") -> dict[str, Any]:
    """Return a message as the object that --json prints."""
    body, problem = read_body(message)
    text = decode_text(body) if problem is None else None
    value: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "key": " ".join(message.keys) or None,
        "tags": message.tags,
        "messageId": message.message_id,
        "offsetMessageId": message.offset_message_id,
        "bornTime": message.born_time_ms,
        "storeTime": message.store_time_ms,
        "properties": dict(message.properties),
    }
    if text is not None:
        value["body"] = text
    else:
        value["bodyBase64"] = base64.b64encode(body).decode()
    if problem is not None:
        value["bodyError"] = problem
    return value


def convert_facts(facts: Mapping[str, str]) -> dict[str, Any]:
    """Convert a broker's texts to booleans and numbers; "1.0 2.0" becomes a list."""
    typed: dict[str, Any] = {}
    for key, text in facts.items():
        if text in ("true", "false"):
            typed[key] = text == "true"
        elif re.fullmatch(r"-?(0|[1-9]\d*)", text, re.ASCII):
            typed[key] = int(text)
        elif re.match(r"0\d", text):
            typed[key] = text  # hours, as in deleteWhen
        else:
            numbers = parse_numbers(text)
            typed[key] = text if not numbers else numbers if len(numbers) > 1 else numbers[0]
    return typed


def parse_numbers(text: str | None) -> list[float]:
    """Return the numbers in a text separated by blanks; an empty list if it has others."""
    try:
        return [float(part) for part in (text or "").split()]
    except ValueError:
        return []


def format_time(time_ms: int | None) -> str:
    """Return a time in local format, to the millisecond; "-" for None."""
    if not time_ms or time_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000)
    except (OverflowError, OSError, ValueError):
        return str(time_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d}"


def format_seconds(seconds: float | None) -> str:
    """Return a duration as text, "-" if unknown."""
    if seconds is None:
        return "-"
    return f"{seconds:,.1f} s" if 0 < seconds < 10 else f"{seconds:,.0f} s"


def find_terminal_width() -> int | None:
    """Return the columns of the terminal; None if the output goes elsewhere."""
    if not sys.stdout.isatty():
        return None
    import shutil  # with libraries for compression, a fiftieth of the time of a command

    return shutil.get_terminal_size().columns


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, ends_in_text: bool = False
) -> None:
    """Print a table with numbers aligned to the right; on a terminal it is fitted to the width."""
    texts = [[_cell(value) for value in row] for row in rows]
    width = find_terminal_width()
    head, lines = fit_table(columns, texts, width, ends_in_text=ends_in_text)
    for line in head:
        write_line(line, is_bold=width is not None)
    for line in lines:
        write_line(line)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else make_printable(str(value))
