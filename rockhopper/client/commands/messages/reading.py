"""Reads parts of queues: several at once in the order of storing, or backwards from the end."""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rockhopper.tasks import start_task

if TYPE_CHECKING:
    from rockhopper.client.consuming.pulling import PullResult
    from rockhopper.client.pull_consumer import PullConsumer
    from rockhopper.client.queues import MessageQueue
    from rockhopper.client.received import ReceivedMessage

_BATCH = 32
_BACK_MIN = 256
_BACK_MAX = 65_536
_QUEUES_AT_ONCE = 16


_Place = tuple[int, str, int, int]


@dataclass(frozen=True)
class OffsetSpan:
    """A part of a queue: offsets from `start` up to but not including `end`."""

    queue: "MessageQueue"
    start: int
    end: int


def _place(message: "ReceivedMessage") -> _Place:
    """Return a sort key: within a millisecond, the broker's log gives the order.

    The messages of a batch may share a record of the log.
    """
    log_offset = message.stored.commit_log_offset
    return message.store_time_ms, message.queue.broker_name, log_offset, message.queue_offset


async def read_in_order(
    consumer: "PullConsumer", spans: Sequence[OffsetSpan]
) -> "AsyncGenerator[ReceivedMessage]":
    """Yield the messages of several queues in the order in which they were stored."""
    streams = [read(consumer, span) for span in spans]
    heads: list[tuple[_Place, int, ReceivedMessage]] = []
    try:
        firsts = await asyncio.gather(*(anext(stream, None) for stream in streams))
        for index, message in enumerate(firsts):
            if message is not None:
                heads.append((_place(message), index, message))
        heapq.heapify(heads)
        while heads:
            _, index, message = heads[0]
            yield message
            following = await anext(streams[index], None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (_place(following), index, following))
    finally:
        for stream in streams:
            await stream.aclose()


async def follow_after(
    there: "AsyncGenerator[ReceivedMessage]", consumer: "PullConsumer", spans: Sequence[OffsetSpan]
) -> "AsyncGenerator[ReceivedMessage]":
    """Yield the messages of *there*, then those behind the spans as they arrive."""
    async with aclosing(there) as messages:
        async for message in messages:
            yield message
    for span in spans:
        if span.start < span.end:
            await consumer.seek(span.queue, span.end)
    async for message in consumer:
        yield message


async def read(consumer: "PullConsumer", span: OffsetSpan) -> "AsyncGenerator[ReceivedMessage]":
    """Yield the messages of a queue, with the next request sent in advance."""
    request: asyncio.Task[PullResult] | None = None
    queue, offset, end = span.queue, span.start, span.end
    if offset < end:
        request = start_task(consumer.pull_from(queue, offset, _BATCH))
    try:
        while request is not None:
            result = await request
            request = None
            # No progress means that the end of the queue has been deleted since.
            if offset < result.next_offset < end:
                offset = result.next_offset
                request = start_task(consumer.pull_from(queue, offset, _BATCH))
            for message in result.messages:
                if message.queue_offset >= end:
                    return
                yield message
    finally:
        if request is not None:
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)


async def read_newest(
    consumer: "PullConsumer",
    spans: Sequence[OffsetSpan],
    count: int,
    wanted: "Callable[[ReceivedMessage], bool]",
) -> "list[ReceivedMessage]":
    """Return the newest messages of `spans` that are wanted, oldest first.

    Each queue is read backwards in growing steps until enough messages are found.
    """
    slots = asyncio.Semaphore(_QUEUES_AT_ONCE)

    async def of_queue(span: OffsetSpan) -> "list[ReceivedMessage]":
        found: list[ReceivedMessage] = []
        end, step = span.end, max(count, _BACK_MIN) if count > _BATCH else count
        async with slots:
            while end > span.start and len(found) < count:
                begin = max(end - step, span.start)
                part = [each async for each in read(consumer, OffsetSpan(span.queue, begin, end))]
                found = [each for each in part if wanted(each)] + found
                end, step = begin, min(max(2 * step, _BACK_MIN), _BACK_MAX)
        return found[-count:]

    queues = await asyncio.gather(*(of_queue(span) for span in spans))
    everything = sorted(
        (each for found in queues for each in found),
        key=_place,
    )
    return everything[-count:]
