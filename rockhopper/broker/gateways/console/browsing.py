"""Browsing a topic's messages page by page: newest first, or forward from a position.

A page is merged from all queues by store time. The next page begins at an offset for each queue, in
the order of the queues. The link to the next page contains these offsets, so the server stores
nothing.

    queue 0 ends at 40, queue 1 at 30; the newest 25 messages are 15 of queue 0 and 10 of queue 1
    the link to the next page contains 25-20
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import NamedTuple

from rockhopper.broker.gateways.console.bodies import preview
from rockhopper.client.admin.topic_stats import QueueFigures
from rockhopper.client.consuming.pulling import GroupPuller
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.tasks import gather_some_at_a_time

PAGE_SIZE = 25
QUEUES_READ_MAX = 32
READ_COUNT_MIN = 4
READ_BYTES_MAX = 32 << 20
_SEPARATOR = "-"


class MessageLine(NamedTuple):
    """A message in a list, without its body."""

    queue: MessageQueue
    offset: int
    message_id: str
    store_time_ms: int
    tags: str
    keys: Sequence[str]
    size_bytes: int
    preview: str
    properties: Mapping[str, str]


def line(message: ReceivedMessage) -> MessageLine:
    """Return a message as a line of a list."""
    stored = message.stored
    return MessageLine(
        message.queue,
        message.queue_offset,
        stored.message_id,
        stored.store_time_ms,
        stored.tags or "",
        stored.keys,
        message.size_bytes,
        preview(stored),
        stored.properties,
    )


@dataclass
class Listed:
    """A page of messages."""

    lines: list[MessageLine]
    places: str = ""
    """The positions of the next page; blank if there is none."""
    left_out: str = ""
    """A note on messages that are missing from the page."""


def read_places(text: str, count: int) -> list[int] | None:
    """Parse an offset for each of *count* queues; return None if *text* is invalid."""
    parts = text.split(_SEPARATOR) if text else []
    if len(parts) != count or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return [min(int(part), 1 << 62) for part in parts]


@dataclass
class _QueuePart:
    """One queue's part of a page: the lines that were read, and the range that was not."""

    queue: MessageQueue
    start: int
    end: int
    lines: list[MessageLine] = field(default_factory=list)

    def advance(self, count: int, *, is_back: bool) -> tuple[int, int]:
        """Take the range of the next *count* messages, from the end if *is_back*."""
        if is_back:
            begin, end = max(self.start, self.end - count), self.end
            self.end = begin
        else:
            begin, end = self.start, min(self.start + count, self.end)
            self.start = end
        return begin, end


class Browser:
    """Reads pages of a topic."""

    def __init__(self, puller: GroupPuller, queues: Sequence[QueueFigures]) -> None:
        """*queues* are the topic's readable queues in order."""
        self._puller = puller
        self._queues = queues
        self._bytes_left = READ_BYTES_MAX
        self._is_short = False

    async def back_from(self, places: Sequence[int] | None) -> Listed:
        """Return the newest messages before *places*, newest first.

        Without places, return the newest of all.
        """
        ends = places or [each.max_offset for each in self._queues]
        ends = [
            min(max(end, each.min_offset), each.max_offset)
            for end, each in zip(ends, self._queues, strict=True)
        ]
        chosen = self._busiest(ends)
        lines = await self._page(
            [
                _QueuePart(each.queue, max(each.min_offset, end - PAGE_SIZE), end)
                for each, end in chosen
            ],
            is_back=True,
        )
        lowest: dict[MessageQueue, int] = {}
        for each in lines:
            lowest[each.queue] = min(lowest.get(each.queue, each.offset), each.offset)
        next_ends = [
            lowest.get(each.queue, end) for each, end in zip(self._queues, ends, strict=True)
        ]
        is_more = any(
            end > each.min_offset for end, each in zip(next_ends, self._queues, strict=True)
        )
        return self._list(lines, next_ends if is_more and lines else None)

    async def on_from(self, places: Sequence[int]) -> Listed:
        """Return the oldest messages from *places* on."""
        starts = [
            min(max(start, each.min_offset), each.max_offset)
            for start, each in zip(places, self._queues, strict=True)
        ]
        chosen = [
            (each, start)
            for each, start in zip(self._queues, starts, strict=True)
            if start < each.max_offset
        ]
        self._is_short = len(chosen) > QUEUES_READ_MAX
        lines = await self._page(
            [
                _QueuePart(each.queue, start, min(start + PAGE_SIZE, each.max_offset))
                for each, start in chosen[:QUEUES_READ_MAX]
            ],
            is_back=False,
        )
        highest = {each.queue: each.offset + 1 for each in lines}
        next_starts = [
            highest.get(each.queue, start) for each, start in zip(self._queues, starts, strict=True)
        ]
        is_more = any(
            start < each.max_offset for start, each in zip(next_starts, self._queues, strict=True)
        )
        return self._list(lines, next_starts if is_more and lines else None)

    def _busiest(self, ends: Sequence[int]) -> list[tuple[QueueFigures, int]]:
        chosen = [
            (each, end)
            for each, end in zip(self._queues, ends, strict=True)
            if end > each.min_offset
        ]
        self._is_short = len(chosen) > QUEUES_READ_MAX
        chosen.sort(key=lambda pair: -pair[0].newest_ms)
        return chosen[:QUEUES_READ_MAX]

    def _list(self, lines: list[MessageLine], places: Sequence[int] | None) -> Listed:
        left_out = ""
        if self._bytes_left <= 0:
            left_out = "The messages are so large that only a part of this page was read."
        elif self._is_short:
            left_out = (
                f"The topic has more than {QUEUES_READ_MAX} queues: this page is of those "
                "that were written last."
            )
        text = "" if places is None else _SEPARATOR.join(map(str, places))
        return Listed(lines, text, left_out)

    async def _page(self, parts: Sequence[_QueuePart], *, is_back: bool) -> list[MessageLine]:
        """Return the first messages of all *parts* by time, reading little more than is shown."""
        count = max(-(-PAGE_SIZE // max(len(parts), 1)), READ_COUNT_MIN)

        def read_more(part: _QueuePart) -> Awaitable[list[MessageLine]]:
            return self._read(part.queue, *part.advance(count, is_back=is_back))

        lines: list[MessageLine] = []
        short = parts
        while short and self._bytes_left > 0:
            found = await gather_some_at_a_time(read_more, short)
            for part, more in zip(short, found, strict=True):
                part.lines += more[::-1] if is_back else more
            streams = [each.lines for each in parts]
            merged = merge(*streams, key=lambda each: each.store_time_ms, reverse=is_back)
            lines = list(islice(merged, PAGE_SIZE))
            shown = Counter(each.queue for each in lines)
            # If everything read of a queue is shown, its next messages may belong to the page too.
            short = [
                each
                for each in parts
                if each.start < each.end and shown[each.queue] == len(each.lines)
            ]
        return lines

    async def _read(self, queue: MessageQueue, start: int, end: int) -> list[MessageLine]:
        """Return the messages of a part of a queue, up to the page's size limit."""
        found: list[MessageLine] = []
        while start < end and self._bytes_left > 0:
            result = await self._puller.pull(queue, start, end - start)
            if not result.messages and result.next_offset <= start:
                break
            start = result.next_offset
            taken = [each for each in result.messages if each.queue_offset < end]
            self._bytes_left -= sum(each.size_bytes for each in taken)
            found += await asyncio.to_thread(_lines, taken)
        return found


def _lines(messages: Sequence[ReceivedMessage]) -> list[MessageLine]:
    return [line(each) for each in messages]
