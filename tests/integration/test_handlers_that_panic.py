"""Handlers and callbacks that end as nobody foresees: that costs one delivery, and no consumer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from typing import Any

import pytest

from rockhopper import sync
from rockhopper.broker import Broker
from rockhopper.client import Message, Producer, TransactionProducer
from rockhopper.client.app.app import App
from rockhopper.client.middleware.hooks import Middleware, Processing, ProcessNext
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from tests.support.billing import AT_ONCE, billing, send
from tests.support.features import needs, transactions_of
from tests.support.hang import HANG_S
from tests.support.turns import until

Ending = Callable[[], Awaitable[object]]


class PanicError(BaseException):
    """As pyo3_runtime.PanicException: it derives from BaseException."""


async def panic() -> None:
    raise PanicError("called `Result::unwrap()` on an `Err` value")


async def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.Event().wait()


async def let_a_cancellation_out() -> None:
    raise asyncio.CancelledError


async def leave_a_cancellation_behind() -> None:
    """As a library that has caught its own cancellation, and not taken it back."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    raise RuntimeError("with cancelling() above 0")


async def end_as_a_generator() -> None:
    raise GeneratorExit


async def panic_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(panic())


ENDINGS: list[Ending] = [
    panic,
    cancel_own_task,
    let_a_cancellation_out,
    leave_a_cancellation_behind,
    end_as_a_generator,
    panic_in_a_group,
]
every_ending = pytest.mark.parametrize("ending", ENDINGS, ids=lambda each: each.__name__)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(AT_ONCE) as broker:
        yield broker


