"""Prefetches the messages of one queue by long polling."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from rockhopper.client.consuming.pulling import PullResult, PullSource, Space
from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientError,
    ClientStateError,
    RequestRefusedError,
    RequestTimeoutError,
)
from rockhopper.client.network.outages import Outages
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.codes import ResponseCode
from rockhopper.tasks import end_tasks, run_in_background

log = logging.getLogger(__name__)

_COUNT_AHEAD_MAX = 128
_BYTES_AHEAD_MAX = 8 * 1024 * 1024
_HOLD_MIN_S = 0.1
_REFUSED_PAUSE_S = 1.0
# Temporary refusals: the broker is busy, starting, stopping or overloaded.
_PASSING_CODES = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY, 215}
)


class QueueReader:
    """The position in one queue and the messages prefetched from it.

    Nothing is fetched before `start`. During an outage the reader retries and logs now and then.
    Any other error stops the reading and is stored in `failure` until `take_failure` restarts it: a
    deleted topic may be created again.
    """

    def __init__(
        self,
        queue: MessageQueue,
        offset: int,
        source: PullSource,
        on_progress: "Callable[[QueueReader], None]",
        outages: Outages,
        *,
        batch_size: int = 32,
        poll_s: float = 15.0,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.queue = queue
        self.failure: ClientError | None = None
        self._fetch_offset = offset
        self._source = source
        self._on_progress = on_progress
        self._outages = outages
        self._batch_size = batch_size
        self._poll_s = poll_s
        self._pause = pause
        self._ahead: deque[ReceivedMessage] = deque()
        self._bytes_ahead = 0
        self._room = asyncio.Event()
        self._room.set()
        self.task: asyncio.Task[None] | None = None

    @property
    def position(self) -> int:
        """The offset of the next message to deliver."""
        return self._ahead[0].queue_offset if self._ahead else self._fetch_offset

    @property
    def has_message(self) -> bool:
        """Whether `take` can return a message."""
        return bool(self._ahead)

    def take(self) -> ReceivedMessage:
        """Return the next message and remove it from the prefetched ones."""
        message = self._ahead.popleft()
        self._bytes_ahead -= message.size_bytes
        if not self._room.is_set() and self._has_room():
            self._room.set()
        return message

    def put_back(self, message: ReceivedMessage) -> None:
        """Make the message that was taken last the next one again."""
        self._ahead.appendleft(message)
        self._bytes_ahead += message.size_bytes

    def start(self) -> None:
        """Start prefetching, unless it has started."""
        if self.task is None:
            self._begin()

    def _begin(self, delay_s: float = 0.0) -> None:
        self.task = run_in_background(
            self._run(delay_s), f"reading {self.queue}", on_failure=self._ended_by
        )

    def take_failure(self) -> ClientError | None:
        """Return the error that stopped the reading, once, and restart it after a second."""
        failure, self.failure = self.failure, None
        if failure is not None and self.task is not None:
            self.task = None
            self._begin(_REFUSED_PAUSE_S)
        return failure

    def stop(self) -> Awaitable[object]:
        """Stop prefetching; the result can be awaited.

        Prefetched messages stay until they are taken.
        """
        task, self.task = self.task, None
        return end_tasks([task])

    async def seek(self, offset: int) -> None:
        """Continue at `offset` and drop the prefetched messages."""
        was_reading = self.task is not None
        await self.stop()
        self._ahead.clear()
        self._bytes_ahead = 0
        self._room.set()
        self._fetch_offset = offset
        self.failure = None
        if was_reading:
            self.start()

    def _ended_by(self, error: BaseException) -> None:
        self.failure = ClientStateError(f"reading {self.queue} has stopped: {error!r}")
        self._on_progress(self)

    @property
    def _space(self) -> Space:
        return Space(_COUNT_AHEAD_MAX - len(self._ahead), _BYTES_AHEAD_MAX - self._bytes_ahead)

    def _has_room(self) -> bool:
        return len(self._ahead) < _COUNT_AHEAD_MAX and self._bytes_ahead < _BYTES_AHEAD_MAX

    async def _run(self, delay_s: float) -> None:
        if delay_s:
            await self._pause(delay_s)
        outages, offset = 0, self._fetch_offset
        loop = asyncio.get_running_loop()

        def accept(asked: int, result: PullResult) -> bool:
            nonlocal outages, offset
            offset = asked
            was_out = outages > 0
            if was_out:
                name = self.queue.broker_name
                self._outages.warn(log, f"{name} again", "reading from %s has resumed", name)
                outages = 0
            self._accept(result)
            return not was_out and self._fetch_offset != offset and self._has_room()

        while True:
            await self._room.wait()
            asked_at = loop.time()
            offset = self._fetch_offset
            # After an outage do not wait: an immediate answer shows that the outage is over.
            wait_s = 0.0 if outages else self._poll_s
            try:
                await self._source.follow(
                    self.queue, offset, self._batch_size, wait_s, self._space, accept
                )
            except ClientError as error:
                if not _will_pass(error):
                    self.failure = error
                    self._on_progress(self)
                    return
                name = self.queue.broker_name
                text = "reading from %s is interrupted: %s"
                self._outages.warn(log, error.address or name, text, name, error)
                outages += 1
                await self._pause(min(0.05 * 2 ** min(outages, 10), 2.0))
                continue
            if self._fetch_offset == offset and loop.time() - asked_at < _HOLD_MIN_S:
                # Do not poll in a tight loop a broker that does not hold the request.
                await self._pause(_HOLD_MIN_S)

    def _accept(self, result: PullResult) -> None:
        if result.has_moved:
            log.warning(
                "%s no longer has offset %d (it holds %d to %d): continuing at %d",
                self.queue,
                self._fetch_offset,
                result.min_offset,
                result.max_offset,
                result.next_offset,
            )
        self._fetch_offset = result.next_offset
        if not result.messages:
            return
        self._ahead.extend(result.messages)
        self._bytes_ahead += sum(message.size_bytes for message in result.messages)
        if not self._has_room():
            self._room.clear()
        self._on_progress(self)


def _will_pass(error: ClientError) -> bool:
    if isinstance(error, RequestRefusedError):
        return error.code in _PASSING_CODES
    return isinstance(error, BrokerUnreachableError | RequestTimeoutError)
