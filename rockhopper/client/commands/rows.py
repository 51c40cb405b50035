"""Prints messages as they arrive: a table for people, lines of JSON for programs."""

from typing import TYPE_CHECKING

from rockhopper.client.commands.output import (
    find_terminal_width,
    format_time,
    message_json,
    read_body,
    write_json,
    write_line,
)
from rockhopper.client.commands.screen.fitting import count_cells, cut, pad, shorten
from rockhopper.client.printable import format_preview, make_printable

if TYPE_CHECKING:
    from rockhopper.client.received import ReceivedMessage

# If a narrow terminal leaves less room, the body gets its own line.
_BODY_WIDTH_MIN = 40
_FOLDED_WIDTH_MIN = 60
# A narrower terminal has no room for a body beside columns of the usual width.
_WIDE = 114


class MessageRows:
    """Prints messages one by one, with the table's head before the first."""

    def __init__(self, *, as_json: bool) -> None:
        self.count = 0
        """The number of printed messages."""
        self._as_json = as_json
        self._has_head = as_json
        self._width = find_terminal_width()

    def print_head(self) -> None:
        """Print the head of the table now; by default the first message prints it."""
        if not self._has_head:
            self._has_head = True
            write_line(
                format_row("QUEUE", "OFFSET", "STORED", "TAG", "KEYS", "BODY", width=self._width)
            )

    def print(self, message: "ReceivedMessage") -> None:
        """Print a message; the caller flushes the output."""
        if self._as_json:
            write_json(message_json(message))
        else:
            self.print_head()
            write_line(self._row(message))
        self.count += 1

    def _row(self, message: "ReceivedMessage") -> str:
        body, problem = read_body(message)
        text = format_preview(body) if problem is None else f"<{problem}>"
        return format_row(
            f"{message.queue.broker_name}:{message.queue.queue_id}",
            str(message.queue_offset),
            format_time(message.store_time_ms),
            make_printable(message.tags or "-"),
            make_printable(" ".join(message.keys) or "-"),
            text,
            width=self._width,
        )


def format_row(
    queue: str,
    offset: str,
    stored: str,
    tag: str,
    keys: str,
    body: str,
    *,
    width: int | None = None,
) -> str:
    """Return a line of the table, fitted to the terminal if `width` is given.

    If little of the body would be visible, it goes to a second line.
    """
    is_wide = width is None or width >= _WIDE
    names = f"{pad(tag, 8)}  {pad(keys, 12)}" if is_wide else f"{pad(tag, 4)}  {pad(keys, 5)}"
    start = f"{queue:<14} {offset:>8}  {stored:<23}  {names}  "
    if width is None:
        return start + body
    room = width - count_cells(start)
    if room >= min(_BODY_WIDTH_MIN, count_cells(body)) or width < _FOLDED_WIDTH_MIN:
        return start + cut(body, max(room, _BODY_WIDTH_MIN))
    start = start.rstrip()
    if count_cells(start) > width:
        names = "  ".join(each for each in (tag, keys) if each)
        start = f"{queue:<14} {offset:>8}  {stored:<23}\n  {shorten(names, width - 2)}"
    return f"{start}\n  {cut(body, width - 2)}"
