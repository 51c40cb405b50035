"""Consumers without await: loops, batches, handlers in threads, what an interrupt does."""

import asyncio
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

import rockhopper
from rockhopper import (
    ClientError,
    ClientStateError,
    Message,
    Middleware,
    Processing,
    ReceivedMessage,
    RetryLater,
    ThreadedBroker,
)
from rockhopper.client.middleware.hooks import ProcessNext
from rockhopper.sync import Admin, Consumer, Producer, PullConsumer
from tests.support.hang import HANG_S


def send(count: int, topic: str = "orders") -> None:
    with Producer(timeout_s=HANG_S) as producer:
        producer.send_batch([Message(topic, b"%d" % number) for number in range(count)])


def lag(group: str) -> int:
    with Admin() as admin:
        return sum(each.lag for each in admin.groups.lag(group))


def test_a_loop_acknowledges_and_an_exception_asks_again(broker: ThreadedBroker) -> None:
    send(3)

    def consume() -> None:
        with Consumer("billing", "orders") as consumer:
            for message in consumer:
                if message.body == b"1":
                    raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        consume()
    with Consumer("billing", "orders") as consumer:
        again = {}
        for message in consumer:
            again[message.body] = message.reconsume_times
            if len(again) == 2:
                break
        assert consumer.assigned
    assert again == {b"1": 1, b"2": 0}
    assert lag("billing") == 0


def test_batches(broker: ThreadedBroker) -> None:
    send(5)
    with Consumer("billing", "orders") as consumer:
        with pytest.raises(ValueError, match="count_max"):
            consumer.batches(0, 1.0)
        sizes = []
        for batch in consumer.batches(3, 0.05):
            sizes.append(len(batch))
            if sum(sizes) == 5:
                break
        consumer.pause("orders")
        assert consumer.paused == ["orders"]
    assert sizes[0] == 3


def test_handlers_run_in_threads_and_ask_again_by_raising(broker: ThreadedBroker) -> None:
    send(8)
    together = threading.Barrier(4)
    seen: list[tuple[bytes, int]] = []

    def handle(message: ReceivedMessage) -> None:
        if not seen:
            together.wait(HANG_S)
        seen.append((message.body, message.reconsume_times))
        if message.body == b"5" and not message.reconsume_times:
            raise RetryLater(delay_s=0)
        if len(seen) == 9:
            consumer.stop()

    with Consumer("billing", "orders") as consumer:
        consumer.run(handle, concurrency=4)
    assert sorted(seen) == sorted([(b"%d" % n, 0) for n in range(8)] + [(b"5", 1)])
    assert lag("billing") == 0


def test_a_handler_sees_what_a_middleware_set_around_it(broker: ThreadedBroker) -> None:
    send(1)
    tenant = ContextVar("tenant", default="none")
    seen: list[str] = []

    class Tenants(Middleware):
        async def on_process(self, processing: Processing, call_next: ProcessNext) -> object:
            tenant.set("acme")
            return await call_next(processing)

    def handle(_message: ReceivedMessage) -> None:
        seen.append(tenant.get())
        consumer.stop()

    with Consumer("billing", "orders", middleware=[Tenants()]) as consumer:
        consumer.run(handle)
    assert seen == ["acme"]


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals go to the main one"
)
@pytest.mark.parametrize("wakes", [True, False])
def test_an_interrupt_lets_handlers_finish(broker: ThreadedBroker, wakes: bool) -> None:
    """Also one that does not wake the thread, as if it had come before the thread waits."""
    signal.siginterrupt(signal.SIGINT, wakes)
    send(1)
    finish = threading.Event()
    main = threading.get_ident()

    def handle(message: ReceivedMessage) -> None:
        # As Ctrl-C does, while the main thread waits for `run`.
        signal.pthread_kill(main, signal.SIGINT)
        finish.wait(0.05)

    def consume() -> None:
        with Consumer("billing", "orders") as consumer:
            consumer.run(handle, concurrency=1)

    try:
        with pytest.raises(KeyboardInterrupt):
            consume()
    finally:
        signal.siginterrupt(signal.SIGINT, True)
    assert lag("billing") == 0


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals go to the main one"
)
def test_a_second_interrupt_does_not_wait_for_handlers(
    broker: ThreadedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(1)
    finish = threading.Event()
    main = threading.get_ident()
    stop = rockhopper.Consumer.stop

    def stop_and_interrupt(consumer: rockhopper.Consumer) -> None:
        stop(consumer)
        signal.pthread_kill(main, signal.SIGINT)

    def handle(message: ReceivedMessage) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        finish.wait(HANG_S)

    cancelled = threading.Event()

    class Cancelled(Middleware):
        async def on_process(self, processing: Processing, call_next: ProcessNext) -> object:
            try:
                return await call_next(processing)
            except asyncio.CancelledError:
                cancelled.set()
                raise

    monkeypatch.setattr(rockhopper.Consumer, "stop", stop_and_interrupt)
    interrupted = Consumer("billing", "orders", middleware=[Cancelled()])
    with pytest.raises(KeyboardInterrupt):
        interrupted.run(handle, concurrency=1)
    assert cancelled.wait(HANG_S)
    interrupted.close()
    with Consumer("billing", "orders") as consumer:
        assert next(iter(consumer)).reconsume_times == 1
    finish.set()


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals go to the main one"
)
def test_a_signal_handler_stops_a_consumer_while_it_starts() -> None:
    main = threading.get_ident()
    refused: list[ClientStateError] = []
    handled = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nameserver = "{}:{}".format(*silent.getsockname())
        consumer = Consumer("billing", "orders", nameserver=nameserver, request_timeout_s=HANG_S)

        def stop(*_: object) -> None:
            consumer.stop()
            try:
                consumer.pause()
            except ClientStateError as error:
                refused.append(error)
            handled.set()

        def interrupt() -> None:
            with silent.accept()[0]:
                signal.pthread_kill(main, signal.SIGTERM)
                handled.wait(HANG_S)
            silent.close()

        before = signal.signal(signal.SIGTERM, stop)
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        try:
            with pytest.raises(ClientError):
                consumer.start()
        finally:
            interrupting.join(HANG_S)
            signal.signal(signal.SIGTERM, before)
    assert "signal handler" in str(refused[0])


