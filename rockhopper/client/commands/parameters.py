"""Parameter types of the command line: topics, groups, positions and queues.

An invalid value ends the program at once with exit code 2.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from rockhopper.client.commands.shell.completion import (
    complete_groups,
    complete_positions,
    complete_queues,
    complete_topics,
)
from rockhopper.protocol.names import group_error, topic_error
from rockhopper.protocol.times import DIGITS_OF_DAY, parse_ms

if TYPE_CHECKING:
    from rockhopper.client.pull_consumer import Position
    from rockhopper.client.queues import MessageQueue

Complete = Callable[[click.Context, click.Parameter, str], list[str]]

_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_AGO_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_OFFSET_PREFIX = "offset:"
_QUEUE = re.compile(r"(?:(?P<broker>.+):)?(?P<id>\d+)")


def parse_time(text: str, now: datetime) -> datetime | None:
    """Return the time that `text` denotes, or None.

    "-30m" is half an hour ago, "@1700000000000" milliseconds since 1970, "12:30" today at that
    time. A text that begins with a date is ISO 8601, in local time unless it contains an offset.
    """
    if ago := _AGO.fullmatch(text):
        return now - float(ago[1]) * _AGO_UNITS[ago[2]]
    try:
        if text.startswith("@"):
            return datetime.fromtimestamp(parse_ms(text[1:]) / 1000)
        if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
            text = f"{now:%Y-%m-%d}T{text.zfill(5) if len(text) < 6 else text.zfill(8)}"
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        return None


class _Completed(click.ParamType[Any]):
    """A type whose values a shell can complete."""

    complete: Complete

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the possible completions."""
        return [CompletionItem(value) for value in self.complete(ctx, param, incomplete)]


class PositionType(_Completed):
    """The type of a position: earliest, latest, an offset or a time."""

    name = "position"
    complete = staticmethod(complete_positions)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> "Position":
        """Return a position for PullConsumer.seek."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        if value == "earliest":
            return "earliest"
        if value == "latest":
            return "latest"
        offset = value.removeprefix(_OFFSET_PREFIX)
        if offset.isascii() and offset.isdigit():
            is_day = offset == value and len(value) == DIGITS_OF_DAY
            if is_day and parse_time(value, datetime.now()) is not None:
                day = f"{value[:4]}-{value[4:6]}-{value[6:]}"
                self.fail(
                    f"{value} is ambiguous: write {day} for the day, or {_OFFSET_PREFIX}{value} "
                    "for the offset",
                    param,
                    ctx,
                )
            return int(offset)
        time = parse_time(value, datetime.now())
        if time is None:
            self.fail(
                f"{value!r} is not a position: use earliest, latest, an offset such as 42, a "
                "time such as 2024-05-01T12:00, 12:30 or @1700000000000 (ms), or how long ago: "
                "-30m, -2h, -1d",
                param,
                ctx,
            )
        return time.astimezone()


class DurationType(click.ParamType[Any]):
    """The type of a duration, such as "30s" or "1h30m", in milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        if not _DURATION.fullmatch(value):
            self.fail(
                f"{value!r} is not a duration: write 500ms, 30s, 10m, 2h, 1d or 1h30m", param, ctx
            )
        parts = (float(number) * _AGO_UNITS[unit] for number, unit in _DURATION_PART.findall(value))
        return round(sum(parts, timedelta()) / timedelta(milliseconds=1))


class TimeType(click.ParamType[Any]):
    """The type of a point in time, in milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds since 1970."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        time = parse_time(value, datetime.now())
        if time is None:
            self.fail(
                f"{value!r} is not a time: write 2030-05-01T12:00, 12:30 (today) or "
                "@1700000000000 (ms)",
                param,
                ctx,
            )
        return round(time.timestamp() * 1000)


class QueueType(_Completed):
    """The type of a queue: its id, or BROKER:ID."""

    name = "queue"
    complete = staticmethod(complete_queues)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str | None, int]:
        """Return the broker name, None for any, and the queue id."""
        if isinstance(value, tuple):
            return value
        match = _QUEUE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a queue: write its id, or BROKER:ID", param, ctx)
        return match["broker"], int(match["id"])


def check_readable(queues: "Sequence[MessageQueue]", topic: str) -> None:
    """Raise ValueError if a topic has no readable queue."""
    if not queues:
        raise ValueError(
            f"no queue of topic {topic!r} is readable: its permission is write-only, or none; "
            f"`rockhopper topic create {topic} --perm rw` makes it readable again"
        )


def select_queues(
    queues: "Sequence[MessageQueue]", wanted: Sequence[tuple[str | None, int]], topic: str
) -> "list[MessageQueue]":
    """Return the wanted `queues`; all if none is named. Raises ValueError."""
    if not wanted:
        return list(queues)
    chosen: list[MessageQueue] = []
    for broker, queue_id in wanted:
        found = [
            queue
            for queue in queues
            if queue.queue_id == queue_id and broker in (None, queue.broker_name)
        ]
        if not found:
            name = f"{broker}:{queue_id}" if broker else str(queue_id)
            have = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues) or "none"
            raise ValueError(f"the topic {topic!r} has no queue {name}; it has: {have}")
        chosen += [queue for queue in found if queue not in chosen]
    return chosen


class _NameType(_Completed):
    def __init__(self, name: str, mistake: Callable[[str], str | None], complete: Complete) -> None:
        self.name = name
        self._mistake = mistake
        self.complete = complete

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or end the program with exit code 2."""
        if reason := self._mistake(value):
            raise click.UsageError(reason, ctx)
        return str(value)


TOPIC = _NameType("topic", topic_error, complete_topics)
GROUP = _NameType("group", group_error, complete_groups)
