"""Consumer: takes part in a consumer group and hands out its messages.

When a message counts as consumed in `async for`:

    asking for the next message            acknowledges the last one
    leaving `async with` (break, return)   acknowledges the last one
    an exception or a cancellation that
    leaves `async with`                    asks for the last one again
    a new loop over an unfinished message  asks for it again

A batch counts as a message does: asking for the next one acknowledges all of it.

With a handler, returning acknowledges and raising asks for the message again. Messages that were
fetched ahead and not handed out go back uncounted.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from rockhopper.client.arguments import check_count
from rockhopper.client.callbacks import check_coroutine_function
from rockhopper.client.consuming.allocation import Allocation, allocation_of
from rockhopper.client.consuming.engine import Engine
from rockhopper.client.consuming.face.batches import check_batches, collect
from rockhopper.client.consuming.face.callbacks import QueueCallbacks, QueuesCallback
from rockhopper.client.consuming.face.pauses import Paused
from rockhopper.client.consuming.face.work_watch import WorkWatch
from rockhopper.client.consuming.handout import Delivered, Handout
from rockhopper.client.consuming.process_queue import ProcessQueue
from rockhopper.client.consuming.redelivery import BY_THE_LADDER, Delay, retry_later_of
from rockhopper.client.consuming.settings import ConsumerSettings, StartFrom
from rockhopper.client.consuming.subscriptions import Topics, subscriptions_of
from rockhopper.client.errors import ClientError, ClientStateError, RequestRefusedError, is_away
from rockhopper.client.middleware.hooks import (
    ConsumptionModel,
    Hooks,
    Middleware,
    Processing,
    Receiving,
    around,
)
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.sharing import SharedConnections
from rockhopper.client.network.tls import Tls
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.sending.request_reply import is_expired
from rockhopper.client.sending.trace import MessageTrace
from rockhopper.client.serializers import BadBody, Serializer
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

Handler = Callable[[ReceivedMessage], Awaitable[object]]
_Item = TypeVar("_Item")


@dataclass
class _Delivery:
    """What code that a handler calls belongs to; None when the handler has ended."""

    worker: asyncio.Task[None] | None


_delivery: ContextVar[_Delivery | None] = ContextVar("_delivery", default=None)


class Consumer:
    """A member of a consumer group; the group's members share the queues of its topics.

        async with Consumer("billing", {"orders": "new || paid"}) as consumer:
            async for message in consumer:
                print(message.body)

    or with several messages in work at once:

        async with Consumer("billing", "orders") as consumer:
            await consumer.run(handle, concurrency=16)

    A broker that goes away is waited for; nothing is raised for it.
    """

    def __init__(
        self,
        group: str,
        topics: Topics,
        *,
        nameserver: str | None = None,
        start_from: StartFrom = "earliest",
        broadcast: bool = False,
        orderly: bool = False,
        allocation: str | Allocation = "average",
        max_reconsume_times: int | None = None,
        handler: Handler | None = None,
        concurrency: int = 16,
        batch_size: int = 32,
        poll_s: float = 15.0,
        queue_count_max: int = 1000,
        queue_bytes_max: int = 16 << 20,
        consumer_count_max: int = 10_000,
        consumer_bytes_max: int = 128 << 20,
        commit_interval_s: float = 1.0,
        suspend_s: float = 1.0,
        request_timeout_s: float = 3.0,
        close_timeout_s: float = 30.0,
        hand_over_s: float = 0.5,
        offsets_directory: Path | str | None = None,
        deserializer: Serializer | None = None,
        bad_body: BadBody = "retry",
        on_assigned: QueuesCallback | None = None,
        on_revoked: QueuesCallback | None = None,
        trace: bool | str = False,
        middleware: Iterable[Middleware] = (),
        tls: Tls = None,
        credentials: CredentialsChoice = None,
        connections: SharedConnections | None = None,
    ) -> None:
        """`topics` is a topic, several, or a mapping of topics to filters.

        A regular expression ("orders_.*", or one from re.compile) stands for all topics whose whole
        name it matches but the system's; those that appear later are found within 10 s.
        A filter is "*", tags such as "new || paid", or Sql("price > 5"). `start_from` ("earliest",
        "latest", a datetime, milliseconds since 1970) counts only where the group has never
        committed.

        `broadcast` gives every member every message and keeps offsets in a file here
        (`offsets_directory`, else ~/.rocketmq_offsets). `orderly` hands out each queue's messages
        one after the other; one that fails is tried again, first of its queue, `suspend_s`
        later. `allocation` is the group's rule, the same for all members: "average", "by-circle",
        "consistent-hash" or an object. After `max_reconsume_times` a message goes to the dead
        letters (the group's own setting where it is None; in order None is never).

        With `handler` the messages go to it from the start, `concurrency` at once, as with `run`.
        `poll_s` is how long a broker may hold a request when there is nothing new; the four maxima
        bound what is fetched ahead. `close_timeout_s` is how long closing waits for handlers. A
        member that takes over a queue leaves it to the one before for `hand_over_s` seconds, and
        for up to `close_timeout_s` while that one has messages of it in work. `deserializer` makes
        `message.value` of each body; where it cannot, the message is never handed out: `bad_body`
        says what becomes of it ("retry" as by a failing handler, "dead-letter", "skip"). The
        coroutine functions `on_assigned` and `on_revoked` get lists of queues, before anything of
        them is handed out, and before they are committed and given up; they get `close_timeout_s`
        too. `trace` records every delivery in the brokers' trace topic, or in the topic that it
        names. `middleware` is called around every handler, and around the waiting of loops. `tls`
        is True, or TlsOptions; `credentials` are Credentials, or the path of a file of them;
        without one of them the environment decides. `connections` are shared with other clients,
        in place of these and of `nameserver`.
        Raises ValueError, ClientStateError, TypeError, protocol.errors.SubscriptionError.
        """
        subscriptions, patterns = subscriptions_of(topics, time.time_ns() // 1_000_000)
        self._nameserver = nameserver
        self._settings = ConsumerSettings(
            group=group,
            subscriptions=subscriptions,
            patterns=patterns,
            start_from=start_from,
            broadcast=broadcast,
            orderly=orderly,
            allocation=allocation_of(allocation),
            max_reconsume_times=max_reconsume_times,
            batch_size=batch_size,
            poll_s=poll_s,
            queue_count_max=queue_count_max,
            queue_bytes_max=queue_bytes_max,
            consumer_count_max=consumer_count_max,
            consumer_bytes_max=consumer_bytes_max,
            commit_interval_s=commit_interval_s,
            suspend_s=suspend_s,
            close_timeout_s=close_timeout_s,
            hand_over_s=hand_over_s,
            offsets_directory=Path(offsets_directory) if offsets_directory else None,
            deserializer=deserializer,
            bad_body=bad_body,
            callbacks=QueueCallbacks(on_assigned, on_revoked, close_timeout_s),
            request_timeout_s=request_timeout_s,
            tls=tls,
            credentials=credentials,
            connections=connections,
        )
        self._trace_topic = TRACE_TOPIC if trace is True else trace
        self.engine, self._handout = self._make_engine()
        """What consumes: the assignment of queues, and all that goes on for them."""
        self._hooks = Hooks(middleware)
        self._model: ConsumptionModel = "broadcasting" if broadcast else "clustering"
        self._handler = handler
        self._concurrency = concurrency
        self._running: asyncio.Task[None] | None = None
        self._workers: set[asyncio.Task[None]] = set()
        self._watch = WorkWatch(group)
        self._loop: object = None
        self._in_work: Sequence[Delivered] = ()
        self._is_closed = False
        self._is_stopping = False
        self._has_failed_to_start = False
        self.on_failure: Callable[[BaseException], object] | None = None
        """Gets the error that has ended a consumer with a handler; it has left the group then."""
        check_count("concurrency", concurrency)
        if handler is not None:
            check_coroutine_function("handler", handler)

    def _make_engine(self) -> tuple[Engine, Handout]:
        # Patterns add to the subscriptions what they find.
        subscriptions = dict(self._settings.subscriptions)
        engine = Engine(self._nameserver, replace(self._settings, subscriptions=subscriptions))
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
            later = retry_later_of(exc)
            await self._leave(0.0, BY_THE_LADDER if later is None else later.delay)

    async def start(self) -> Self:
        """Join the group, and find out where to start.

        A topic that does not exist is waited for. Raises ClientError when no name service answers,
        or when a broker refuses a filter; it may be started again then.
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
        """Replace what a failed start has closed; pauses and a `stop` hold on."""
        before = self._handout
        self.engine, self._handout = self._make_engine()
        self._handout.pauses = before.pauses
        if self._is_stopping:
            self._handout.stop()
        self._has_failed_to_start = False

    def _has_failed(self, error: BaseException) -> None:
        """Leave the group: its queues are for members that can go on."""
        self._running = None
        if self.on_failure is not None:
            self.on_failure(error)
        if not self._is_closed:
            run_in_background(self.close(), f"leaving group {self.group!r}")

    async def close(self) -> None:
        """Leave the group, with everything committed that is finished.

        The last message of a loop counts as finished; handlers get `close_timeout_s` to end. A
        second call does nothing.
        """
        await self._leave(self.engine.settings.close_timeout_s, None)

    async def _leave(self, patience_s: float, delay: Delay | None) -> None:
        """Leave the group; with a `delay` what is unfinished is asked for again."""
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
                in_work, self._in_work = self._in_work, ()
                self._handout.redeliver_all(in_work, delay)
            try:
                await self._close_trace()
            finally:
                await self.engine.close(self.engine.settings.close_timeout_s)

    async def _close_trace(self) -> None:
        if self._handout.trace is not None:
            await self._handout.trace.close()

    def stop(self) -> None:
        """Let loops and `run` end after the messages that are in work.

        May be called anywhere and at any time: in other threads, in signal handlers, before and
        while it starts.
        """
        self._is_stopping = True
        if not self.engine.session.is_inherited:  # else the loop is the parent's
            self._handout.stop_from_anywhere()

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.engine.settings.group

    @property
    def client_id(self) -> str:
        """The name of this member."""
        return self.engine.session.client_id

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this member holds now, those of the group's retry topic among them."""
        return sorted(self.engine.assignment.held)

    def pause(self, *what: Paused) -> None:
        """Hand out and fetch nothing of these topics and queues; without one, nothing at all.

        What was fetched stays here, what is in work goes on, and a queue that is given up and comes
        back is paused still. Messages that come again count as those of their topic. A name that
        is not among its topics is kept, for a pattern may find it.
        """
        self._handout.pauses.pause(*what)
        self.engine.pauses_changed()

    def resume(self, *what: Paused) -> None:
        """Go on with these topics and queues; without one, with all."""
        self._handout.pauses.resume(*what)
        self.engine.pauses_changed()

    @property
    def paused(self) -> list[Paused]:
        """The topics and queues that are paused; all its topics after `pause` without one."""
        return self._handout.pauses.listed(self.engine.settings.subscriptions)

    async def commit(self) -> None:
        """Store now how far the group has come; that happens every few seconds anyway."""
        self.engine.session.check_open()
        for failure in await self.engine.assignment.commit():
            raise failure

    def put_back(self, message: ReceivedMessage) -> None:
        """Let a message that a loop has in work wait again, as if it had not been handed out.

        It comes again uncounted: next of its queue here, or to whoever has the queue by then.
        """
        self._handout.put_back(*self._give_up(message))

    async def retry_later(
        self, message: ReceivedMessage, delay_level: int = 0, *, delay_s: float | None = None
    ) -> None:
        """Ask for a message that a loop has in work again, and go on with the others.

        See RetryLater for `delay_level` and `delay_s`.
        """
        delay = Delay(delay_level, delay_s)
        await asyncio.shield(self._handout.redeliver(*self._give_up(message), delay))

    def _give_up(self, message: ReceivedMessage) -> Delivered:
        self.engine.session.check_open()
        for delivered in self._in_work:
            if delivered[1] is message:
                self._in_work = [each for each in self._in_work if each is not delivered]
                return delivered
        raise ClientStateError(
            "only the message, or one of the batch, that the loop handed out last can be asked for "
            "again"
        )

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Hand out one message after the other, until `stop` or `close`."""
        hooked = self._message_through_hooks
        return self._begin_loop(hooked if self._hooks.receive else self._next_message)

    def batches(self, count_max: int, wait_s: float) -> AsyncIterator[list[ReceivedMessage]]:
        """Hand out messages in groups, until `stop` or `close`.

        A batch has `count_max` messages, or those that are there `wait_s` after its first: it is
        never empty. In order it may hold several messages of a queue, one after the other. When it
        fails, all of it comes again; retry_later and put_back take single messages out of it.
        """
        check_batches(count_max, wait_s)
        take = partial(self._next_batch, count_max, wait_s)
        return self._begin_loop(partial(self._through_hooks, take) if self._hooks.receive else take)

    def _begin_loop(self, next_item: Callable[[], Awaitable[_Item]]) -> "_Loop[_Item]":
        self.engine.session.check_open()
        if self._workers or self._running is not None:
            raise ClientStateError("a handler gets this consumer's messages: use it, or a loop")
        in_work, self._in_work = self._in_work, ()
        self._handout.redeliver_all(in_work)
        loop = _Loop(self._check_loop, next_item)
        self._loop = loop
        return loop

    def _check_loop(self, loop: object) -> None:
        if loop is not self._loop:
            self.engine.session.check_open()
            raise ClientStateError("another loop over this consumer has begun since")
        if self._is_closed:
            raise StopAsyncIteration  # what the loop had in work was finished by closing
        self.engine.session.check_open()

    def _acknowledge(self) -> None:
        in_work, self._in_work = self._in_work, ()
        for held, message in in_work:
            self._handout.acknowledge(held, message)

    async def _next_message(self) -> ReceivedMessage:
        if self._in_work:
            self._acknowledge()
        delivered = self._handout.take() or await self._handout.next()
        if delivered is None:
            raise StopAsyncIteration
        self._in_work = (delivered,)
        return delivered[1]

    async def _next_batch(self, count_max: int, wait_s: float) -> list[ReceivedMessage]:
        self._acknowledge()
        self._in_work = await collect(self._handout, count_max, wait_s)
        if not self._in_work:
            raise StopAsyncIteration
        return [message for _, message in self._in_work]

    async def _message_through_hooks(self) -> ReceivedMessage:
        async def take() -> list[ReceivedMessage]:
            return [await self._next_message()]

        return (await self._through_hooks(take))[0]

    async def _through_hooks(
        self, take: Callable[[], Awaitable[list[ReceivedMessage]]]
    ) -> list[ReceivedMessage]:
        taken: list[Delivered] = []

        async def last(_receiving: Receiving) -> Sequence[ReceivedMessage]:
            taken.clear()
            try:
                messages = await take()
            except StopAsyncIteration:
                return ()
            taken.extend(self._in_work)
            return messages

        receive = around(self._hooks.receive, last)
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

    def _take_back(self, taken: Sequence[Delivered], error: BaseException) -> None:
        """Let come again what was taken for a loop that an error kept from getting it."""
        lost = [each for each in taken if each in self._in_work]
        if not lost:
            return
        self._in_work = [each for each in self._in_work if each not in lost]
        if isinstance(error, Exception):
            later = retry_later_of(error)
            self._handout.redeliver_all(lost, BY_THE_LADDER if later is None else later.delay)
        else:
            for delivered in reversed(lost):
                self._handout.put_back(*delivered)

    async def run(self, handler: Handler, *, concurrency: int = 16) -> None:
        """Give each message to `handler`, up to `concurrency` at once, until `stop` or `close`.

        Returning acknowledges a message; raising asks for it again: RetryLater says when.
        Cancelling `run` cancels the handlers, and asks for their messages again. In order, messages
        of one queue are never in work at the same time. Raises what a broker refuses for good.
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
        """End tasks, those of handlers that swallow a cancellation or wait in `finally` too."""
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
                "%d handlers of group %r do not end when they are cancelled: they are left behind, "
                "and their messages are delivered again",
                len(left),
                self.group,
            )
            leave_behind(left)

    async def _supervise(self, workers: set[asyncio.Task[None]], handler: Handler) -> None:
        """Wait until all workers have ended, or one with an error, which is raised.

        In place of one that other code has cancelled another begins.
        """
        while working := [each for each in workers if not each.done()]:
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for worker in done:
                if not worker.cancelled():
                    worker.result()
                elif not self._handout.is_stopped:
                    log.warning(
                        "other code of this process has cancelled a task of group %r that calls "
                        "handlers: another takes its place",
                        self.group,
                    )
                    another = start_task(self._work(handler))
                    workers.add(another)
                    self._workers.add(another)

    def _handler_in_hooks(self, handler: Handler) -> Handler:
        async def last(processing: Processing) -> object:
            return await handler(processing.message)

        process = around(self._hooks.process, last)
        return lambda message: process(Processing(message, self.group, self.client_id, self._model))

    def _broker_time_ms(self, held: ProcessQueue, later_ms: int = 0) -> int | None:
        """When it is at the broker of a queue, or will be after a while."""
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
            delivered = handout.take() or await handout.next()
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
                if worker.cancelling():  # the handler has gone on to its end all the same
                    raise asyncio.CancelledError
            finally:
                del at_work[worker]
                delivery.worker = None

    async def _failed(self, held: ProcessQueue, message: ReceivedMessage, error: Exception) -> None:
        """Ask for a message again, unless it is a request that nobody waits for."""
        if isinstance(error, RequestRefusedError) and error.is_requester_gone:
            log.info("%r is finished, and its requester gone: %s", message, error)
            self._handout.acknowledge(held, message)
            return
        later = retry_later_of(error)
        delay = BY_THE_LADDER if later is None else later.delay
        # In order a message stays as it is, and is looked at when its turn comes again.
        wait_ms = 0 if self._settings.orderly else delay.least_ms
        if is_expired(message, partial(self._broker_time_ms, held, wait_ms)):
            text = "the handler failed on %r, which does not come again: its requester will be gone"
            log.warning(text, message, exc_info=error)
            self._handout.acknowledge(held, message)
            return
        if later is None:
            self._tell_failure(message, error)
        else:
            log.debug("%r is asked for again: %s", message, later)
        await asyncio.shield(self._handout.redeliver(held, message, delay))

    def _tell_failure(self, message: ReceivedMessage, error: BaseException) -> None:
        text = "the handler failed on %r, in delivery %d of it: it is asked for again"
        delivery = message.reconsume_times + 1
        if isinstance(error, ClientError) and is_away(error):
            outages, key = self.engine.session.outages, f"handler {error.address}"
            outages.warn(log, key, f"{text}: %s", message, delivery, error)
        else:
            log.warning(text, message, delivery, exc_info=error)

    async def _end_workers(self, timeout_s: float) -> None:
        """Let handlers finish, then cancel those that do not; never waits for its own caller."""
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
                        "handlers did not finish within %g s: they are cancelled, but for what "
                        "they run in threads, and their messages are asked for again",
                        timeout_s,
                    )
        finally:
            for task in tasks:
                end_task(task)
        await self._cancel(tasks)


class _Loop(Generic[_Item]):
    """One `async for` over a consumer."""

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
