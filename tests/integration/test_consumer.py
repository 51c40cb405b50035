"""Our Consumer against our broker: what counts as consumed, closing, handlers, restarts."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.app import TEMPORARY_SETTINGS
from rockhopper.broker.settings.config_file import build_config
from rockhopper.client import ClientStateError, Message, Producer, ReplyTimeoutError, RetryLater
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.billing import (
    AT_ONCE,
    NEXT_ROUND_S,
    billing,
    committed,
    leave_with,
    send,
    sent_back,
    take,
)
from tests.support.direct import short_send_fields
from tests.support.features import needs
from tests.support.hang import HANG_S
from tests.support.turns import until
from tests.support.wire import WireClient


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(AT_ONCE) as broker:
        yield broker


async def test_a_clean_close_commits_everything_and_nothing_comes_again(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 100)
    async with billing(broker) as consumer:
        await take(consumer, 100)
    assert committed(broker) == 100
    async with billing(broker) as consumer:
        await producer.send("orders", b"next", queue=0)
        (message,) = await take(consumer, 1)
        assert message.body == b"next"
    assert committed(broker) == 101


async def test_asking_for_the_next_message_acknowledges_the_last_one(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 5)
    async with billing(broker) as consumer:
        messages = aiter(consumer)
        await anext(messages)
        await anext(messages)
        await anext(messages)
        await consumer.commit()
        assert committed(broker) == 2


async def test_leaving_with_break_acknowledges_the_last_message_and_returns_those_ahead(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 50)
    async with billing(broker) as consumer:
        await take(consumer, 7)
    assert committed(broker) == 7
    assert sent_back(broker) == 0
    async with billing(broker) as consumer:
        (message,) = await take(consumer, 1)
    assert (message.body, message.reconsume_times) == (b"7", 0)


async def test_returning_from_inside_acknowledges_the_last_message(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 3)

    async def first() -> bytes:
        async with billing(broker) as consumer:
            async for message in consumer:
                return message.body
        raise AssertionError

    assert await first() == b"0"
    assert committed(broker) == 1
    assert sent_back(broker) == 0


async def test_an_exception_asks_for_the_unfinished_message_only(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 10)
    with pytest.raises(ZeroDivisionError):
        await leave_with(ZeroDivisionError(), billing(broker), 4)
    assert committed(broker) == 4
    assert sent_back(broker) == 1
    async with billing(broker) as consumer:
        messages = await take(consumer, 7)
    assert [m.body for m in messages if m.reconsume_times == 0] == [b"%d" % n for n in range(4, 10)]
    (again,) = [message for message in messages if message.reconsume_times]
    assert (again.body, again.topic, again.reconsume_times) == (b"3", "orders", 1)


async def test_cancellation_asks_for_the_unfinished_message(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 3)
    reached = asyncio.Event()

    async def work() -> None:
        async with billing(broker) as consumer:
            async for _message in consumer:
                reached.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert committed(broker) == 1
    assert sent_back(broker) == 1


async def test_a_cancellation_while_waiting_for_a_message_loses_nothing(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 1)
    async with billing(broker) as consumer:
        messages = aiter(consumer)
        await anext(messages)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(messages)
        await send(producer, 1, first=1)
        assert (await anext(messages)).body == b"1"
    assert committed(broker) == 2


async def test_a_new_loop_over_an_unfinished_message_asks_for_it_again(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 4)
    async with billing(broker) as consumer:
        old = aiter(consumer)
        assert (await anext(old)).body == b"0"
        messages = await take(consumer, 4)
        with pytest.raises(ClientStateError, match="another loop"):
            await anext(old)
    bodies = sorted((message.body, message.reconsume_times) for message in messages)
    assert bodies == [(b"0", 1), (b"1", 0), (b"2", 0), (b"3", 0)]
    assert committed(broker) == 4


async def test_a_handler_acknowledges_by_returning_and_asks_again_by_raising(
    broker: Broker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    await send(producer, 20)
    seen: list[tuple[bytes, int]] = []
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        seen.append((message.body, message.reconsume_times))
        if len(seen) == 22:
            done.set()
        if message.reconsume_times == 0:
            if message.body == b"7":
                raise RetryLater(delay_level=1)
            if message.body == b"8":
                raise ValueError("no such customer")

    async with billing(broker) as consumer:
        running = asyncio.create_task(consumer.run(handle, concurrency=4))
        await done.wait()
    await running
    assert sorted(message for message in seen if message[1]) == [(b"7", 1), (b"8", 1)]
    assert committed(broker) == 20
    assert committed(broker, topic="%RETRY%billing") == 2
    (warning,) = [record for record in caplog.records if "handler failed" in record.message]
    assert warning.exc_info is not None


async def test_handlers_work_side_by_side_up_to_the_concurrency(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 12)
    inside = 0
    full = asyncio.Event()
    go_on = asyncio.Event()

    async def handle(_message: ReceivedMessage) -> None:
        nonlocal inside
        inside += 1
        if inside == 5:
            full.set()
        assert inside <= 5 or go_on.is_set()
        await go_on.wait()

    async with billing(broker, handler=handle, concurrency=5) as consumer:
        await full.wait()
        await consumer.commit()
        assert committed(broker) == 0
        go_on.set()
        await until(lambda: inside == 12)
    assert committed(broker) == 12


async def test_a_message_that_takes_long_holds_the_commit_back(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 10)
    go_on = asyncio.Event()
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"3":
            await go_on.wait()
        seen.append(message.body)

    async with billing(broker, handler=handle, concurrency=4) as consumer:
        await until(lambda: len(seen) == 9)
        await consumer.commit()
        assert committed(broker) == 3
        go_on.set()
    assert committed(broker) == 10


async def test_a_handler_whose_own_work_was_cancelled_has_failed_like_any_other(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 3)
    tries: list[bytes] = []
    consumer = billing(broker)

    async def handle(message: ReceivedMessage) -> None:
        tries.append(message.body)
        if message.reconsume_times == 0:
            work = asyncio.create_task(asyncio.sleep(60))
            work.cancel()
            await work
        if len(tries) == 6:
            consumer.stop()

    async with consumer:
        await consumer.run(handle, concurrency=1)
    assert sorted(tries) == [b"0", b"0", b"1", b"1", b"2", b"2"]


async def test_cancelling_run_leaves_the_consumer_usable(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 3)
    inside = asyncio.Event()

    async def hang(_message: ReceivedMessage) -> None:
        inside.set()
        await asyncio.Event().wait()

    async with billing(broker) as consumer:
        running = asyncio.create_task(consumer.run(hang, concurrency=1))
        await inside.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        messages = await take(consumer, 3)
    assert sorted(message.body for message in messages) == [b"0", b"1", b"2"]


def broker_on(root: Path, ports: dict[str, str]) -> Broker:
    settings = TEMPORARY_SETTINGS | {"storePathRootDir": str(root)} | ports
    return Broker(build_config(settings))


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_broker_that_restarts_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, orderly: bool
) -> None:
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    loop = asyncio.get_running_loop()
    async with broker_on(tmp_path, {}) as broker:
        ports = {
            "listenPort": str(broker.servers.remoting.port),
            "namesrvPort": broker.nameserver.rpartition(":")[2],
        }
        async with Producer(broker.nameserver) as producer:
            await send(producer, 10)
        consumer = await billing(broker, handler=handle, orderly=orderly).start()
        await until(lambda: len(seen) == 10)
    async with broker_on(tmp_path, ports) as broker:
        back_at = loop.time()
        async with Producer(broker.nameserver) as producer:
            await send(producer, 10, first=10)
        await until(lambda: len(seen) >= 20)
        assert loop.time() - back_at < NEXT_ROUND_S
        await consumer.close()
        assert sorted(seen, key=int) == [b"%d" % n for n in range(20)]
        assert committed(broker) == 20
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == []


async def test_used_before_its_start_or_after_its_end_a_consumer_says_so(broker: Broker) -> None:
    consumer = billing(broker)
    with pytest.raises(ClientStateError, match="not started"):
        await take(consumer, 1)
    await consumer.start()
    await consumer.close()
    await consumer.close()
    with pytest.raises(ClientStateError, match="closed"):
        await take(consumer, 1)


async def test_stop_ends_a_loop(broker: Broker, producer: Producer) -> None:
    await send(producer, 3)
    seen = []
    async with billing(broker) as consumer:
        async for message in consumer:
            seen.append(message.body)
            consumer.stop()
    assert seen == [b"0"]
    assert committed(broker) == 1


async def test_close_ends_a_loop_that_has_a_message_in_work(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 3)
    seen = []
    async with billing(broker) as consumer:
        async for message in consumer:
            seen.append(message.body)
            await consumer.close()
    assert seen == [b"0"]
    assert committed(broker) == 1


async def test_a_batch_is_consumed_message_by_message(broker: Broker, producer: Producer) -> None:
    await producer.send_batch([Message("orders", b"%d" % n) for n in range(64)], queue=0)
    async with billing(broker) as consumer:
        messages = await take(consumer, 64)
    assert [message.body for message in messages] == [b"%d" % n for n in range(64)]


async def test_close_leaves_handlers_behind_that_swallow_their_cancellation(
    broker: Broker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    await send(producer, 1)
    inside, end = asyncio.Event(), asyncio.Event()
    handling: list[asyncio.Task[None] | None] = []

    async def stubborn(_message: ReceivedMessage) -> None:
        handling.append(asyncio.current_task())
        inside.set()
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()

    consumer = await billing(broker, handler=stubborn, close_timeout_s=0.0).start()
    await inside.wait()
    await consumer.close()
    assert "did not stop when cancelled" in caplog.text
    waited_for = asyncio.all_tasks()  # by asyncio.run
    end.set()
    assert handling[0] not in waited_for
    left = broker.kernel.consumers.get("billing")
    assert left is None or not left.client_ids()
    async with billing(broker) as another:
        assert [message.body for message in await take(another, 1)] == [b"0"]


@needs("request_reply")
async def test_a_responder_is_not_run_again_when_its_requester_has_gone(
    broker: Broker, producer: Producer
) -> None:
    asked: list[bytes] = []
    gone, done = asyncio.Event(), asyncio.Event()

    async def answer(message: ReceivedMessage) -> None:
        asked.append(message.body)
        if message.body == b"last":
            done.set()
            return
        await gone.wait()
        await producer.reply(message, b"too late")

    async with billing(broker, handler=answer, concurrency=1) as consumer:
        async with Producer(broker.nameserver) as requester:
            asking = asyncio.create_task(
                requester.request(Message("orders", b"charge 7"), queue=0, timeout_s=HANG_S)
            )
            await until(lambda: len(asked) == 1)
            asking.cancel()
        gone.set()
        await producer.send("orders", b"last", queue=0)
        await done.wait()
        assert (consumer.engine.handout.finished, consumer.engine.handout.failed) == (1, 0)


async def test_a_request_older_than_its_time_out_is_not_handled(
    broker: Broker, producer: Producer
) -> None:
    asked: list[bytes] = []
    done = asyncio.Event()
    with pytest.raises(ReplyTimeoutError):
        await producer.request(Message("orders", b"charge 7"), queue=0, timeout_s=0.2)
    await producer.send("orders", b"last", queue=0)
    stored_by_s = time.time()
    await until(lambda: time.time() > stored_by_s + 0.2)

    async def answer(message: ReceivedMessage) -> None:
        asked.append(message.body)
        done.set()

    async with billing(broker, handler=answer, concurrency=1):
        await done.wait()
    assert asked == [b"last"]
    assert committed(broker) == 2


async def send_request(
    broker: Broker, body: bytes, *, ttl_ms: int, requester_ahead_ms: int = 0
) -> None:
    """A request of a client whose clock is that far ahead of everybody else's."""
    fields = short_send_fields("orders", 0)
    fields["g"] = str(time.time_ns() // 1_000_000 + requester_ahead_ms)
    fields["i"] = f"TTL\x01{ttl_ms}\x02REPLY_TO_CLIENT\x01c\x02CORRELATION_ID\x01i\x02"
    async with WireClient(broker.address) as requester:
        sent = await requester.ask(RequestCode.SEND_MESSAGE_V2, fields, body)
        assert sent.code == ResponseCode.SUCCESS, sent


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
async def test_the_age_of_a_request_does_not_depend_on_the_clock_of_its_requester(
    broker: Broker, ahead_ms: int
) -> None:
    asked: list[bytes] = []
    done = asyncio.Event()

    async def answer(message: ReceivedMessage) -> None:
        asked.append(message.body)
        done.set()

    await send_request(broker, b"too old", ttl_ms=0, requester_ahead_ms=ahead_ms)
    in_time_ms = round(HANG_S * 1000)
    await send_request(broker, b"in time", ttl_ms=in_time_ms, requester_ahead_ms=ahead_ms)
    async with billing(broker, handler=answer, concurrency=1):
        await done.wait()
    assert asked == [b"in time"]


async def test_the_age_of_a_request_does_not_depend_on_the_clock_of_its_responder(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = asyncio.Event()

    async def answer(_message: ReceivedMessage) -> None:
        done.set()

    await send_request(broker, b"in time", ttl_ms=round(HANG_S * 1000))
    time_ns = time.time_ns
    async with billing(broker, handler=answer, concurrency=1):
        monkeypatch.setattr(time, "time_ns", lambda: time_ns() + 3_600_000_000_000)
        await done.wait()


async def test_a_request_that_failed_is_not_asked_for_again_for_nobody(broker: Broker) -> None:
    """The first retry would come after ten seconds."""
    asked: list[bytes] = []

    async def fail(message: ReceivedMessage) -> None:
        asked.append(message.body)
        raise RuntimeError("on purpose")

    await send_request(broker, b"charge 7", ttl_ms=9_000)
    async with billing(broker, handler=fail, concurrency=1) as consumer:
        handout = consumer.engine.handout
        await until(lambda: handout.finished + handout.failed == 1)
        assert (handout.finished, handout.failed) == (1, 0)
    assert asked == [b"charge 7"]
