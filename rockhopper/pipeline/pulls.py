"""The requests and results of pulls, and range reads with PULL_MESSAGE for Apache's brokers.

A pull returns at most 32 messages, so several pulls run concurrently.
"""

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from rockhopper.client import Admin
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.bodies.queue_ranges import QueueRead
from rockhopper.protocol.codes import PULL_ANSWERS, RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.names import TOOLS_CONSUMER_GROUP
from rockhopper.protocol.requests import (
    PullMessageRequest,
    PullMessageResponse,
    decode_fields,
    encode_fields,
)
from rockhopper.protocol.sys_flags import PULL_FLAG_SUBSCRIPTION

PULL_COUNT = 32
PULLS_AT_A_TIME = 16


class BulkRead(NamedTuple):
    """Consecutive stored records, the offset to continue at, and the queue's range at that time."""

    body: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    has_moved: bool
    """The queue does not hold the requested offset; ``next_offset`` is the nearest one that exists.
    """


@dataclass(frozen=True, slots=True)
class QueuePull:
    """A request for messages [offset, end) of a queue, as many as fit into one response.

    The response holds at least one message if there is any. With *topic_id*, a broker that has ids
    refuses to read a recreated topic of the same name. With a filter, the response may hold
    messages from *end* on, and its ``next_offset`` may be after them.
    """

    queue: MessageQueue
    offset: int
    end: int
    bytes_max: int = 4 << 20
    group: str = TOOLS_CONSUMER_GROUP
    expression: str = "*"
    expression_type: str = "TAG"
    topic_id: str = ""


class OrdinaryPulls:
    """Reads a range with PULL_MESSAGE, 32 messages in each request."""

    def __init__(self, admin: Admin, address: str, timeout_s: float) -> None:
        self._admin = admin
        self._address = address
        self._timeout_s = timeout_s

    async def read(self, wanted: QueuePull) -> BulkRead:
        """Read until ``bytes_max`` bytes arrive, the range ends, or no more messages exist."""
        parts: list[bytes] = []
        size_bytes = 0
        offset, end = wanted.offset, wanted.end
        last = BulkRead(b"", offset, 0, 0, False)
        while offset < end and size_bytes < wanted.bytes_max:
            starts = range(offset, min(end, offset + PULL_COUNT * PULLS_AT_A_TIME), PULL_COUNT)
            windows = [(start, min(start + PULL_COUNT, end)) for start in starts]
            answers = await asyncio.gather(
                *(self._pull(wanted, start, stop) for start, stop in windows)
            )
            for (start, stop), answer in zip(windows, answers, strict=True):
                if start != offset:
                    break  # a window before this one came short: ask again from there
                last = answer
                parts.append(answer.body)
                size_bytes += len(answer.body)
                if answer.has_moved or answer.next_offset <= start:
                    return BulkRead(b"".join(parts), *answer[1:])
                offset = answer.next_offset
                if answer.next_offset != stop:
                    break
        return BulkRead(b"".join(parts), offset, *last[2:])

    async def _pull(self, wanted: QueuePull, offset: int, end: int) -> BulkRead:
        fields = PullMessageRequest(
            consumer_group=wanted.group,
            topic=wanted.queue.topic,
            queue_id=wanted.queue.queue_id,
            queue_offset=offset,
            max_msg_nums=end - offset,
            sys_flag=PULL_FLAG_SUBSCRIPTION,
            subscription=wanted.expression,
            expression_type=wanted.expression_type,
            broker_name=wanted.queue.broker_name,
        )
        answer = await self._admin.request(
            self._address,
            RequestCode.PULL_MESSAGE,
            encode_fields(fields),
            accept=PULL_ANSWERS,
            timeout_s=self._timeout_s,
        )
        return read_answer(answer)


def make_bulk_read(read: QueueRead) -> BulkRead:
    """Convert the read of one of many queues."""
    has_moved = read.code == ResponseCode.PULL_OFFSET_MOVED
    return BulkRead(read.records, read.next_offset, read.min_offset, read.max_offset, has_moved)


def read_answer(answer: Command) -> BulkRead:
    """Convert the response of an ordinary or a bulk pull."""
    fields = decode_fields(PullMessageResponse, answer.ext)
    return BulkRead(
        answer.body,
        fields.next_begin_offset,
        fields.min_offset,
        fields.max_offset,
        answer.code == ResponseCode.PULL_OFFSET_MOVED,
    )
