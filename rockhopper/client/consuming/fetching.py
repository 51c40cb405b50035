"""Fills a process queue by long polling; retries after every error."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from rockhopper.client.consuming.process_queue import ProcessQueue
from rockhopper.client.consuming.pulling import PullResult, PullSource
from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.errors import ClientError, RequestRefusedError
from rockhopper.client.network.outages import Outages
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.properties import PROPERTY_RETRY_TOPIC

log = logging.getLogger(__name__)

_HOLD_MIN_S = 0.1
_OUTAGE_PAUSE_MAX_S = 0.5
_REFUSED_PAUSE_S = 1.0
_HELD_S = 0.5
"""A pull refused after this time was held by the broker, so it had been allowed."""
REFUSED_FOR_GOOD_S = 30.0
"""How long refusals of a readable queue are tolerated: permissions change in steps."""
# Permanent refusals: waiting does not help, so the application must be notified.
_LASTING_CODES = frozenset(
    {
        int(ResponseCode.NO_PERMISSION),
        int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        int(ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    }
)
# The broker does not know this member or the topic: it restarted, or the route is outdated.
_STRANGER_CODES = frozenset(
    {
        int(ResponseCode.SUBSCRIPTION_NOT_EXIST),
        int(ResponseCode.SUBSCRIPTION_NOT_LATEST),
        int(ResponseCode.TOPIC_NOT_EXIST),
    }
)


class FetchListener(Protocol):
    """Receives the events of fetching."""

    def fetched(self, held: ProcessQueue) -> None:
        """Handle newly fetched messages."""

    def moved(self, held: ProcessQueue) -> None:
        """Handle a new offset: the broker moved the reader, which continues there."""

    def refused(self, held: ProcessQueue, error: RequestRefusedError) -> None:
        """Handle a permanent refusal."""

    def unknown(self, held: ProcessQueue) -> None:
        """Handle a broker that does not know this consumer or the topic."""


class Fetcher:
    """Prefetches the queues of one consumer."""

    def __init__(
        self,
        source: PullSource,
        settings: ConsumerSettings,
        listener: FetchListener,
        outages: Outages,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._settings = settings
        self._listener = listener
        self._outages = outages
        self._pause = pause
        self._now_s = now_s
        self._retry_topic = settings.retry_topic
        self.has_read = False
        """Whether a pull of this consumer has ever succeeded."""
        self._interrupted: dict[str, set[MessageQueue]] = {}
        # When the current series of permanent refusals of a queue began.
        self._refused_since_s: dict[MessageQueue, float] = {}

    async def run(self, held: ProcessQueue) -> None:
        """Fetch until cancelled."""
        loop = asyncio.get_running_loop()
        failures, offset = 0, held.fetch_offset

        def accept(asked: int, result: PullResult) -> bool:
            nonlocal failures, offset
            offset = asked
            was_failing = failures > 0
            if was_failing:
                failures = 0
                self._recovered(held.queue)
            self._accept(held, offset, result)
            if (
                was_failing
                or held.is_dropped
                or not offset != held.fetch_offset == result.next_offset
            ):
                return False
            return held.is_fetchable

        try:
            while not held.is_dropped:
                if not held.is_fetchable:
                    await held.wait_fetchable()
                offset = held.fetch_offset
                asked_at, asked_s = loop.time(), self._now_s()
                # After an outage do not wait: an immediate answer shows that the outage is over.
                wait_s = 0.0 if failures else self._settings.poll_s
                try:
                    batch_size, space = self._settings.batch_size, held.room.space
                    await self._source.follow(held.queue, offset, batch_size, wait_s, space, accept)
                except ClientError as error:
                    failures += 1
                    await self._pause(self._failed(held, error, failures, asked_s))
                    continue
                if held.fetch_offset == offset and loop.time() - asked_at < _HOLD_MIN_S:
                    # Do not poll in a tight loop a broker that does not hold the request.
                    await self._pause(_HOLD_MIN_S)
        finally:
            self._forget(held.queue)

    def _accept(self, held: ProcessQueue, offset: int, result: PullResult) -> None:
        self.has_read = True
        if held.is_dropped or held.fetch_offset != offset:
            return
        held.last_fetch_ms = time.time_ns() // 1_000_000
        if result.has_moved:
            why = f"the queue holds {result.min_offset} to {result.max_offset}"
            log.log(
                logging.DEBUG if offset == result.next_offset else logging.WARNING,
                "%s: the broker moved this group from offset %d to %d (%s)",
                held.queue,
                offset,
                result.next_offset,
                "the log was cut before it" if result.is_cut else why,
            )
            held.reset(result.next_offset)
            self._listener.moved(held)
            return
        if held.queue.topic == self._retry_topic:
            _restore_topics(result.messages)
        held.append_messages(result.messages, result.next_offset)
        if result.messages:
            self._listener.fetched(held)

    def _failed(
        self, held: ProcessQueue, error: ClientError, failures: int, asked_s: float
    ) -> float:
        """Record a failure; return the pause before the next try."""
        interrupted = self._interrupted.setdefault(held.queue.broker_name, set())
        key = error.address or held.queue.broker_name
        text = "reading from %s is interrupted: %s"
        self._outages.warn(log, key, text, held.queue.broker_name, error)
        interrupted.add(held.queue)
        if isinstance(error, RequestRefusedError):
            if error.code in _LASTING_CODES:
                if self._is_for_good(held, asked_s):
                    self._listener.refused(held, error)
                return _REFUSED_PAUSE_S
            if error.code in _STRANGER_CODES or error.is_route_outdated:
                self._listener.unknown(held)
        return float(min(0.025 * 2 ** min(failures, 8), _OUTAGE_PAUSE_MAX_S))

    def _is_for_good(self, held: ProcessQueue, asked_s: float) -> bool:
        now_s = self._now_s()
        was_allowed = held.last_fetch_ms != 0 or now_s - asked_s >= _HELD_S
        if not was_allowed and held.queue not in self._refused_since_s:
            return True
        return now_s - self._refused_since_s.setdefault(held.queue, now_s) >= REFUSED_FOR_GOOD_S

    def _recovered(self, queue: MessageQueue) -> None:
        self._refused_since_s.pop(queue, None)
        interrupted = self._interrupted.get(queue.broker_name)
        if interrupted is not None:
            interrupted.discard(queue)
            if not interrupted:
                del self._interrupted[queue.broker_name]
                self._outages.over()
                log.warning("reading from %s has resumed", queue.broker_name)

    def _forget(self, queue: MessageQueue) -> None:
        self._refused_since_s.pop(queue, None)
        interrupted = self._interrupted.get(queue.broker_name)
        if interrupted is not None:
            interrupted.discard(queue)
            if not interrupted:
                del self._interrupted[queue.broker_name]


def _restore_topics(messages: list[ReceivedMessage]) -> None:
    """Give redelivered messages their original topic."""
    for message in messages:
        origin = message.stored.properties.get(PROPERTY_RETRY_TOPIC)
        if origin:
            message.stored.topic = origin
