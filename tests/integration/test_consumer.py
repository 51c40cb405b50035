"""Our Consumer against our broker: what counts as consumed, redelivery, restarts, broadcast."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from broker import Broker
from broker.broker import TEMPORARY_SETTINGS
from broker.config_file import build_config
from client import (
    Admin,
    ClientStateError,
    Consumer,
    Message,
    Producer,
    PullConsumer,
    RequestRefusedError,
    RetryLater,
    Sql,
)
from client.queues import MessageQueue
from client.received import ReceivedMessage
from protocol.codes import RequestCode
from protocol.errors import SubscriptionError
from protocol.names import dlq_topic
from tests.support.turns import until

QUICK_LEVELS = " ".join(["0s"] * 18)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary({"messageDelayLevel": QUICK_LEVELS}) as broker:
        yield broker


@pytest.fixture
async def producer(broker: Broker) -> AsyncIterator[Producer]:
    async with Producer(broker.nameserver) as producer:
        yield producer


def billing(broker: Broker, **options: object) -> Consumer:
    return Consumer("billing", "orders", nameserver=broker.nameserver, **options)  # type: ignore[arg-type]


async def send(producer: Producer, count: int, first: int = 0, topic: str = "orders") -> None:
    """Send numbered messages to one queue, so that their order is known."""
    for number in range(first, first + count):
        await producer.send(topic, b"%d" % number, queue=0)


async def take(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    """Read with a loop of its own, which leaves the last message unfinished."""
    messages: list[ReceivedMessage] = []
    async for message in consumer:
        messages.append(message)
        if len(messages) == count:
            break
    return messages


async def leave_with(error: Exception, consumer: Consumer, count: int) -> None:
    """Read some messages, then fail."""
    async with consumer:
        await take(consumer, count)
        raise error


def committed(broker: Broker, group: str = "billing", topic: str = "orders") -> int | None:
    return broker.offsets.get(topic, group, 0)


def sent_back(broker: Broker, group: str = "billing") -> int:
    """How many messages of the group were asked for again."""
    return broker.store.queue_range("SCHEDULE_TOPIC_XXXX", 2)[1]


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


async def test_a_loop_may_ask_for_its_message_again_and_go_on(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 3)
    seen: list[tuple[bytes, int]] = []
    async with billing(broker) as consumer:
        async for message in consumer:
            seen.append((message.body, message.reconsume_times))
            if seen == [(b"0", 0)]:
                await consumer.retry_later(message, delay_level=1)
            if len(seen) == 4:
                break
    assert seen[0] == (b"0", 0)
    assert sorted(seen) == [(b"0", 0), (b"0", 1), (b"1", 0), (b"2", 0)]


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


async def test_a_message_that_fails_for_ever_ends_in_the_dead_letters(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 3)
    times: dict[bytes, list[int]] = {}

    async def fail(message: ReceivedMessage) -> None:
        times.setdefault(message.body, []).append(message.reconsume_times)
        raise RuntimeError("no")

    async with billing(broker, handler=fail, max_reconsume_times=1):
        async with PullConsumer(nameserver=broker.nameserver) as reader:
            dead = MessageQueue(dlq_topic("billing"), "broker-a", 0)
            await until(lambda: broker.topics.get(dead.topic) is not None)
            await reader.assign([dead])
            found = [*await reader.pull(1), *await reader.pull(1), *await reader.pull(1)]
    assert {message.body for message in found} == {b"0", b"1", b"2"}
    assert times == {body: [0, 1] for body in (b"0", b"1", b"2")}
    assert found[0].properties["RETRY_TOPIC"] == "orders"


async def test_delay_level_minus_one_sends_straight_to_the_dead_letters(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 1)
    with pytest.raises(RetryLater):
        await leave_with(RetryLater(delay_level=-1), billing(broker), 1)
    assert broker.store.queue_range(dlq_topic("billing"), 0)[1] == 1
    assert committed(broker) == 1


async def test_a_message_comes_again_after_the_seconds_asked_for_and_the_tries_count() -> None:
    async with (
        Broker.temporary() as broker,
        Producer(broker.nameserver) as producer,
        billing(broker, max_reconsume_times=2) as consumer,
    ):
        sent = await producer.send(Message("orders", b"x", tags="new", keys=["k"], delay_ms=1))
        times: list[float] = []

        async def handle(message: ReceivedMessage) -> None:
            times.append(asyncio.get_running_loop().time())
            assert (message.topic, message.message_id) == ("orders", sent.message_id)
            assert (message.tags, message.keys) == ("new", ["k"])
            assert message.reconsume_times == len(times) - 1
            raise RetryLater(seconds=0.2)

        running = asyncio.create_task(consumer.run(handle))
        async with asyncio.timeout(10):
            await until(lambda: bool(broker.topics.get(dlq_topic("billing"))))
        consumer.stop()
        await running
        assert len(times) == 3
        assert all(after - before >= 0.2 for before, after in pairwise(times))


async def test_in_order_a_queue_rests_for_the_seconds_asked_for(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 2)
    seen: list[tuple[bytes, float]] = []
    consumer = billing(broker, orderly=True, suspend=60)

    async def handle(message: ReceivedMessage) -> None:
        seen.append((message.body, asyncio.get_running_loop().time()))
        if len(seen) == 1:
            raise RetryLater(seconds=0.2)
        if len(seen) == 3:
            consumer.stop()

    async with consumer, asyncio.timeout(10):
        await consumer.run(handle)
    assert [body for body, _ in seen] == [b"0", b"0", b"1"]
    assert seen[1][1] - seen[0][1] >= 0.2


async def test_in_order_a_failed_message_is_tried_again_first(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 5)
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == b"2" and seen.count(b"2") < 3:
            raise RuntimeError("not yet")

    async with billing(broker, orderly=True, handler=handle, concurrency=4, suspend=0.01):
        await until(lambda: b"4" in seen)
    assert seen == [b"0", b"1", b"2", b"2", b"2", b"3", b"4"]
    assert committed(broker) == 5
    assert sent_back(broker) == 0


async def test_in_order_a_message_goes_to_the_dead_letters_after_the_maximum(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 2)
    seen: list[tuple[bytes, int]] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append((message.body, message.reconsume_times))
        if message.body == b"0":
            raise RuntimeError("never")

    options = {"suspend": 0.01, "max_reconsume_times": 2}
    async with billing(broker, orderly=True, handler=handle, **options):
        await until(lambda: (b"1", 0) in seen)
    assert seen == [(b"0", 0), (b"0", 1), (b"0", 2), (b"1", 0)]
    assert broker.store.queue_range(dlq_topic("billing"), 0)[1] == 1


async def test_in_order_an_exception_leaves_the_message_the_first_of_its_queue(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 3)
    with pytest.raises(ZeroDivisionError):
        await leave_with(ZeroDivisionError(), billing(broker, orderly=True), 2)
    assert committed(broker) == 1
    async with billing(broker, orderly=True) as consumer:
        assert [message.body for message in await take(consumer, 2)] == [b"1", b"2"]


async def test_only_the_tags_asked_for_come(broker: Broker, producer: Producer) -> None:
    for tag in ("new", "paid", "old", None, "new"):
        await producer.send("orders", (tag or "none").encode(), tags=tag, queue=0)
    wanted = {"orders": "new || paid"}
    async with Consumer("billing", wanted, nameserver=broker.nameserver) as consumer:
        messages = await take(consumer, 3)
    assert [message.body for message in messages] == [b"new", b"paid", b"new"]
    assert committed(broker) == 5


async def test_a_new_group_starts_where_it_is_told(broker: Broker, producer: Producer) -> None:
    await send(producer, 2)
    first = await producer.send("orders", b"2", queue=0)
    async with PullConsumer("orders", nameserver=broker.nameserver) as reader:
        (stored,) = (await reader.pull_from(first.queue, 2)).messages
    moment = datetime.fromtimestamp((stored.store_time_ms + 1) / 1000)
    await until(lambda: broker.now_ms() > stored.store_time_ms + 1)

    async def starts(group: str, start: object) -> bytes:
        consumer = Consumer(group, "orders", nameserver=broker.nameserver, start_from=start)  # type: ignore[arg-type]
        async with consumer:
            await producer.send("orders", b"for " + group.encode(), queue=0)
            (message,) = await take(consumer, 1)
            return message.body

    assert await starts("late", "latest") == b"for late"
    assert await starts("since", moment) == b"for late"
    assert await starts("since-ms", round(moment.timestamp() * 1000)) == b"for late"
    assert await starts("early", "earliest") == b"0"


async def test_where_a_group_starts_is_remembered_though_nothing_came(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 2)
    async with billing(broker, start_from="latest"):
        pass
    await send(producer, 1, first=2)
    async with billing(broker, start_from="latest") as consumer:
        assert (await take(consumer, 1))[0].body == b"2"


async def test_a_topic_that_comes_later_is_read_from_its_beginning(
    broker: Broker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    async with billing(broker, start_from="latest") as consumer:
        (warning,) = [r.message for r in caplog.records if "does not exist" in r.message]
        assert "rockhopper topic create orders" in warning
        await send(producer, 2)
        async with asyncio.timeout(5):
            assert [message.body for message in await take(consumer, 2)] == [b"0", b"1"]


async def test_queues_that_are_added_are_read_from_their_beginning(
    broker: Broker, producer: Producer
) -> None:
    async with Admin(broker.nameserver) as admin:
        await admin.create_topic("orders", queues=1)
        async with billing(broker, start_from="latest") as consumer:
            await admin.create_topic("orders", queues=2)
            async with Producer(broker.nameserver) as other:
                await other.send("orders", b"x", queue=1)
            await consumer._engine.session.keep_up_once()
            assert (await take(consumer, 1))[0].body == b"x"


async def test_an_expression_selects_by_properties(broker: Broker, producer: Producer) -> None:
    for price in ("4", "6", "5", "70"):
        await producer.send("orders", price.encode(), queue=0, properties={"price": price})
    wanted = {"orders": Sql("price > 5")}
    async with Consumer("billing", wanted, nameserver=broker.nameserver) as consumer:
        assert [message.body for message in await take(consumer, 2)] == [b"6", b"70"]


def test_an_expression_that_is_none_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(SubscriptionError, match="expression ends"):
        Consumer("billing", {"orders": Sql("price >")})


async def test_a_broker_that_does_not_filter_by_expressions_is_an_error_at_the_start() -> None:
    async with Broker.temporary({"enablePropertyFilter": "false"}) as broker:
        async with Producer(broker.nameserver) as producer:
            await send(producer, 1)
        wanted = {"orders": Sql("price > 5")}
        with pytest.raises(RequestRefusedError, match="SQL92"):
            await Consumer("billing", wanted, nameserver=broker.nameserver).start()


async def test_a_group_that_may_not_be_created_is_an_error_with_a_remedy() -> None:
    async with Broker.temporary({"autoCreateSubscriptionGroup": "false"}) as broker:
        async with Producer(broker.nameserver) as producer:
            await send(producer, 1)
        with pytest.raises(RequestRefusedError, match="create the group") as caught:
            async with billing(broker) as consumer, asyncio.timeout(10):
                await take(consumer, 1)
        assert caught.value.code == 26


async def test_a_reset_by_an_operator_is_followed_at_once(
    broker: Broker, producer: Producer
) -> None:
    await send(producer, 5)
    async with billing(broker) as consumer:
        messages = aiter(consumer)
        for _ in range(5):
            await anext(messages)
        ext = {"topic": "orders", "group": "billing", "timestamp": "0", "isForce": "true"}
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        await producer._session.request(broker.address, code, ext)
        async with asyncio.timeout(5):
            assert [(await anext(messages)).body for _ in range(5)] == [b"%d" % n for n in range(5)]
    assert committed(broker) == 5


async def test_a_broadcast_group_gives_every_member_everything_and_remembers_in_a_file(
    broker: Broker, producer: Producer, tmp_path: Path
) -> None:
    await send(producer, 3)
    options = {"broadcast": True, "offsets_directory": tmp_path}
    async with billing(broker, **options) as one, billing(broker, **options) as other:
        assert [message.body for message in await take(one, 3)] == [b"0", b"1", b"2"]
        assert [message.body for message in await take(other, 2)] == [b"0", b"1"]
        with pytest.raises(ZeroDivisionError):
            await leave_with(ZeroDivisionError(), billing(broker, **options), 1)
    assert len(list(tmp_path.glob("*@DEFAULT*/billing/offsets.json"))) == 3
    assert sent_back(broker) == 0
    assert committed(broker) is None
    async with billing(broker, **options) as one, billing(broker, **options) as other:
        assert (await take(other, 1))[0].body == b"2"
        await send(producer, 1, first=3)
        assert (await take(one, 1))[0].body == b"3"


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
            "listenPort": str(broker.server.port),
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
        assert loop.time() - back_at < 2.0
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
