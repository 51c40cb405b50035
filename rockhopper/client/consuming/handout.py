"""Delivers messages one by one, round-robin over the queues, and takes their outcomes.

A delivered message is acknowledged or redelivered. Redelivery depends on the mode:

    clustering   the message is sent back to the broker; if that fails it is delivered again here
    orderly      the message stays first in its queue, which is suspended for a while
    broadcast    the message is dropped: no other member could take it
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from rockhopper.client.consuming.face.decoding import Decoding
from rockhopper.client.consuming.face.pauses import Pauses
from rockhopper.client.consuming.process_queue import ProcessQueue
from rockhopper.client.consuming.redelivery import BY_THE_LADDER, DEAD_LETTER, Delay, Redelivery
from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.errors import ClientError
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.sending.trace import ConsumeResult, Consumption, MessageTrace
from rockhopper.tasks import end_tasks, run_in_background

log = logging.getLogger(__name__)

Delivered = tuple[ProcessQueue, ReceivedMessage]
DeliveredRun = tuple[ProcessQueue, Sequence[ReceivedMessage]]
"""Messages of one queue that were delivered together, in their order there."""


class Handout:
    """The line of messages that wait for the application."""

    def __init__(
        self,
        settings: ConsumerSettings,
        redelivery: Redelivery,
        *,
        may_hand_out: Callable[[ProcessQueue], bool] = lambda _held: True,
        on_idle: Callable[[ProcessQueue], None] = lambda _held: None,
    ) -> None:
        """`on_idle` is called with a queue when all its messages are finished."""
        self.finished = 0
        self.failed = 0
        self.trace: MessageTrace | None = None
        self.pauses = Pauses(settings.retry_topic)
        self._traced: dict[int, Consumption] = {}
        self._settings = settings
        self._redelivery = redelivery
        self._may_hand_out = may_hand_out
        self._on_idle = on_idle
        self._ready: deque[ProcessQueue] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._failure: ClientError | None = None
        self._decoding: Decoding | None = None
        if settings.deserializer is not None:
            outcomes: dict[str, Callable[[ProcessQueue, ReceivedMessage], object]] = {
                "retry": self.redeliver,
                "dead-letter": partial(self.redeliver, delay=DEAD_LETTER),
                "skip": self.acknowledge,
            }
            self._decoding = Decoding(
                settings.deserializer, settings.bad_body, outcomes[settings.bad_body]
            )
        self._is_simple = self._decoding is None and not settings.orderly
        self._outcomes: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_stopped = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop that uses this object, once known."""

    @property
    def is_stopped(self) -> bool:
        """Whether delivery has stopped."""
        return self._is_stopped

    def offer(self, held: ProcessQueue) -> None:
        """Add a queue to the line, if it has a message that can be delivered now."""
        if held.is_ready or not held.is_deliverable:
            return
        if self._settings.orderly and held.in_flight and not held.is_collected:
            return
        held.is_ready = True
        self._ready.append(held)
        self._wake(1 if self._settings.orderly else len(held.waiting))

    def fail(self, error: ClientError) -> None:
        """Make the next call of `next` raise an error."""
        self._failure = error
        self._wake(1)

    def stop(self) -> None:
        """Stop delivery; waiting callers get None."""
        self._is_stopped = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._wake(len(self._waiters))

    def stop_from_anywhere(self) -> None:
        """Stop from any thread or signal handler; takes no lock and wakes the event loop."""
        self._is_stopped = True
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self.stop)

    def next_message(self, *, collects: bool = False) -> Delivered | None:
        """Return the next message, or None if none is ready.

        In orderly mode, a caller that `collects` may take more messages of a queue it has marked as
        collected.
        """
        if not self._is_simple or self.trace is not None or self.pauses.topics:
            return self._next_checked(collects)
        return self._next_plain()

    def next_after(self, last: Delivered) -> Delivered | None:
        """Acknowledge a message; return the next one, or None if none is ready."""
        held, message = last
        if not self._is_simple or self._traced or self.trace is not None or self.pauses.topics:
            self.acknowledge(held, message)
            return self.next_message()
        self.finished += 1
        if held.finish(message) and not held.waiting:
            self._has_finished(held)
        return self._next_plain() if self._ready else None

    def _next_plain(self) -> Delivered | None:
        ready = self._ready
        while ready and not self._is_stopped:
            held = ready.popleft()
            # As `is_deliverable`: a property would be called for each message.
            if held.waiting and not (held.is_paused or held.is_suspended or held.is_dropped):
                message = held.next_message()
                if held.waiting:
                    ready.append(held)
                else:
                    held.is_ready = False
                return held, message
            held.is_ready = False
        return None

    def _next_checked(self, collects: bool) -> Delivered | None:
        """Return the next message in orderly mode, or if each is traced, decoded or compared."""
        while (held := self._next_queue(collects)) is not None:
            message = self._next_of(held)
            if message is None:
                held.is_ready = False
                continue
            if (self._settings.orderly and not collects) or not held.waiting:
                held.is_ready = False
            else:
                self._ready.append(held)
            if self.trace is not None:
                self._traced[id(message)] = self.trace.consuming(self._settings.group, [message])
            if self._decoding is None or self._decoding.accepts(held, message):
                return held, message
        return None

    def next_run(self, count_max: int) -> DeliveredRun | None:
        """Return messages of the next queue for a batch, or None if none is ready.

        The queue is marked as collected.
        """
        if self._decoding is not None or self.pauses.topics:
            delivered = self.next_message(collects=True)
            if delivered is None:
                return None
            delivered[0].is_collected = True
            return delivered[0], (delivered[1],)
        held = self._next_queue(collects=True)
        if held is None:
            return None
        run = held.next_messages(count_max)
        held.is_collected = True
        held.is_ready = bool(held.waiting)
        if held.is_ready:
            self._ready.append(held)
        if self.trace is not None:
            for message in run:
                self._traced[id(message)] = self.trace.consuming(self._settings.group, [message])
        return held, run

    def share(self, count: int) -> int:
        """Return how many of `count` messages each queue in the line may deliver."""
        return -(-count // max(len(self._ready), 1))

    async def wait_run(self, count_max: int) -> DeliveredRun | None:
        """Wait for messages for a batch; return None after `stop`. Raises as `next` does."""
        while True:
            self._raise_failure()
            run = self.next_run(count_max)
            if run is not None or self._is_stopped:
                return run
            await self._wait()

    def _next_queue(self, collects: bool) -> ProcessQueue | None:
        """Take the next queue that may deliver out of the line; drop those that may not."""
        ready = self._ready
        while ready and not self._is_stopped:
            held = ready.popleft()
            if held.is_deliverable and (
                not self._settings.orderly or self._is_next(held, collects)
            ):
                return held
            held.is_ready = False
        return None

    def _next_of(self, held: ProcessQueue) -> ReceivedMessage | None:
        pauses = self.pauses
        if pauses.topics and pauses.split(held.queue):
            return held.take_first(pauses.may_be)
        return held.next_message()

    def _is_next(self, held: ProcessQueue, collects: bool) -> bool:
        """In orderly mode, whether no message of the queue is in flight and its lock is valid."""
        in_turn = not held.in_flight or (collects and held.is_collected)
        return in_turn and self._may_hand_out(held)

    async def next(self) -> Delivered | None:
        """Wait for the next message and return it; return None after `stop`.

        Raises the error of a permanent refusal by a broker.
        """
        while True:
            if self._failure is not None:
                self._raise_failure()
            if self._ready:
                delivered = self.next_message()
                if delivered is not None:
                    return delivered
            if self._is_stopped:
                return None
            await self._wait()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def _wait(self) -> None:
        """Wait until something may be ready."""
        loop = self.loop or asyncio.get_running_loop()  # which makes a system call
        waiter = loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._wake(1)  # pass the wake-up on, because this waiter was cancelled
            else:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
            raise

    def acknowledge(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        """Count a message as consumed."""
        self.finished += 1
        if self._traced:
            self._trace_end(message, ConsumeResult.SUCCESS)
        if held.finish(message) and not (held.waiting and self._is_simple):
            self._has_finished(held)

    def acknowledge_run(self, held: ProcessQueue, run: Sequence[ReceivedMessage]) -> None:
        """Count messages of one queue as consumed."""
        self.finished += len(run)
        if self._traced:
            for message in run:
                self._trace_end(message, ConsumeResult.SUCCESS)
        if held.finish_run(run):
            self._has_finished(held)

    def put_back(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        """Put a message back in line, as if it had not been delivered."""
        self._traced.pop(id(message), None)
        if held.put_back(message):
            self.offer(held)

    def put_back_all(self, deliveries: Sequence[DeliveredRun]) -> None:
        """Put messages back in line; the deliveries are in the order in which they were made."""
        for held, run in reversed(deliveries):
            for message in reversed(run):
                self.put_back(held, message)

    def redeliver(
        self, held: ProcessQueue, message: ReceivedMessage, delay: Delay = BY_THE_LADDER
    ) -> asyncio.Task[None]:
        """Request redelivery in the background; continues even if the caller is cancelled."""
        return self._redeliver_run(held, [message], delay)

    def redeliver_all(
        self, deliveries: Iterable[DeliveredRun], delay: Delay = BY_THE_LADDER
    ) -> list[asyncio.Task[None]]:
        """Request redelivery of several messages.

        In orderly mode those of a queue fail together.
        """
        runs: dict[ProcessQueue, list[ReceivedMessage]] = {}
        for held, messages in deliveries:
            runs.setdefault(held, []).extend(messages)
        if self._settings.orderly:
            return [self._redeliver_run(held, run, delay) for held, run in runs.items()]
        return [self.redeliver(held, each, delay) for held, run in runs.items() for each in run]

    def _redeliver_run(
        self, held: ProcessQueue, run: list[ReceivedMessage], delay: Delay
    ) -> asyncio.Task[None]:
        self.failed += len(run)
        if self._traced:
            for message in run:
                self._trace_end(message, ConsumeResult.FAILED)
        outcome = self._redeliver_or_keep(held, run, delay)
        task = run_in_background(outcome, "sending messages back")
        self._outcomes.add(task)
        task.add_done_callback(self._outcomes.discard)
        return task

    async def settle(self, timeout_s: float) -> None:
        """Wait for the outcomes in progress."""
        if self._outcomes:
            await asyncio.wait(list(self._outcomes), timeout=timeout_s)

    def abandon(self) -> Awaitable[object]:
        """Cancel the outcomes in progress: their messages are redelivered.

        The result can be awaited.
        """
        return end_tasks(self._outcomes)

    def _trace_end(self, message: ReceivedMessage, result: ConsumeResult) -> None:
        consumption = self._traced.pop(id(message), None)
        if consumption is not None:
            consumption.done(result)

    def _finish(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        if held.finish(message):
            self._has_finished(held)

    def _has_finished(self, held: ProcessQueue) -> None:
        """Offer or report a queue of which a message has just finished."""
        if held.waiting:
            if self._settings.orderly:
                held.attempts = 0
                self.offer(held)
        elif not held.in_flight:
            held.attempts = 0
            held.last_finish_ms = time.time_ns() // 1_000_000
            self._on_idle(held)

    async def _redeliver_or_keep(
        self, held: ProcessQueue, run: list[ReceivedMessage], delay: Delay
    ) -> None:
        try:
            await self._redeliver(held, run, delay)
        except Exception:
            log.exception("%r cannot be sent back: it is delivered again locally", run[0])
            for message in run:
                self._later(self._settings.local_retry_s, held, message)

    async def _redeliver(
        self, held: ProcessQueue, run: list[ReceivedMessage], delay: Delay
    ) -> None:
        if held.is_lost or (held.is_dropped and self._settings.orderly):
            for each in run:
                held.put_back(each)  # the queue's current owner receives it again anyway
            return
        if self._settings.orderly:
            await self._keep_in_order(held, run, delay)
            return
        (message,) = run
        if self._settings.broadcast:
            self._give_up(held, message)
        elif await self._redelivery.send_back(message, delay):
            self._finish(held, message)
        else:
            self._later(self._settings.local_retry_s, held, message)

    def _give_up(self, held: ProcessQueue, message: ReceivedMessage) -> None:
        log.warning("%r is dropped: broadcast consumers have no redelivery", message)
        self._finish(held, message)

    async def _keep_in_order(
        self, held: ProcessQueue, run: list[ReceivedMessage], delay: Delay
    ) -> None:
        held.attempts += 1
        for message in run:
            message.stored.reconsume_times += 1
        times_max = self._settings.max_reconsume_times
        if delay == DEAD_LETTER or (times_max is not None and held.attempts > times_max):
            run = await self._give_away(held, run)
            if not run:
                return
        held.is_suspended = True
        for message in run:
            held.put_back(message)
        pause_s = self._settings.suspend_s if delay.after_s is None else delay.after_s
        self._later(pause_s, held, None)

    async def _give_away(
        self, held: ProcessQueue, run: list[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """Send messages to the dead letters in order; return those that could not be sent."""
        for place, message in enumerate(run):
            if self._settings.broadcast:
                self._give_up(held, message)
                continue
            log.warning("%r becomes a dead letter after %d deliveries", message, held.attempts)
            if not await self._redelivery.send_back(message, DEAD_LETTER):
                return run[place:]
            self._finish(held, message)
        return []

    def _later(self, delay_s: float, held: ProcessQueue, message: ReceivedMessage | None) -> None:
        """Deliver again after a delay: a message that could not be sent back, or a whole queue."""
        if self._is_stopped:
            if message is not None:
                held.put_back(message)
            return

        def resume() -> None:
            self._timers.discard(timer)
            held.is_suspended = False
            if message is not None:
                message.stored.reconsume_times += 1
                held.put_back(message)
            self.offer(held)

        timer = asyncio.get_running_loop().call_later(delay_s, resume)
        self._timers.add(timer)

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1
