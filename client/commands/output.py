"""How messages, tables and times look, for people and for programs."""

import base64
import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rockhopper.client.printable import body_text, printable

if TYPE_CHECKING:
    from rockhopper.client.received import ReceivedMessage

_WIDTH_MAX = 10_000
_LAST_COLUMN_WIDTH_MIN = 20
_NUMBER = re.compile(r"-|[\d.,]+")


def write_json(value: dict[str, Any]) -> None:
    """Write one object as one line, in UTF-8 whatever the locale says."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    sys.stdout.buffer.write(line.encode() + b"\n")


def write_line(text: str) -> None:
    """Write a line of text; what the terminal's encoding lacks is escaped."""
    sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace") + b"\n")


def flush() -> None:
    """Let readers of the output see it now."""
    sys.stdout.buffer.flush()


def counted(count: int, noun: str) -> str:
    """Return "1 queue", or "2 queues"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def read_body(message: "ReceivedMessage") -> tuple[bytes, str | None]:
    """Return the body, or the stored bytes and why they cannot be decompressed."""
    from rockhopper.protocol.errors import CompressionError

    try:
        return message.body, None
    except CompressionError as error:
        return message.stored.body, str(error)


def message_json(message: "ReceivedMessage") -> dict[str, Any]:
    """Return a message as the object that --json prints."""
    body, problem = read_body(message)
    text = body_text(body) if problem is None else None
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


def time_text(time_ms: int | None) -> str:
    """Return a time as people here write it, to the millisecond; "-" for none."""
    if not time_ms or time_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000)
    except (OverflowError, OSError, ValueError):
        return str(time_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d}"


def cells(text: str) -> int:
    """Return how many columns of a terminal `text` takes: letters of East Asia take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def pad(text: str, width: int) -> str:
    """Return `text` with blanks up to `width` columns of a terminal."""
    return text + " " * (width - cells(text))


def cut(text: str, width: int) -> str:
    """Return what fits of `text` into `width` columns of a terminal, "…" for the rest."""
    if cells(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1] + "…"
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1) + "…"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table, figures to the right; on a terminal the last column is cut to fit."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    texts = [[_cell(value) for value in row] for row in rows]
    table = Table(header_style="bold", box=None, pad_edge=False)
    for index, name in enumerate(columns):
        is_number = all(_NUMBER.fullmatch(row[index]) for row in texts)
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    if sys.stdout.isatty():
        _cut_last_column(columns, texts, Console().width)
    for row in texts:
        table.add_row(*(Text(text) for text in row))
    console = Console(highlight=False, width=_WIDTH_MAX)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        write_line(line.rstrip())


def _cut_last_column(columns: Sequence[str], rows: list[list[str]], width: int) -> None:
    for index, name in enumerate(columns[:-1]):
        width -= 2 + max([len(name), *(cells(row[index]) for row in rows)])
    width = max(width, _LAST_COLUMN_WIDTH_MIN)
    for row in rows:
        row[-1] = cut(row[-1], width)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
