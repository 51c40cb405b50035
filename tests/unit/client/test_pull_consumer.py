"""PullConsumer: what is read, from where, and what is committed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from rockhopper.broker import Broker
from rockhopper.client import (
    ClientStateError,
    Producer,
    PullConsumer,
    RequestRefusedError,
    RouteNotFoundError,
    pull_consumer,
)
from rockhopper.client.consuming import queue_reader
from rockhopper.client.middleware.hooks import Middleware, ReceiveNext, Receiving
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.command import Command
from tests.support.fake_broker import FakeBroker
from tests.support.fake_server import route
from tests.support.hang import HANG_S
from tests.support.turns import until

QUEUE_0 = MessageQueue("orders", "a", 0)
QUEUE_1 = MessageQueue("orders", "a", 1)


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        yield broker


def consumer(broker: FakeBroker, **options: object) -> PullConsumer:
    return PullConsumer("orders", nameserver=broker.address, **options)  # type: ignore[arg-type]


async def take(consumer: PullConsumer, count: int) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    async for message in consumer:
        messages.append(message)
        if len(messages) == count:
            break
    return messages


def bodies(messages: list[ReceivedMessage], queue_id: int = 0) -> list[bytes]:
    return [message.body for message in messages if message.queue.queue_id == queue_id]


async def test_all_queues_of_the_topic_are_read_each_in_its_order(broker: FakeBroker) -> None:
    await broker.append(0, *(b"a%d" % n for n in range(100)))
    await broker.append(1, *(b"b%d" % n for n in range(50)))
    async with consumer(broker) as reader:
        messages = await take(reader, 150)
    assert bodies(messages, 0) == [b"a%d" % n for n in range(100)]
    assert bodies(messages, 1) == [b"b%d" % n for n in range(50)]


async def test_one_busy_queue_does_not_keep_another_waiting(broker: FakeBroker) -> None:
    await broker.append(0, *(b"a" for _ in range(100)))
    await broker.append(1, b"b")
    async with consumer(broker) as reader:
        await take(reader, 1)
        await broker.wait_for(11, 2)
        messages = await take(reader, 40)
    assert b"b" in bodies(messages, 1)


async def test_a_message_that_arrives_while_the_broker_holds_the_request_is_read_at_once(
    broker: FakeBroker,
) -> None:
    async with consumer(broker) as reader:
        waiting = asyncio.create_task(reader.pull())
        await broker.wait_for(11, 2)
        await broker.append(1, b"news")
        (message,) = await waiting
    assert message.body == b"news"
    requests = broker.requests_of(11)
    assert {(request.ext or {})["sysFlag"] for request in requests} == {"6"}
    assert {(request.ext or {})["suspendTimeoutMillis"] for request in requests} == {"15000"}


@pytest.mark.parametrize(("count", "wrong"), [(0, ValueError), (-1, ValueError), (0.5, TypeError)])
async def test_a_pull_of_no_messages_is_refused(
    broker: FakeBroker, count: Any, wrong: type[Exception]
) -> None:
    async with consumer(broker) as puller:
        with pytest.raises(wrong, match="max_count is"):
            await puller.pull(count, timeout_s=0)


async def test_a_pull_that_finds_nothing_in_time_is_empty(broker: FakeBroker) -> None:
    async with consumer(broker) as reader:
        assert await reader.pull(timeout_s=0.01) == []


async def test_a_cancelled_pull_loses_nothing(broker: FakeBroker) -> None:
    async with consumer(broker) as reader:
        waiting = asyncio.create_task(reader.pull())
        await broker.wait_for(11, 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await broker.append(0, b"x")
        assert bodies(await reader.pull()) == [b"x"]


async def test_a_close_ends_a_pull_that_waits(broker: FakeBroker) -> None:
    async with asyncio.timeout(HANG_S), consumer(broker) as reader:
        waiting = asyncio.create_task(reader.pull())
        await broker.wait_for(11, 2)
        await reader.close()
        with pytest.raises(ClientStateError, match="this client is closed"):
            await waiting
        with pytest.raises(ClientStateError, match="this client is closed"):
            await reader.pull()


class Passing(Middleware):
    async def on_receive(
        self, receiving: Receiving, call_next: ReceiveNext
    ) -> Sequence[ReceivedMessage]:
        return await call_next(receiving)


@pytest.mark.parametrize("middleware", [[], [Passing()]], ids=["plain", "hooked"])
async def test_a_close_ends_a_loop_that_waits(
    broker: FakeBroker, middleware: list[Middleware]
) -> None:
    async with asyncio.timeout(HANG_S), consumer(broker, middleware=middleware) as reader:
        waiting = asyncio.create_task(take(reader, 1))
        await broker.wait_for(11, 2)
        await reader.close()
        assert await waiting == []
        with pytest.raises(ClientStateError, match="this client is closed"):
            await take(reader, 1)


@pytest.mark.parametrize("middleware", [[], [Passing()]], ids=["plain", "hooked"])
async def test_a_loop_may_close_its_own_consumer(
    broker: FakeBroker, middleware: list[Middleware]
) -> None:
    await broker.append(0, b"first", b"second")
    received: list[bytes] = []
    async with asyncio.timeout(HANG_S), consumer(broker, middleware=middleware) as reader:
        async for message in reader:
            received.append(message.body)
            await reader.close()
    assert received == [b"first"]


async def test_tags_that_only_share_their_hash_are_left_out(broker: FakeBroker) -> None:
    await broker.append(0, b"1", tag="new")
    await broker.append(0, b"2", tag="north")  # passes the fake broker's filter by first letter
    await broker.append(0, b"3", tag="paid")
    await broker.append(0, b"4", tag="old")
    async with consumer(broker, tags="new || paid") as reader:
        assert bodies(await take(reader, 2)) == [b"1", b"3"]
    assert (broker.requests_of(11)[0].ext or {})["subscription"] == "new || paid"


async def test_the_position_goes_past_messages_that_were_filtered_out(broker: FakeBroker) -> None:
    await broker.append(0, *(b"%d" % n for n in range(40)), tag="old")
    await broker.append(0, b"wanted", tag="new")
    await broker.append(0, b"more", tag="old")
    async with consumer(broker, tags="new", group="g") as reader:
        await take(reader, 1)
        await reader.commit()
    assert broker.committed["g", 0] >= 41


async def test_a_group_goes_on_where_it_committed(broker: FakeBroker) -> None:
    await broker.append(0, *(b"%d" % n for n in range(10)))
    async with consumer(broker, group="g") as reader:
        assert bodies(await take(reader, 4)) == [b"0", b"1", b"2", b"3"]
        await reader.commit()
    assert broker.committed["g", 0] == 4
    async with consumer(broker, group="g") as reader:
        assert bodies(await take(reader, 1)) == [b"4"]
        assert await reader.committed(QUEUE_0) == 4


async def test_nothing_is_committed_that_was_only_read_ahead(broker: FakeBroker) -> None:
    await broker.append(0, *(b"%d" % n for n in range(10)))
    async with consumer(broker, group="g") as reader:
        async for message in reader:
            assert message.body == b"0"
            await reader.commit()
            break
    assert broker.committed["g", 0] == 1


async def test_a_commit_can_name_a_message_or_offsets(broker: FakeBroker) -> None:
    await broker.append(0, *(b"%d" % n for n in range(10)))
    async with consumer(broker, group="g") as reader:
        messages = await take(reader, 6)
        await reader.commit(messages[2])
        assert broker.committed["g", 0] == 3
        await reader.commit({QUEUE_1: 17})
        assert broker.committed["g", 1] == 17


async def test_a_group_is_known_to_the_broker_before_anything_is_committed(
    broker: FakeBroker,
) -> None:
    async with consumer(broker, group="g"):
        codes = [request.code for request in broker.requests]
    assert codes.index(34) < codes.index(14)
    body = broker.requests_of(34)[-1].body
    assert b'"groupName":"g"' in body
    assert b'"topic":"orders"' in body


async def test_without_a_group_there_is_nothing_to_commit_to(broker: FakeBroker) -> None:
    async with consumer(broker) as reader:
        assert await reader.committed(QUEUE_0) is None
        with pytest.raises(ClientStateError, match="group"):
            await reader.commit()
        await reader.pull(timeout_s=0.01)
    assert {(request.ext or {})["consumerGroup"] for request in broker.requests_of(11)} == {
        "TOOLS_CONSUMER"
    }


async def test_latest_is_what_was_latest_when_the_consumer_was_opened(broker: FakeBroker) -> None:
    await broker.append(0, b"old")
    async with consumer(broker, start_from="latest") as reader:
        await broker.append(0, b"new")
        assert bodies(await take(reader, 1)) == [b"new"]


async def test_seeking_drops_what_was_read_ahead(broker: FakeBroker) -> None:
    await broker.append(0, *(b"%d" % n for n in range(100)))
    broker.min_offsets[0] = 5
    async with consumer(broker) as reader:
        assert bodies(await take(reader, 3)) == [b"5", b"6", b"7"]
        await reader.seek(QUEUE_0, 50)
        assert reader.position(QUEUE_0) == 50
        assert bodies(await take(reader, 2)) == [b"50", b"51"]
        await reader.seek(QUEUE_0, "earliest")
        assert bodies(await take(reader, 1)) == [b"5"]
        await reader.seek(QUEUE_0, "latest")
        assert reader.position(QUEUE_0) == 100
        # The fake broker takes a time in ms for an offset.
        await reader.seek(QUEUE_0, datetime.fromtimestamp(0.020, UTC))
        assert bodies(await take(reader, 1)) == [b"20"]


async def test_seeking_while_the_broker_holds_a_request_takes_effect_at_once(
    broker: FakeBroker,
) -> None:
    await broker.append(0, b"0", b"1")
    async with consumer(broker, start_from="latest") as reader:
        waiting = asyncio.create_task(reader.pull())
        await broker.wait_for(11, 2)
        await reader.seek(QUEUE_0, 0)
        assert bodies(await waiting) == [b"0", b"1"]


async def test_messages_deleted_meanwhile_are_skipped_with_a_warning(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.append(0, *(b"%d" % n for n in range(10)))
    async with consumer(broker) as reader:
        broker.min_offsets[0] = 7
        with caplog.at_level(logging.WARNING):
            assert bodies(await take(reader, 1)) == [b"7"]
    assert "no longer has offset 0 (it holds 7 to 10): continuing at 7" in caplog.text


async def test_assigned_queues_are_read_and_no_others(broker: FakeBroker) -> None:
    await broker.append(0, b"a")
    await broker.append(1, b"b")
    async with PullConsumer(nameserver=broker.address) as reader:
        await reader.assign([QUEUE_1])
        assert reader.assigned == [QUEUE_1]
        assert bodies(await reader.pull(), 1) == [b"b"]
        await reader.assign([QUEUE_0])
        assert bodies(await reader.pull(), 0) == [b"a"]
        await reader.assign([QUEUE_0, QUEUE_1])
        assert reader.position(QUEUE_1) == 1  # it goes on where it was


async def test_queues_that_the_topic_gets_later_are_not_added_to_assigned_ones(
    broker: FakeBroker,
) -> None:
    async with consumer(broker) as reader:
        await reader.assign([QUEUE_1])
        broker.routes["orders"] = route({"a": broker.address}, queues=3)
        await reader.session.keep_up_once()
        await asyncio.gather(*reader.adoptions)
        assert reader.assigned == [QUEUE_1]


async def test_a_queue_that_the_topic_gets_later_is_read_from_its_beginning(
    broker: FakeBroker,
) -> None:
    await broker.append(2, b"early")
    async with consumer(broker, start_from="latest") as reader:
        waiting = asyncio.create_task(reader.pull())
        await broker.wait_for(11, 2)
        broker.routes["orders"] = route({"a": broker.address}, queues=3)
        await reader.session.keep_up_once()
        assert bodies(await waiting, 2) == [b"early"]


async def test_a_queue_that_is_away_for_a_while_goes_on_where_it_was(broker: FakeBroker) -> None:
    await broker.append(1, b"0", b"1", b"2")
    async with consumer(broker) as reader:
        first = await take(reader, 1)
        broker.routes["orders"] = route({"a": broker.address}, queues=1)
        await reader.session.keep_up_once()
        await asyncio.gather(*reader.adoptions)
        assert reader.assigned == [QUEUE_0]
        broker.routes["orders"] = route({"a": broker.address}, queues=2)
        await reader.session.keep_up_once()
        await asyncio.gather(*reader.adoptions)
        rest = await take(reader, 2)
    assert [message.body for message in first + rest] == [b"0", b"1", b"2"]


async def test_a_connection_that_breaks_while_waiting_is_made_again(broker: FakeBroker) -> None:
    async with consumer(broker) as reader:
        waiting = asyncio.create_task(reader.pull())
        await broker.wait_for(11, 2)
        broker.drop_connections()
        await broker.wait_for(11, 4)
        await broker.append(1, b"after")
        assert bodies(await waiting, 1) == [b"after"]


async def test_a_refusal_that_will_not_pass_is_raised_by_the_next_pull(broker: FakeBroker) -> None:
    broker.on(11, lambda request: Command(16, remark="the topic is not readable"))
    async with consumer(broker) as reader:
        with pytest.raises(RequestRefusedError, match="the topic is not readable"):
            await reader.pull()


@pytest.mark.parametrize("looped", [False, True])
async def test_a_topic_that_was_away_is_read_again_by_the_same_consumer(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, *, looped: bool
) -> None:
    monkeypatch.setattr(queue_reader, "_REFUSED_PAUSE_S", 0.0)
    await broker.append(0, b"before")
    pull = broker.handlers[11]
    async with consumer(broker) as reader:

        async def read() -> list[ReceivedMessage]:
            return await (take(reader, 1) if looped else reader.pull())

        assert bodies(await read()) == [b"before"]
        broker.on(11, lambda request: Command(17, remark="topic[orders] not exist"))
        broker.drop_connections()
        for _ in range(2):
            with pytest.raises(RequestRefusedError, match="not exist"):
                await read()
        broker.on(11, pull)
        await broker.append(0, b"after")
        messages: list[ReceivedMessage] = []
        while not messages:
            try:
                messages = await read()
            except RequestRefusedError:  # asked before the topic was there again
                continue
    assert bodies(messages) == [b"after"]


@pytest.mark.parametrize("code", [1, 29])
async def test_a_queue_that_the_topic_lost_is_given_up_at_once(
    broker: FakeBroker, code: int
) -> None:
    pull = broker.handlers[11]

    def refused(request: Command) -> Command | Awaitable[Command]:
        if (request.ext or {})["queueId"] == "1":
            return Command(code, remark="queueId[1] is illegal, topic [orders] has 1 queues")
        return pull(request)  # type: ignore[return-value]

    async with consumer(broker) as reader:
        broker.on(11, refused)
        broker.routes["orders"] = route({"a": broker.address}, queues=1)
        await broker.append(0, b"there")
        assert bodies(await reader.pull()) == [b"there"]
        await until(lambda: reader.assigned == [QUEUE_0])
        assert await reader.pull(timeout_s=0.0) == []  # nothing was raised


async def test_a_topic_that_could_not_be_read_for_a_while_is_followed_still(
    broker: FakeBroker,
) -> None:
    async with consumer(broker) as reader:
        waiting = asyncio.create_task(reader.pull())
        await broker.wait_for(11, 2)
        broker.routes["orders"] = route({"a": broker.address}, queues=0)
        await reader.session.keep_up_once()
        await until(lambda: reader.assigned == [])
        broker.routes["orders"] = route({"a": broker.address}, queues=2)
        await reader.session.keep_up_once()
        await broker.append(0, b"after")
        assert bodies(await waiting) == [b"after"]


async def test_an_unknown_topic_is_an_error_when_the_consumer_is_opened(
    broker: FakeBroker,
) -> None:
    with pytest.raises(RouteNotFoundError, match="'missing'"):
        async with PullConsumer("missing", nameserver=broker.address):
            pass


async def test_a_bad_record_is_named_and_can_be_sought_past(broker: FakeBroker) -> None:
    await broker.append(0, b"0", b"1")
    pull = broker.handlers[11]

    async def damage(request: Command) -> Command:
        answer = await pull(request)  # type: ignore[misc]
        assert isinstance(answer, Command)
        if (request.ext or {})["queueOffset"] == "0":
            answer.body = bytes(20) + answer.body[20:]
        return answer

    broker.on(11, damage)
    async with PullConsumer(nameserver=broker.address) as reader:
        await reader.assign([QUEUE_0])
        with pytest.raises(Exception, match=r"at or soon after offset 0.*seek past it"):
            await reader.pull()
        await reader.seek(QUEUE_0, 1)
        assert bodies(await reader.pull()) == [b"1"]


async def test_a_single_request_can_read_beside_what_is_assigned(broker: FakeBroker) -> None:
    await broker.append(0, *(b"%d" % n for n in range(5)))
    async with PullConsumer(nameserver=broker.address) as reader:
        result = await reader.pull_from(QUEUE_0, 2, 2)
        assert bodies(list(islice(result.messages, 2))) == [b"2", b"3"]
        assert (result.min_offset, result.max_offset, result.has_moved) == (0, 5, False)
        beyond = await reader.pull_from(QUEUE_0, 99)
        assert (beyond.messages, beyond.next_offset, beyond.has_moved) == ([], 5, True)


async def test_a_consumer_of_nothing_says_what_to_do(broker: FakeBroker) -> None:
    async with PullConsumer(nameserver=broker.address) as reader:
        with pytest.raises(ClientStateError, match="call assign"):
            await reader.pull()


async def test_reading_ahead_stops_at_a_limit(broker: FakeBroker) -> None:
    await broker.append(0, *(b"%d" % n for n in range(1000)))
    async with PullConsumer(nameserver=broker.address) as reader:
        await reader.assign([QUEUE_0])
        await take(reader, 1)
        await broker.wait_for(11, 4)
        read = [int((request.ext or {})["queueOffset"]) for request in broker.requests_of(11)]
        assert read == [0, 32, 64, 96]
        messages = await take(reader, 999)
    assert bodies(messages) == [b"%d" % n for n in range(1, 1000)]


async def test_what_is_paused_is_kept_and_neither_handed_out_nor_fetched(
    broker: FakeBroker,
) -> None:
    await broker.append(0, b"a0", b"a1")
    await broker.append(1, b"b0", b"b1")
    async with consumer(broker) as reader:
        reader.pause(QUEUE_1)
        assert [each.body for each in await take(reader, 1)] == [b"a0"]
        reader.resume()
        assert bodies(await reader.pull(), 0) == [b"a1"]
        assert bodies(await reader.pull(), 1) == [b"b0", b"b1"]
        await broker.wait_for(11, 4)
        reader.pause()
        assert reader.paused == ["orders"]
        await broker.append(0, b"a2")
        asked = len(broker.requests_of(11))
        waiting = asyncio.create_task(reader.pull())
        assert await reader.pull(timeout_s=0.01) == []
        assert len(broker.requests_of(11)) == asked
        reader.resume()
        assert bodies(await waiting, 0) == [b"a2"]


async def test_what_was_read_ahead_of_a_pause_comes_after_it(broker: FakeBroker) -> None:
    await broker.append(0, b"a0", b"a1")
    async with consumer(broker) as reader:
        await reader.assign([QUEUE_0])
        assert bodies(await take(reader, 1)) == [b"a0"]
        await broker.wait_for(11, 2)
        reader.pause(QUEUE_0)
        assert await reader.pull(timeout_s=0.01) == []
        assert reader.position(QUEUE_0) == 1
        reader.resume(QUEUE_0)
        assert bodies(await reader.pull()) == [b"a1"]


async def test_topics_that_match_a_pattern_are_read_also_those_that_come_later() -> None:
    async with Broker.temporary() as broker, Producer(broker.nameserver) as producer:
        await producer.send("metrics_cpu", b"before")
        await producer.send("other", b"x")
        async with (
            PullConsumer("metrics_.*", nameserver=broker.nameserver, start_from="latest") as reader,
            asyncio.timeout(HANG_S),
        ):
            assert {queue.topic for queue in reader.assigned} == {"metrics_cpu"}
            await producer.send("metrics_disk", b"early")
            await reader.find()
            assert [each.body for each in await reader.pull()] == [b"early"]
            await producer.send("metrics_cpu", b"after")
            assert [each.body for each in await reader.pull()] == [b"after"]


async def test_topics_of_a_pattern_are_looked_for_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pull_consumer, "FOUND_INTERVAL_S", 0.01)
    async with Broker.temporary() as broker, Producer(broker.nameserver) as producer:
        async with PullConsumer("metrics_.*", nameserver=broker.nameserver) as reader:
            waiting = asyncio.create_task(reader.pull(timeout_s=HANG_S))
            await producer.send("metrics_cpu", b"x")
            assert [each.body for each in await waiting] == [b"x"]


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        PullConsumer("orders_(")


@pytest.mark.parametrize("wrong", ["last", None, 1.5])
def test_a_start_that_is_no_position_is_refused_when_it_is_given(wrong: Any) -> None:
    with pytest.raises(ValueError, match="is not a position"):
        PullConsumer("orders", start_from=wrong)
