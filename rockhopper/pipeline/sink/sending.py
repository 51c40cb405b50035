"""Send at least once: batches of messages, sent like a producer sends them.

Messages for one topic (and one queue, if the row names it) share a request. A message with a delay,
or with a body large enough to be compressed, is sent alone. So are messages with their own born
time, because a batch has only one.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rockhopper.client.errors import RequestRefusedError
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.queues import MessageQueue
from rockhopper.client.sending.outgoing import OutgoingMessage
from rockhopper.client.sending.queue_choice import choose_queue_for_key
from rockhopper.client.sending.unique_id import make_unique_ids
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.remote import connect, result
from rockhopper.pipeline.sink.bad_rows import BadRows, Sieve
from rockhopper.pipeline.sink.encoding import Messages, pieces
from rockhopper.pipeline.sink.rules import SinkRules
from rockhopper.pipeline.sink.staging import (
    OVERHEAD_BYTES,
    NoSuchQueue,
    check_refusal,
    no_such_queue,
    writable,
)
from rockhopper.protocol.compression import compress_zlib
from rockhopper.protocol.sys_flags import SYS_FLAG_COMPRESSED_ZLIB

_Rows = list[int] | range
_REQUESTS_AT_A_TIME = 8
_SINGLES_AT_A_TIME = 64


@dataclass
class _SendRequest:
    message: OutgoingMessage
    """One message, or a batch of messages."""
    queue: MessageQueue | None
    size_bytes: int
    messages: Messages
    rows: _Rows
    """The rows that it sends."""
    singly: list["_SendRequest"] | None = field(default=None, repr=False)
    """The remaining single requests that replace this one, after a broker refused it."""


@dataclass
class _InFlightSend:
    answer: Future[None]
    requests: list[_SendRequest]
    """The requests that are not known to be stored."""
    what: str


class RowSender:
    """Sends the rows of one task."""

    def __init__(self, rules: SinkRules) -> None:
        self._rules = rules
        self._remote = connect(rules.nameserver, timeout_s=rules.timeout_s, access=rules.access)
        self._sender = self._remote.sender(rules.group)
        self._ids = make_unique_ids()
        self._sieve = Sieve(rules, self._make_ids)
        self._routes: dict[str, TopicRoute] = {}
        self._turn = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Send all rows and return the number of messages. Raises PipelineError."""
        count = 0
        under_way: _InFlightSend | None = None
        for batch in batches:
            for messages in self._sieve.messages(batch):
                requests = self._requests(messages)
                # The next rows are encoded while these requests are sent.
                self._finish(under_way)
                under_way = self._begin(requests) if requests else None
            count += batch.num_rows
        self._finish(under_way)
        return count if self._rules.dead_letter_topic else count - self.bad.count

    @property
    def bad(self) -> BadRows:
        """The rows that could not be sent."""
        return self._sieve.bad

    def _make_ids(self, count: int) -> list[str]:
        make = self._ids.next
        return [make() for _ in range(count)]

    def _begin(self, requests: list[_SendRequest]) -> _InFlightSend:
        largest = max(requests, key=lambda request: request.size_bytes)
        topic = largest.message.topic
        what = (
            f"messages could not be sent to {self._rules.nameserver}; the largest request of them "
            f"has {largest.size_bytes} bytes for the topic {topic!r}"
        )
        return _InFlightSend(self._remote.submit(self._send(requests)), requests, what)

    def _finish(self, under_way: _InFlightSend | None) -> None:
        if under_way is None:
            return
        first = [under_way.answer]

        def attempt() -> None:
            left = under_way.requests
            result(first.pop() if first else self._remote.submit(self._send(left)))

        try:
            self._rules.patience(under_way.what, attempt)
        except PipelineError as error:
            check_refusal(under_way.what, error)
            raise

    async def _send(self, requests: list[_SendRequest]) -> None:
        """Send the remaining *requests*; in any case remove those that were sent."""
        if not requests:
            return
        limit = asyncio.Semaphore(
            _REQUESTS_AT_A_TIME if requests[0].message.is_batch else _SINGLES_AT_A_TIME
        )
        by_queue: dict[object, list[_SendRequest]] = defaultdict(list)
        for request in requests:
            by_queue[request.queue or id(request)].append(request)
        done: set[int] = set()

        async def send_in_order(row: list[_SendRequest]) -> None:
            for request in row:
                async with limit:
                    await self._deliver(request)
                done.add(id(request))

        tasks = [asyncio.ensure_future(send_in_order(row)) for row in by_queue.values()]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            requests[:] = [request for request in requests if id(request) not in done]

    async def _deliver(self, request: _SendRequest) -> None:
        """Send one request; if a broker calls it illegal, set aside only the illegal rows."""
        if request.singly is None:
            try:
                await self._sender.send(request.message, [request.message], request.queue)
            except RequestRefusedError as error:
                refusal = self._sieve.refusal(error)
                if refusal is None:
                    raise
                request.singly = self._again(request, refusal)
        while request.singly:
            await self._deliver(request.singly[0])
            del request.singly[0]

    def _again(self, request: _SendRequest, refusal: RequestRefusedError) -> list[_SendRequest]:
        """Return the requests that replace a refused one."""
        messages = request.messages
        if request.message.is_batch:
            return [self._single(messages, row, request.queue) for row in request.rows]
        letter = self._sieve.refuse(messages, request.rows[0], str(refusal))
        return [] if letter is None else [self._single(letter, 0, None)]

    def _requests(self, messages: Messages) -> list[_SendRequest]:
        found: list[_SendRequest] = []
        problems: dict[int, str] = {}
        for (_, queue), rows in self._groups(messages, problems).items():
            found += self._requests_of(messages, rows, queue)
        for row, problem in problems.items():
            letter = self._sieve.refuse(messages, row, problem, "queueId")
            if letter is not None:
                found.append(self._single(letter, 0, None))
        return found

    def _groups(
        self, messages: Messages, problems: dict[int, str]
    ) -> dict[tuple[str, MessageQueue | None], _Rows]:
        """Group rows by topic and queue, in order; rows to set aside go to *problems* instead."""
        chosen = (messages.queue_ids, messages.broker_names, messages.sharding_keys)
        if self._rules.topic and all(each is None for each in chosen):
            return {(messages.topics[0], None): range(len(messages))}
        groups: dict[tuple[str, MessageQueue | None], list[int]] = defaultdict(list)
        for row, topic in enumerate(messages.topics):
            try:
                groups[topic, self._queue(messages, row)].append(row)
            except NoSuchQueue as error:
                if not self._rules.sets_bad_rows_aside:
                    raise
                problems[row] = error.sentence
        return dict(groups)

    def _queue(self, messages: Messages, row: int) -> MessageQueue | None:
        topic = messages.topics[row]
        key, number, broker = messages.target(row)
        if key is None and number is None and broker is None:
            return None
        route = self._route(topic)
        if key is not None:
            return choose_queue_for_key(route, key)
        fitting = [
            queue
            for queue in route.write_queues
            if broker in (None, queue.broker_name) and number in (None, queue.queue_id)
        ]
        if not fitting:
            known = ", ".join(f"{q.broker_name}/{q.queue_id}" for q in route.write_queues)
            raise NoSuchQueue(no_such_queue(topic, broker, number, known))
        self._turn += 1
        return fitting[self._turn % len(fitting)]

    def _route(self, topic: str) -> TopicRoute:
        route = self._routes.get(topic)
        if route is None:
            found = self._rules.patience(
                f"cannot query the queues of {topic!r}", lambda: self._remote.route(topic)
            )
            writable(found, topic)
            assert found is not None
            route = self._routes[topic] = found
        return route

    def _requests_of(
        self, messages: Messages, rows: _Rows, queue: MessageQueue | None
    ) -> list[_SendRequest]:
        alone = self._alone(messages, rows)
        if alone is None:
            return self._batches(messages, rows, queue)
        together: list[int] = []
        found: list[_SendRequest] = []
        for row in rows:
            if alone[row]:
                if queue is not None and together:  # keep the order within the queue
                    found += self._batches(messages, together, queue)
                    together = []
                found.append(self._single(messages, row, queue))
            else:
                together.append(row)
        if together:
            found += self._batches(messages, together, queue)
        return found

    def _alone(self, messages: Messages, rows: _Rows) -> Any:
        """Return a mask of the messages that cannot share a request; None if all can."""
        if messages.has_born or messages.topics[rows[0]].startswith("%"):
            return np.ones(len(messages), bool)
        over = self._rules.compress_over
        alone = messages.is_delayed
        if over is not None:
            is_large = pc.greater(pc.binary_length(messages.body_bytes), over)
            large = is_large.to_numpy(zero_copy_only=False)
            alone = large if alone is None else alone | large
        return alone if alone is not None and alone.any() else None

    def _batches(
        self, messages: Messages, rows: _Rows, queue: MessageQueue | None
    ) -> list[_SendRequest]:
        is_all = isinstance(rows, range)
        sizes = messages.sizes if is_all else messages.sizes[rows]
        found = []
        for start, end in pieces(sizes, self._rules.batch_bytes, OVERHEAD_BYTES):
            if end - start == 1:
                outgoing = _outgoing(messages, rows[start])
            else:
                chosen = slice(start, end) if is_all else np.array(rows[start:end])
                outgoing = self._whole(messages, rows[start], messages.batch(chosen))
            size_bytes = int(sizes[start:end].sum())
            found.append(_SendRequest(outgoing, queue, size_bytes, messages, rows[start:end]))
        return found

    def _whole(self, messages: Messages, first: int, body: bytes) -> OutgoingMessage:
        unique_key = self._ids.next()
        return OutgoingMessage(
            messages.topics[first],
            body,
            f"UNIQ_KEY\x01{unique_key}\x02WAIT\x01true\x02",
            unique_key,
            messages.born_ms[first],
            is_batch=True,
        )

    def _single(self, messages: Messages, row: int, queue: MessageQueue | None) -> _SendRequest:
        outgoing = _outgoing(messages, row)
        body = outgoing.body
        over = self._rules.compress_over
        if over is not None and len(body) > over:
            body = compress_zlib(body)
            if len(body) < len(outgoing.body):
                outgoing = OutgoingMessage(
                    outgoing.topic,
                    body,
                    outgoing.properties,
                    outgoing.message_id,
                    outgoing.born_time_ms,
                    outgoing.flag,
                    SYS_FLAG_COMPRESSED_ZLIB,
                )
        return _SendRequest(outgoing, queue, len(outgoing.body), messages, [row])


def _outgoing(messages: Messages, row: int) -> OutgoingMessage:
    return OutgoingMessage(
        messages.topics[row],
        messages.bodies[row],
        messages.properties[row],
        "",
        messages.born_ms[row],
        messages.flags[row],
    )
