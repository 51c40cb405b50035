"""Consumer: joins a consumer group and delivers its messages.

When a message counts as consumed in `async for`:

    requesting the next message            acknowledges the last one
    leaving `async with` (break, return)   acknowledges the last one
    an exception or a cancellation that
    leaves `async with`                    requests redelivery of the last one
    a new loop over an unfinished message  requests its redelivery

A batch is treated like a message: requesting the next one acknowledges all of it.

With a handler, returning acknowledges a message and raising requests its redelivery. Prefetched
messages that were not delivered go back without counting as an attempt.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rockhopper.client.arguments import check_count, takes
from rockhopper.client.callbacks import check_coroutine_function
from rockhopper.client.consuming.engine import ConsumerEngine
from rockhopper.client.consuming.face.batches import check_batches, collect
from rockhopper.client.consuming.face.pauses import Paused
from rockhopper.client.consuming.face.work_watch import WorkWatch
from rockhopper.client.consuming.handout import Delivered, DeliveredRun, Handout
from rockhopper.client.consuming.options import ConsumerOptions, Handler
from rockhopper.client.consuming.process_queue import ProcessQueue
from rockhopper.client.consuming.redelivery import BY_THE_LADDER, Delay, find_retry_later
from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.errors import ClientError, ClientStateError, RequestRefusedError, is_away
from rockhopper.client.middleware.hooks import (
    ConsumptionModel,
    Hooks,
    Processing,
    Receiving,
    wrap_in_hooks,
)
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.sending.request_reply import is_expired
from rockhopper.client.sending.trace import MessageTrace
from rockhopper.protocol.names import TRACE_TOPIC
from rockhopper.tasks import (
    end_task,
    keep_running,
    leave_behind,
    run_apart,
    run_in_background,
    start_task,
)

log = logging.getLogger(__name__)

_CANCELLATIONS = 2
_CANCEL_PATIENCE_S = 0.5

_Item = TypeVar("_Item")
_AnyLoop = TypeVar("_AnyLoop")


@dataclass
class _Delivery:
    """The worker task whose handler runs the current code; None after the handler has ended."""

    worker: asyncio.Task[None] | None


_delivery: ContextVar[_Delivery | None] = ContextVar("_delivery", default=None)


class Consumer:
    """A member of a consumer group. The members share the queues of the group's topics.

        async with Consumer("billing", {"orders": "new || paid"}) as consumer:
            async for message in consumer:
                print(message.body)

    To process several messages concurrently:

        async with Consumer("billing", "orders") as consumer:
            await consumer.run(handle, concurrency=16)

    If a broker becomes unreachable, the consumer waits for it and does not raise.
    """

    @takes(ConsumerOptions)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """The parameters are the fields of ConsumerOptions.

        Raises ValueError, ClientStateError, TypeError, protocol.errors.SubscriptionError.
        """
        options = ConsumerOptions(*args, **kwargs)
        self._nameserver = options.nameserver
        self._settings = ConsumerSettings.from_options(options, time.time_ns() // 1_000_000)
        self._trace_topic = TRACE_TOPIC if options.trace is True else options.trace
        self.engine, self._handout = self._make_engine()
        """The parts that consume: the assignment of queues, fetching, commits."""
        self._hooks = Hooks(options.middleware)
        self._model: ConsumptionModel = "broadcasting" if options.broadcast else "clustering"
        self._handler = options.handler
        self._concurrency = options.concurrency
        self._running: asyncio.Task[None] | None = None
        self._workers: set[asyncio.Task[None]] = set()
        self._watch = WorkWatch(options.group)
        self._loop: object = None
        self._in_work: Sequence[DeliveredRun] = ()
        self._last: Delivered | None = None
        self._is_closed = False
        self._is_stopping = False
        self._has_failed_to_start = False
        self.on_failure: Callable[[BaseException], object] | None = None
        """Called with the error that ended a consumer with a handler; it then leaves the group."""

    def _make_engine(self) -> tuple[ConsumerEngine, Handout]:
        # Topics found by patterns are added to the subscriptions.
        subscriptions = dict(self._settings.subscriptions)
        engine = ConsumerEngine(
            self._nameserver, replace(self._settings, subscriptions=subscriptions)
        )
        if self._trace_topic:
            engine.handout.trace = MessageTrace(engine.session, topic=self._trace_topic)
        return engine, engine.handout

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            await self.close()
        else:
            later = find_retry_later(exc)
            await self._leave(0.0, BY_THE_LADDER if later is None else later.delay)

    async def start(self) -> Self:
        """Join the group, and find out where to start.

        If a topic does not exist, the consumer waits for it. Raises ClientError if no name server
        answers or a broker refuses a filter; you may then call it again.
        """
        if self._has_failed_to_start and not self._is_closed:
            self._renew_engine()
        self._handout.loop = asyncio.get_running_loop()
        try:
            await self.engine.start()
        except BaseException:
            self._has_failed_to_start = self.engine.is_closed
            raise
        if self._handout.trace is not None:
            self._handout.trace.start()
        if self._handler is not None:
            running = self.run(self._handler, concurrency=self._concurrency)
            self._running = run_in_background(
                running, f"consuming of group {self.group!r}", on_failure=self._has_failed
            )
        return self

    def _renew_engine(self) -> None:
        """Replace the parts that a failed start has closed; pauses and a `stop` stay in effect."""
        before = self._handout
        self.engine, self._handout = self._make_engine()
        self._handout.pauses = before.pauses
        if self._is_stopping:
            self._handout.stop()
        self._has_failed_to_start = False

    def _has_failed(self, error: BaseException) -> None:
        """Leave the group, so that working members take over its queues."""
        self._running = None
        if self.on_failure is not None:
            self.on_failure(error)
        if not self._is_closed:
            run_in_background(self.close(), f"leaving group {self.group!r}")

    async def close(self) -> None:
        """Commit all finished messages and leave the group.

        The last message of a loop counts as finished. Handlers have `close_timeout_s` to finish. A
        second call does nothing.
        """
        await self._leave(self.engine.settings.close_timeout_s, None)

    async def _leave(self, patience_s: float, delay: Delay | None) -> None:
        """Leave the group; with a `delay`, request redelivery of unfinished messages."""
        if self._is_closed:
            return
        self.engine.session.check_loop()
        self._is_closed = True
        if self.engine.session.is_inherited:
            await self.engine.session.close()
            return
        self._handout.stop()
        if delay is None:
            self.engine.assignment.stop_fetching()
        try:
            await self._end_workers(patience_s)
        finally:
            if delay is None:
                self._acknowledge()
            else:
                self._handout.redeliver_all(self._take_unfinished(), delay)
            try:
                await self._close_trace()
            finally:
                await self.engine.close(self.engine.settings.close_timeout_s)

    async def _close_trace(self) -> None:
        if self._handout.trace is not None:
            await self._handout.trace.close()

    def stop(self) -> None:
        """End loops and `run` after the messages that are being processed.

        You may call it from any thread, in signal handlers, and before or during the start.
        """
        self._is_stopping = True
        if not self.engine.session.is_inherited:  # else the loop belongs to the parent process
            self._handout.stop_from_anywhere()

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.engine.settings.group

    @property
    def client_id(self) -> str:
        """The id of this member."""
        return self.engine.session.client_id

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this member owns now, including those of the group's retry topic."""
        return sorted(self.engine.assignment.held)

    def pause(self, *what: Paused) -> None:
        """Deliver and fetch no messages of these topics and queues; without arguments, of all.

        Prefetched messages are kept, running handlers continue, and a queue that is revoked and
        assigned again is still paused. Redelivered messages belong to their original topic. The
        topic need not be subscribed, because a pattern may match it later.
        """
        self._handout.pauses.pause(*what)
        self.engine.pauses_changed()

    def resume(self, *what: Paused) -> None:
        """Resume these topics and queues; without arguments, all."""
        self._handout.pauses.resume(*what)
        self.engine.pauses_changed()

    @property
    def paused(self) -> list[Paused]:
        """The paused topics and queues; all topics of the consumer after `pause()`."""
        return self._handout.pauses.list_paused(self.engine.settings.subscriptions)

    async def commit(self) -> None:
        """Commit the group's offsets now; the consumer also commits regularly."""
        self.engine.session.check_open()
        for failure in await self.engine.assignment.commit():
            raise failure

    def put_back(self, message: ReceivedMessage) -> None:
        """Return a message that a loop is processing, as if it had not been delivered.

        It is delivered again at once, here or at the member that then owns its queue. This does not
        count as an attempt.
        """
        self._handout.put_back(*self._give_up(message))

    async def retry_later(
        self, message: ReceivedMessage, delay_level: int = 0, *, delay_s: float | None = None
    ) -> None:
        """Request redelivery of a message that a loop is processing, and continue.

        See RetryLater for `delay_level` and `delay_s`.
        """
        delay = Delay(delay_level, delay_s)
        await asyncio.shield(self._handout.redeliver(*self._give_up(message), delay))

    def _give_up(self, message: ReceivedMessage) -> Delivered:
        self.engine.session.check_open()
        self._in_work = self._take_unfinished()
        for held, run in self._in_work:
            if any(each is message for each in run):
                self._in_work = _without(self._in_work, {id(message)})
                return held, message
        raise ClientStateError(
            "only the message or batch that the loop received last can be sent back"
        )

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Deliver one message after the other, until `stop` or `close`."""
        if self._hooks.receive:
            return self._begin_loop(_Loop(self._check_loop, self._message_through_hooks))
        return self._begin_loop(_MessageLoop(self._take_message, self._next_message))

    def batches(self, count_max: int, wait_s: float) -> AsyncIterator[list[ReceivedMessage]]:
        """Deliver messages in batches, until `stop` or `close`.

        A batch has `count_max` messages, or fewer if `wait_s` has passed since its first message;
        it is never empty. With `orderly` it may contain several messages of a queue, in order. If
        it fails, all of it is delivered again; retry_later and put_back take single messages out of
        it.
        """
        check_batches(count_max, wait_s)
        take = partial(self._next_batch, count_max, wait_s)
        hooked = partial(self._through_hooks, take) if self._hooks.receive else take
        return self._begin_loop(_Loop(self._check_loop, hooked))

    def _begin_loop(self, loop: _AnyLoop) -> _AnyLoop:
        self.engine.session.check_open()
        if self._workers or self._running is not None:
            raise ClientStateError(
                "a handler already gets this consumer's messages: use either a handler or a loop"
            )
        self._handout.redeliver_all(self._take_unfinished())
        self._loop = loop
        return loop

    def _check_loop(self, loop: object) -> None:
        if loop is not self._loop:
            self.engine.session.check_open()
            raise ClientStateError("another loop over this consumer has started since")
        if self._is_closed:
            raise StopAsyncIteration  # closing has acknowledged the loop's last message
        self.engine.session.pool.check_usable()

    def _acknowledge(self) -> None:
        for held, run in self._take_unfinished():
            self._handout.acknowledge_run(held, run)

    def _take_unfinished(self) -> Sequence[DeliveredRun]:
        """Return the messages that a loop is processing, and forget them."""
        in_work, self._in_work = self._in_work, ()
        last, self._last = self._last, None
        return in_work if last is None else [*in_work, (last[0], (last[1],))]

    def _take_message(self, loop: object) -> ReceivedMessage | None:
        """Acknowledge the last message; return the next one if it is ready."""
        if loop is self._loop and not self._is_closed:
            self.engine.session.pool.check_usable()
        else:
            self._check_loop(loop)
        last = self._last
        if last is not None:
            delivered = self._handout.next_after(last)
        else:
            self._acknowledge()  # something was given back of it, or should have been
            delivered = self._handout.next_message()
        self._last = delivered
        return None if delivered is None else delivered[1]

    async def _next_message(self) -> ReceivedMessage:
        """Acknowledge the last message, and wait for the next one."""
        if self._last is not None or self._in_work:
            self._acknowledge()
        self._last = await self._handout.next()
        if self._last is None:
            raise StopAsyncIteration
        return self._last[1]

    async def _next_batch(self, count_max: int, wait_s: float) -> list[ReceivedMessage]:
        self._acknowledge()
        self._in_work = await collect(self._handout, count_max, wait_s)
        if not self._in_work:
            raise StopAsyncIteration
        return [message for _, run in self._in_work for message in run]

    async def _message_through_hooks(self) -> ReceivedMessage:
        async def take() -> list[ReceivedMessage]:
            message = await self._next_message()
            self._in_work = self._take_unfinished()
            return [message]

        return (await self._through_hooks(take))[0]

    async def _through_hooks(
        self, take: Callable[[], Awaitable[list[ReceivedMessage]]]
    ) -> list[ReceivedMessage]:
        taken: list[DeliveredRun] = []

        async def last(_receiving: Receiving) -> Sequence[ReceivedMessage]:
            taken.clear()
            try:
                messages = await take()
            except StopAsyncIteration:
                return ()
            taken.extend(self._in_work)
            return messages

        receive = wrap_in_hooks(self._hooks.receive, last)
        receiving = Receiving(self.group, self.client_id, self._model)
        try:
            while True:
                messages = await receive(receiving)
                if messages:
                    return list(messages)
                if not self._in_work:
                    raise StopAsyncIteration
        except StopAsyncIteration:
            raise
        except BaseException as error:
            self._take_back(taken, error)
            raise

    def _take_back(self, taken: Sequence[DeliveredRun], error: BaseException) -> None:
        """Put back or redeliver messages that an error in a hook kept from reaching the loop."""
        received = {id(message) for _, run in taken for message in run}
        left = _without(self._in_work, received)
        lost = _without(self._in_work, {id(message) for _, run in left for message in run})
        self._in_work = left
        if isinstance(error, Exception):
            later = find_retry_later(error)
            self._handout.redeliver_all(lost, BY_THE_LADDER if later is None else later.delay)
        else:
            self._handout.put_back_all(lost)

    async def run(self, handler: Handler, *, concurrency: int = 16) -> None:
        """Call `handler` for each message, up to `concurrency` at once, until `stop` or `close`.

        A handler acknowledges a message by returning, and requests redelivery by raising;
        RetryLater sets the delay. Cancelling `run` cancels the handlers, and their messages are
        delivered again. With `orderly`, messages of one queue are never processed at the same time.
        Raises errors that waiting cannot fix, such as a missing permission.
        """
        check_coroutine_function("handler", handler)
        check_count("concurrency", concurrency)
        self.engine.session.check_open()
        if self._hooks.process:
            handler = self._handler_in_hooks(handler)
        self.engine.notifications.handler = handler
        workers = {start_task(self._work(handler)) for _ in range(concurrency)}
        self._workers |= workers
        watching = keep_running(self._watch.run, f"watching handlers of {self.group!r}")
        try:
            await self._supervise(workers, handler)
        finally:
            end_task(watching)
            await self._cancel(workers)
            self._workers -= workers
            self.engine.notifications.handler = None

    async def _cancel(self, tasks: Collection[asyncio.Task[None]]) -> None:
        """Cancel tasks, even if a handler swallows the cancellation or waits in `finally`."""
        for _ in range(_CANCELLATIONS):
            left = [task for task in tasks if not task.done()]
            if not left:
                return
            for task in left:
                end_task(task)
            await asyncio.wait(left, timeout=_CANCEL_PATIENCE_S)
        left = [task for task in tasks if not task.done()]
        if left:
            log.error(
                "%d handlers of group %r did not stop when cancelled: they are abandoned, and "
                "their messages are redelivered",
                len(left),
                self.group,
            )
            leave_behind(left)

    async def _supervise(self, workers: set[asyncio.Task[None]], handler: Handler) -> None:
        """Wait until all workers have ended; raise the error of the first that fails.

        A worker cancelled by other code is replaced by a new one.
        """
        while working := [each for each in workers if not each.done()]:
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for worker in done:
                if not worker.cancelled():
                    worker.result()
                elif not self._handout.is_stopped:
                    log.warning(
                        "other code of this process cancelled a handler task of group %r: it is "
                        "replaced",
                        self.group,
                    )
                    another = start_task(self._work(handler))
                    workers.add(another)
                    self._workers.add(another)

    def _handler_in_hooks(self, handler: Handler) -> Handler:
        async def last(processing: Processing) -> object:
            return await handler(processing.message)

        process = wrap_in_hooks(self._hooks.process, last)
        return lambda message: process(Processing(message, self.group, self.client_id, self._model))

    def _broker_time_ms(self, held: ProcessQueue, later_ms: int = 0) -> int | None:
        """Return the time at the broker of a queue, plus `later_ms`; None if unknown."""
        session, queue = self.engine.session, held.queue
        route = session.routes.known(queue.topic)
        now_ms = session.clocks.now_ms(None if route is None else route.master(queue.broker_name))
        return None if now_ms is None else now_ms + later_ms

    async def _work(self, handler: Handler) -> None:
        handout = self._handout
        worker = asyncio.current_task()
        assert worker is not None
        at_work, monotonic_s = self._watch.at_work, time.monotonic
        while True:
            delivered = handout.next_message() or await handout.next()
            if delivered is None:
                return
            held, message = delivered
            if is_expired(message, partial(self._broker_time_ms, held)):
                log.warning("%r is not handled: its requester has given up waiting", message)
                handout.acknowledge(held, message)
                continue
            at_work[worker] = message, monotonic_s()
            delivery = _Delivery(worker)
            _delivery.set(delivery)
            try:
                await run_apart(handler, message)
            except asyncio.CancelledError:
                handout.redeliver(held, message)
                raise
            except Exception as error:
                await self._failed(held, message, error)
            else:
                handout.acknowledge(held, message)
                if worker.cancelling():  # the handler finished in spite of the cancellation
                    raise asyncio.CancelledError
            finally:
                del at_work[worker]
                delivery.worker = None

    async def _failed(self, held: ProcessQueue, message: ReceivedMessage, error: Exception) -> None:
        """Request redelivery, unless the message is a request whose requester has gone."""
        if isinstance(error, RequestRefusedError) and error.is_requester_gone:
            log.info("%r is done, but its requester is gone: %s", message, error)
            self._handout.acknowledge(held, message)
            return
        later = find_retry_later(error)
        delay = BY_THE_LADDER if later is None else later.delay
        # In orderly mode a message stays in its queue, and its expiry is checked at its next
        # delivery.
        wait_ms = 0 if self._settings.orderly else delay.least_ms
        if is_expired(message, partial(self._broker_time_ms, held, wait_ms)):
            text = "the handler failed on %r, which is not redelivered: its requester will be gone"
            log.warning(text, message, exc_info=error)
            self._handout.acknowledge(held, message)
            return
        if later is None:
            self._tell_failure(message, error)
        else:
            log.debug("%r will be redelivered: %s", message, later)
        await asyncio.shield(self._handout.redeliver(held, message, delay))

    def _tell_failure(self, message: ReceivedMessage, error: BaseException) -> None:
        text = "the handler failed on %r, at delivery %d: it will be redelivered"
        delivery = message.reconsume_times + 1
        if isinstance(error, ClientError) and is_away(error):
            outages, key = self.engine.session.outages, f"handler {error.address}"
            outages.warn(log, key, f"{text}: %s", message, delivery, error)
        else:
            log.warning(text, message, delivery, exc_info=error)

    async def _end_workers(self, timeout_s: float) -> None:
        """Wait for handlers to finish, then cancel the others; never waits for its own caller."""
        delivery = _delivery.get()
        own = delivery.worker if delivery is not None else None
        tasks = [task for task in self._workers if task is not own]
        if self._running is not None and own not in self._workers:
            tasks.append(self._running)
        try:
            if tasks and timeout_s > 0:
                _, unfinished = await asyncio.wait(tasks, timeout=timeout_s)
                if unfinished:
                    log.warning(
                        "handlers did not finish within %g s: they are cancelled, except for "
                        "code that they run in threads, and their messages are redelivered",
                        timeout_s,
                    )
        finally:
            for task in tasks:
                end_task(task)
        await self._cancel(tasks)


def _without(runs: Sequence[DeliveredRun], ids: Collection[int]) -> list[DeliveredRun]:
    """Return the runs without the messages of these `id()`s, and without empty runs."""
    kept = [(held, [each for each in run if id(each) not in ids]) for held, run in runs]
    return [(held, run) for held, run in kept if run]


class _Loop(Generic[_Item]):
    """An iterator of one `async for` over a consumer."""

    __slots__ = ("_check", "_next")

    def __init__(
        self, check: Callable[[object], None], next_item: Callable[[], Awaitable[_Item]]
    ) -> None:
        self._check = check
        self._next = next_item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Item:
        self._check(self)
        return await self._next()


class _MessageLoop:
    """The same for single messages: for one that is ready, no further coroutine is created."""

    __slots__ = ("_next", "_take")

    def __init__(
        self,
        take: Callable[[object], ReceivedMessage | None],
        next_message: Callable[[], Awaitable[ReceivedMessage]],
    ) -> None:
        self._take = take
        self._next = next_message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        return self._take(self) or await self._next()
