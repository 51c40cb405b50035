"""The output of the store's tools: sentences for people, objects for programs."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def write_json(value: Any) -> None:
    """Write one value as one line of JSON."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    sys.stdout.buffer.write(line.encode("utf-8", "backslashreplace") + b"\n")


def write_line(text: str = "") -> None:
    """Write one line; escape what cannot be printed."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.buffer.write(shown.encode(encoding, "backslashreplace") + b"\n")


def flush() -> None:
    """Flush standard output. Raises BrokenPipeError."""
    sys.stdout.buffer.flush()


def size_text(size_bytes: int) -> str:
    """Format a size."""
    size, unit = float(size_bytes), _UNITS[0]
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size_bytes} {unit}" if unit == _UNITS[0] else f"{size:.1f} {unit}"


def time_text(time_ms: int | None) -> str:
    """Format a time in the local time zone."""
    if not time_ms:
        return "-"
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000))
    return f"{text}.{time_ms % 1000:03d}"


def format_count(count: int, noun: str) -> str:
    """Return "1 queue", or "2,000 queues"."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{count:,} {noun if count == 1 else plural}"


def write_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table with fitted columns; numbers are right-aligned, the last column is ragged."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    is_number = [all(_is_number(row[at]) for row in cells) for at in range(len(heads))]
    for row in (heads, *cells):
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        ]
        write_line("  ".join(parts).rstrip())


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").lstrip("-").isdecimal()