class Handler:
    """Ends in that way for the first delivery of each message, and counts what it has done."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        self.done: list[tuple[bytes, int]] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        if message.reconsume_times == 0 and message.body != b"last":
            await self.ending()
        self.done.append((message.body, message.reconsume_times))

    def has_done(self, count: int) -> bool:
        return len(self.done) == count


@every_ending
async def test_each_such_delivery_is_asked_for_again_and_logged(
    broker: Broker, producer: Producer, ending: Ending, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Handler(ending)
    await send(producer, 4)
    async with billing(broker, handler=handler, concurrency=2):
        await until(lambda: handler.has_done(4))
    assert sorted(handler.done) == [(b"%d" % n, 1) for n in range(4)]
    assert caplog.text.count("the handler failed on") == 4


@every_ending
async def test_in_order_the_message_stays_the_first_of_its_queue(
    broker: Broker, producer: Producer, ending: Ending
) -> None:
    handler = Handler(ending)
    await send(producer, 2)
    async with billing(broker, handler=handler, concurrency=2, orderly=True, suspend_s=0.0):
        await until(lambda: handler.has_done(2))
    assert handler.done == [(b"0", 1), (b"1", 1)]


@every_ending
async def test_in_broadcast_the_message_is_given_up_and_the_next_ones_come(
    broker: Broker, producer: Producer, ending: Ending, tmp_path: Any
) -> None:
    handler = Handler(ending)
    await send(producer, 3)
    async with billing(
        broker, handler=handler, concurrency=1, broadcast=True, offsets_directory=tmp_path
    ):
        await producer.send("orders", b"last")
        await until(lambda: handler.has_done(1))
    assert handler.done == [(b"last", 0)]


@every_ending
async def test_a_hook_around_the_handler_may_end_so_too(
    broker: Broker, producer: Producer, ending: Ending
) -> None:
    class Ends(Middleware):
        async def on_process(self, processing: Processing, call_next: ProcessNext) -> object:
            if processing.message.reconsume_times == 0:
                await ending()
            return await call_next(processing)

    handler = Handler(panic)
    await send(producer, 2)
    async with billing(broker, handler=handler, middleware=[Ends()]):
        await until(lambda: handler.has_done(2))


@every_ending
async def test_callbacks_for_queues_may_end_so_and_rebalancing_goes_on(
    broker: Broker, producer: Producer, ending: Ending, caplog: pytest.LogCaptureFixture
) -> None:
    called = []

    async def ends(queues: list[MessageQueue]) -> None:
        called.append(queues)
        await ending()

    handler = Handler(panic)
    async with billing(broker, handler=handler, on_assigned=ends, on_revoked=ends) as consumer:
        await producer.send("orders", b"last")
        await until(lambda: handler.has_done(1))
        async with billing(broker):
            await until(lambda: len(called) > 1)
        await until(lambda: len(consumer.assigned) == 5)
    assert "on_assigned failed; the queues are reassigned anyway" in caplog.text


class Panicking:
    """A deserializer that ends in no Exception for the bodies that it gets first."""

    type = bytes

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.seen: set[bytes] = set()

    def decode(self, body: bytes) -> bytes:
        if body not in self.seen:
            self.seen.add(body)
            raise self.error
        return body

    def encode(self, value: bytes) -> bytes:
        return value


@pytest.mark.parametrize("error", [PanicError("panic"), asyncio.CancelledError()], ids=repr)
async def test_a_deserializer_that_panics_costs_that_delivery(
    broker: Broker, producer: Producer, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    await send(producer, 2)
    done = []

    async def handle(message: ReceivedMessage) -> None:
        done.append(message.value)

    async with billing(broker, handler=handle, deserializer=Panicking(error)):
        await until(lambda: len(done) == 2)
    assert caplog.text.count("the deserializer failed on") == 2


async def test_batches_go_on_after_a_deserializer_that_panics(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 2)
    found: list[bytes] = []
    async with billing(broker, deserializer=Panicking(PanicError("panic"))) as consumer:
        async for batch in consumer.batches(10, 0.0):
            found += [message.value for message in batch]
            if len(found) == 2:
                break
    assert sorted(found) == [b"0", b"1"]


@pytest.mark.parametrize(
    "error",
    [PanicError("panic"), asyncio.CancelledError(), SystemExit(3), StopIteration()],
    ids=repr,
)
async def test_what_a_plain_function_raises_in_its_thread_is_a_failed_delivery(
    broker: Broker, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(broker.nameserver)
    done = []

    @app.subscriber("orders", group="billing", concurrency=2)
    def bill(body: bytes, message: ReceivedMessage) -> None:
        if message.reconsume_times == 0:
            raise error
        done.append(body)

    async with app:
        await app.producer.send("orders", b"x")
        await until(lambda: done == [b"x"])
    assert caplog.text.count("the handler failed on") == 1


async def test_the_synchronous_run_goes_on_after_a_panic(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 2)
    done = []

    def handle(message: ReceivedMessage) -> None:
        if message.reconsume_times == 0:
            raise PanicError("panic")
        done.append(message.body)

    def consume() -> None:
        with sync.Consumer("billing", "orders", nameserver=broker.nameserver) as consumer:
            consumers.append(consumer)
            consumer.run(handle, concurrency=2)

    consumers: list[sync.Consumer] = []
    with ThreadPoolExecutor(1) as pool:
        running = asyncio.get_running_loop().run_in_executor(pool, consume)
        await until(lambda: len(done) == 2)
        await asyncio.to_thread(consumers[0].stop)
        async with asyncio.timeout(HANG_S):
            await running


def is_worker(task: asyncio.Task[Any]) -> bool:
    return getattr(task.get_coro(), "__qualname__", "") == "Consumer._work"


async def test_workers_that_other_code_has_cancelled_are_replaced(
    broker: Broker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Handler(panic)
    async with billing(broker, handler=handler, concurrency=2):
        await asyncio.sleep(0)  # the workers begin
        workers = [task for task in asyncio.all_tasks() if is_worker(task)]
        assert len(workers) == 2
        for worker in workers:
            worker.cancel()
        await producer.send("orders", b"last")
        await until(lambda: handler.has_done(1))
    assert caplog.text.count("it is replaced") == 2


async def test_a_handler_may_close_its_consumer(broker: Broker, producer: Producer) -> None:
    async with AsyncExitStack() as stack:
        consumer = billing(broker)

        async def handle(_message: ReceivedMessage) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(consumer.close())

        await stack.enter_async_context(consumer)
        await send(producer, 1)
        async with asyncio.timeout(HANG_S):
            await consumer.run(handle, concurrency=2)


tenant: ContextVar[bytes | None] = ContextVar("tenant", default=None)


async def test_what_a_handler_sets_in_its_context_is_not_seen_by_the_next_message(
    broker: Broker, producer: Producer
) -> None:
    seen: list[bytes | None] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(tenant.get())
        tenant.set(message.body)

    await send(producer, 4)
    async with billing(broker, handler=handle, concurrency=1):
        await until(lambda: len(seen) == 4)
    assert seen == [None] * 4


@every_ending
@needs("transactions")
async def test_a_transaction_check_that_ends_so_is_asked_again(
    ending: Ending, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asyncio.Event()
    ends = iter([ending])

    async def check(message: ReceivedMessage) -> str:
        if (first := next(ends, None)) is not None:
            await first()
        asked.set()
        return "commit"

    settings = {"transactionTimeOut": "300", "transactionCheckInterval": "100"}
    async with (
        Broker.temporary(settings) as broker,
        TransactionProducer("payers", check=check, nameserver=broker.nameserver) as producer,
    ):
        async with producer.transaction(Message("orders", b"paid")) as transaction:
            transaction.leave_unknown()
        async with asyncio.timeout(HANG_S):
            await asked.wait()
        await until(lambda: not transactions_of(broker).halves)
        assert transactions_of(broker).ends.committed == {"orders": 1}
    assert caplog.records