def test_a_stop_before_the_first_call_ends_the_first_loop(broker: ThreadedBroker) -> None:
    send(1)
    consumer = Consumer("billing", "orders")
    consumer.stop()
    with consumer:
        assert list(consumer) == []
    assert lag("billing") == 1


def test_a_handler_that_exits_ends_run_and_has_its_message_again(broker: ThreadedBroker) -> None:
    send(1)

    def consume() -> None:
        with Consumer("billing", "orders") as consumer:
            consumer.run(lambda _message: sys.exit(5), concurrency=2)

    with pytest.raises(SystemExit) as ended:
        consume()
    assert ended.value.code == 5
    with Consumer("billing", "orders") as consumer:
        assert next(iter(consumer)).reconsume_times == 1


class Handler:
    async def __call__(self, message: ReceivedMessage) -> None: ...


@pytest.mark.parametrize("handler", [asyncio.sleep, Handler()])
def test_a_coroutine_function_is_no_handler(broker: ThreadedBroker, handler: Any) -> None:
    with pytest.raises(TypeError, match="clients of rockhopper"):
        Consumer("billing", "orders").run(handler)


def test_a_coroutine_that_a_handler_returns_is_a_failure(broker: ThreadedBroker) -> None:
    send(1)

    def handle(message: ReceivedMessage) -> object:
        consumer.stop()
        return Handler()(message)

    with Consumer("billing", "orders") as consumer:
        consumer.run(handle)
    with Consumer("billing", "orders") as consumer:
        assert next(iter(consumer)).reconsume_times == 1


def test_another_thread_may_close_a_pull_consumer_that_waits(broker: ThreadedBroker) -> None:
    send(1)
    with PullConsumer("orders") as consumer, ThreadPoolExecutor() as threads:
        messages = iter(consumer)
        next(messages)
        looping, pulling = threads.submit(list, messages), threads.submit(consumer.pull)
        consumer.close()
        assert looping.result(HANG_S) == []
        with pytest.raises(ClientStateError, match="this client is closed"):
            pulling.result(HANG_S)


def test_a_pull_consumer_reads_seeks_and_commits(broker: ThreadedBroker) -> None:
    send(3)
    with PullConsumer("orders", group="audit") as consumer:
        first = next(iter(consumer))
        assert consumer.position(first.queue) == first.queue_offset + 1
        consumer.seek(first.queue, "earliest")
        assert [each.body for each in consumer.pull(3, timeout_s=HANG_S)] == [b"0", b"1", b"2"]
        consumer.commit()
        assert consumer.committed(first.queue) == consumer.end_offset(first.queue) == 3
        assert first.queue in consumer.assigned
