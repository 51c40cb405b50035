"""A consumer towards its brokers: what it says, what it hears, what it does about it."""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rockhopper.client import (
    BrokerUnreachableError,
    ClientError,
    ClientStateError,
    Consumer,
    RequestRefusedError,
)
from rockhopper.client.consuming import absences, fetching
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol import fastjson
from rockhopper.protocol.command import Command
from tests.support.fake_server import Answer, route
from tests.support.group_broker import GroupBroker
from tests.support.hang import HANG_S
from tests.support.held_clock import HeldClock
from tests.support.records import encode_message
from tests.support.turns import until, until_logged

QUEUES = [MessageQueue("orders", "a", number) for number in range(4)]
RETRY = MessageQueue("%RETRY%billing", "a", 0)


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    async with GroupBroker(queues=4) as broker:
        yield broker


def billing(broker: GroupBroker, **options: object) -> Consumer:
    return Consumer("billing", "orders", nameserver=broker.address, **options)  # type: ignore[arg-type]


async def test_the_heartbeat_says_what_a_push_consumer_says(broker: GroupBroker) -> None:
    wanted = {"orders": "new || paid"}
    async with Consumer("billing", wanted, nameserver=broker.address, start_from="latest"):
        pass
    (data,) = broker.heartbeats[0]["consumerDataSet"]
    assert data["groupName"] == "billing"
    assert data["consumeType"] == "CONSUME_PASSIVELY"
    assert data["messageModel"] == "CLUSTERING"
    assert data["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
    topics = {each["topic"]: each["subString"] for each in data["subscriptionDataSet"]}
    assert topics == {"orders": "new || paid", "%RETRY%billing": "*"}
    assert all(each["subVersion"] > 0 for each in data["subscriptionDataSet"])


async def test_the_heartbeat_comes_before_every_other_request(broker: GroupBroker) -> None:
    async with billing(broker):
        await broker.wait_for(11, 4)
    codes = [request.code for request in broker.requests if request.code not in (105, 29, 30, 31)]
    assert codes[0] == 34
    assert codes[-1] == 35


async def test_a_notification_changes_the_share_while_no_time_passes(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with billing(broker) as consumer:
        assert consumer.assigned == [RETRY, *QUEUES]
        broker.others = ["\x7f"]  # sorts behind every address
        with monkeypatch.context() as patch:
            HeldClock(patch)
            await broker.notify()
            await until(lambda: consumer.assigned == [RETRY, *QUEUES[:2]])


async def test_a_queue_is_committed_when_it_is_given_up(broker: GroupBroker) -> None:
    await broker.append(3, b"x", b"y")
    seen: list[bytes] = []

    async def take(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with billing(broker, handler=take) as consumer:
        await until(lambda: len(seen) == 2)
        broker.others = ["\x7f"]
        await broker.notify()
        await until(lambda: QUEUES[3] not in consumer.assigned)
        await until(lambda: broker.committed.get(("billing", 3)) == 2)


async def test_a_broker_that_forgot_us_is_told_again(broker: GroupBroker) -> None:
    async with billing(broker) as consumer:
        broker.known.clear()
        await broker.notify()
        await until(lambda: len(broker.known) == 1)
        assert consumer.assigned == [RETRY, *QUEUES]


async def test_queues_stay_while_nobody_can_say_who_the_members_are(broker: GroupBroker) -> None:
    async with billing(broker) as consumer:
        broker.on(38, lambda request: Command(2, remark="busy"))
        await broker.notify()
        await broker.wait_for(38, 4)
        assert consumer.assigned == [RETRY, *QUEUES]


async def test_what_is_missing_is_asked_for_again_after_a_pause(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with billing(broker):
        broker.on(38, lambda request: Command(2, remark="busy"))
        asked = len(broker.requests_of(38))
        with monkeypatch.context() as patch:
            HeldClock(patch)
            await broker.notify()
            await broker.wait_for(38, asked + 2)  # once for each topic
            for _ in range(9):  # the time of several rounds
                await broker.tell(Command(221, ext={"group": "billing", "topic": "orders"}))
            assert len(broker.requests_of(38)) == asked + 2
        await broker.wait_for(38, asked + 4)


async def test_a_member_that_is_slow_to_come_back_keeps_its_queues(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absences, "_RETURN_S", 3600.0)
    broker.others = ["\x7f"]
    async with billing(broker) as consumer:
        assert consumer.assigned == [RETRY, *QUEUES[:2]]
        # The first connection was made to a name server, which happens to be a broker as well.
        broker.drop_connections()
        await broker.wait_for(34, 2)
        broker.others = []
        broker.drop_connections()
        asked = len(broker.requests_of(38))
        # A round asks twice, for two topics; the first ones come to nothing, for 0.6 s.
        await broker.wait_for(38, asked + 8)
        assert consumer.assigned == [RETRY, *QUEUES[:2]]
        monkeypatch.setattr(absences.AwaitedMembers, "may_come_back", lambda *_: False)
        await until(lambda: consumer.assigned == [RETRY, *QUEUES])


async def test_offsets_are_reset_by_an_operator(broker: GroupBroker) -> None:
    await broker.append(0, *(b"%d" % number for number in range(10)))
    async with billing(broker) as consumer:
        messages = aiter(consumer)
        for _ in range(8):
            await anext(messages)
        key = '{"brokerName":"a","queueId":0,"topic":"orders"}'
        body = f'{{"offsetTable":{{{key}:3}}}}'.encode()
        ext = {"group": "billing", "topic": "orders", "timestamp": "0"}
        answer = await broker.tell(Command(220, ext=ext, body=body))
        assert answer is not None
        assert answer.code == 0
        assert (await anext(messages)).queue_offset == 3
        listed = [{"brokerName": "a", "queueId": 0, "topic": "orders", "offset": 9}]
        await broker.tell(Command(220, ext=ext, body=json.dumps({"offsetTable": listed}).encode()))
        assert (await anext(messages)).queue_offset == 9
    assert broker.committed["billing", 0] == 10


async def test_a_consumer_says_where_it_is(broker: GroupBroker) -> None:
    await broker.append(1, b"x", b"y")
    async with billing(broker) as consumer:
        messages = aiter(consumer)
        await anext(messages)
        await anext(messages)
        answer = await broker.tell(Command(221, ext={"group": "billing", "topic": "orders"}))
        assert answer is not None
        table = fastjson.loads(answer.body)["messageQueueTable"]
        offsets = {json.loads(key)["queueId"]: offset for key, offset in table.items()}
        assert offsets == {0: 0, 1: 1, 2: 0, 3: 0}


async def test_a_consumer_says_how_it_is(broker: GroupBroker) -> None:
    async with billing(broker, orderly=True):
        ext = {"consumerGroup": "billing", "clientId": "x", "jstackEnable": "true"}
        answer = await broker.tell(Command(307, ext=ext))
        assert answer is not None
        info = fastjson.loads(answer.body)
        assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info["properties"]["PROP_CONSUMEORDERLY"] == "true"
        assert len(info["mqTable"]) == 5
        assert all(queue["locked"] for queue in info["mqTable"].values())
        assert info["subscriptionSet"][0]["topic"] == "orders"
        assert "rebalancing.py" in info["jstack"]
        other = await broker.tell(Command(307, ext={"consumerGroup": "other"}))
        assert other is not None
        assert (other.code, other.remark) == (
            1,
            "The Consumer Group <other> not exist in this consumer",
        )


async def test_a_message_is_handled_at_an_operator_s_request(broker: GroupBroker) -> None:
    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"bad":
            raise ValueError("no such customer")

    async def result(body: bytes) -> dict[str, object]:
        record = encode_message(topic="orders", body=body, queue_id=1)
        ext = {"consumerGroup": "billing", "clientId": "x", "brokerName": "a"}
        answer = await broker.tell(Command(309, ext=ext, body=record))
        assert answer is not None
        found = fastjson.loads(answer.body)
        assert isinstance(found, dict)
        return found

    async with billing(broker) as consumer:
        assert (await result(b"x"))["consumeResult"] == "CR_LATER"
        running = asyncio.create_task(consumer.run(handle))
        await asyncio.sleep(0)
        good = await result(b"good")
        assert (good["consumeResult"], good["autoCommit"], good["order"]) == (
            "CR_SUCCESS",
            True,
            False,
        )
        bad = await result(b"bad")
        assert bad["consumeResult"] == "CR_THROW_EXCEPTION"
        assert bad["remark"] == "ValueError: no such customer"
        consumer.stop()
        await running


async def test_a_failed_message_is_sent_back_with_what_the_broker_needs(
    broker: GroupBroker,
) -> None:
    await broker.append(0, b"x", b"y")
    async with billing(broker, max_reconsume_times=7) as consumer:
        async for message in consumer:
            if message.body == b"y":
                await consumer.retry_later(message, delay_level=4)
                break
    (request,) = broker.requests_of(36)
    assert request.ext is not None
    assert {
        name: request.ext[name] for name in ("offset", "group", "delayLevel", "originTopic")
    } == {
        "offset": "100",
        "group": "billing",
        "delayLevel": "4",
        "originTopic": "orders",
    }
    assert request.ext["maxReconsumeTimes"] == "7"
    assert broker.committed["billing", 0] == 2


async def test_a_copy_goes_to_the_retry_topic_where_sending_back_fails(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.append(0, b"x")
    broker.on(36, lambda request: Command(1, remark="look message by offset failed, 0"))
    receipt = {"msgId": "0A", "queueId": "0", "queueOffset": "0"}
    broker.on(310, lambda request: Command(0, ext=receipt))
    async with billing(broker) as consumer:
        async for message in consumer:
            await consumer.retry_later(message)
            break
    (copy,) = broker.requests_of(310)
    assert copy.ext is not None
    assert (copy.ext["b"], copy.ext["j"], copy.ext["l"]) == ("%RETRY%billing", "1", "16")
    assert "RETRY_TOPIC\x01orders\x02" in copy.ext["i"]
    assert "DELAY\x013\x02" in copy.ext["i"]
    assert copy.body == b"x"
    assert broker.committed["billing", 0] == 1
    assert any("was sent to the retry topic" in record.message for record in caplog.records)


async def test_a_message_that_nobody_takes_back_stays_uncommitted(broker: GroupBroker) -> None:
    await broker.append(0, b"x", b"y")
    for code in (36, 310):
        broker.on(code, lambda request: Command(1, remark="full"))
    async with billing(broker) as consumer:
        async for message in consumer:
            if message.body == b"x":
                await consumer.retry_later(message)
            else:
                break
    assert broker.committed["billing", 0] == 0


@pytest.mark.parametrize(
    "limit",
    [
        {"queue_count_max": 10},
        {"queue_bytes_max": 800},
        {"consumer_count_max": 10},
        {"consumer_bytes_max": 800},
    ],
)
async def test_what_is_fetched_ahead_is_bounded(broker: GroupBroker, limit: dict[str, int]) -> None:
    broker.batch_max = 4
    await broker.append(0, *(b"x" for _ in range(100)))
    async with billing(broker, batch_size=4, **limit) as consumer:
        messages = aiter(consumer)
        await anext(messages)
        held = consumer.engine.assignment.held[QUEUES[0]]
        await until(lambda: held.fetch_offset >= 8)
        for _ in range(50):
            await asyncio.sleep(0)
        assert held.fetch_offset == 12
        for _ in range(99):
            await anext(messages)


async def test_an_order_kept_queue_is_handed_over_when_its_message_is_finished(
    broker: GroupBroker,
) -> None:
    await broker.append(3, b"x", b"y")
    async with billing(broker, orderly=True) as consumer:
        messages = aiter(consumer)
        await anext(messages)
        broker.others = ["\x7f"]
        await broker.notify()
        await until(lambda: QUEUES[3] not in consumer.assigned)
        await until(lambda: len(broker.requests_of(42)) == 1)  # that of queue 2, which was idle
    assert broker.committed["billing", 3] == 1
    unlocked = [
        queue["queueId"]
        for request in broker.requests_of(42)
        for queue in json.loads(request.body)["mqSet"]
    ]
    assert unlocked[1] == 3


async def test_cancelling_the_close_still_closes(broker: GroupBroker) -> None:
    await broker.append(0, b"x")
    inside = asyncio.Event()

    async def hang(_message: ReceivedMessage) -> None:
        inside.set()
        await asyncio.Event().wait()

    consumer = await billing(broker, handler=hang).start()
    await inside.wait()
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await until(lambda: not broker.connections)
    assert len(broker.requests_of(36)) == 1


async def test_in_order_only_queues_that_are_locked_are_read(broker: GroupBroker) -> None:
    broker.refused_locks = {2}
    await broker.append(2, b"x")
    async with billing(broker, orderly=True) as consumer:
        assert consumer.assigned == [RETRY, QUEUES[0], QUEUES[1], QUEUES[3]]
        broker.refused_locks = set()
        await until(lambda: QUEUES[2] in consumer.assigned)
        async for message in consumer:
            assert message.body == b"x"
            break
    unlocked = [json.loads(request.body)["mqSet"] for request in broker.requests_of(42)]
    assert sum(map(len, unlocked)) == 5


async def test_in_order_a_queue_that_another_member_has_locked_is_let_go(
    broker: GroupBroker,
) -> None:
    async with billing(broker, orderly=True) as consumer:
        broker.refused_locks = {1}
        await broker.notify()
        await until(lambda: QUEUES[1] not in consumer.assigned)


async def test_a_name_service_that_is_away_is_not_needed(broker: GroupBroker) -> None:
    async with GroupBroker(queues=4) as names:
        names.routes["orders"] = route({"a": broker.address}, queues=4)
        names.routes["%RETRY%billing"] = route({"a": broker.address}, queues=1)
        consumer = Consumer("billing", "orders", nameserver=names.address)
        await consumer.start()
    messages = aiter(consumer)
    await broker.append(2, b"x")
    assert (await anext(messages)).body == b"x"
    await broker.notify()
    await consumer.engine.session.keep_up_once()
    await broker.append(3, b"y")
    assert (await anext(messages)).body == b"y"
    await consumer.close()


async def test_a_refusal_that_no_waiting_mends_is_raised(broker: GroupBroker) -> None:
    broker.on(
        11, lambda request: Command(16, remark="the topic[orders] pulling message is forbidden")
    )
    async with billing(broker) as consumer:
        with pytest.raises(RequestRefusedError, match="forbidden") as caught:
            await anext(aiter(consumer))
        assert caught.value.code == 16


async def test_a_signature_that_is_refused_later_is_waited_for_where_a_file_may_change(
    broker: GroupBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(fetching, "REFUSED_FOR_GOOD_S", 0.0)
    monkeypatch.setattr(fetching, "_REFUSED_PAUSE_S", 0.001)
    accepted = "old"
    pull = broker.handlers[11]

    def take(request: Command) -> Answer | Awaitable[Answer]:
        if request.ext is None or request.ext.get("AccessKey") != accepted:
            return Command(16, remark="the signature does not match")
        return pull(request)

    broker.on(11, take)
    file = tmp_path / "credentials"
    file.write_text("accessKey: old\nsecretKey: s\n")
    file.chmod(0o600)
    await broker.append(0, b"1")
    async with billing(broker, credentials=file) as consumer:
        messages = aiter(consumer)
        assert (await anext(messages)).body == b"1"
        accepted = "new"
        broker.drop_connections()
        said = "the consumer of group 'billing' waits for its credentials file to change"
        async with asyncio.timeout(HANG_S):
            await until_logged(caplog, said)
            file.write_text("accessKey: new\nsecretKey: s\n")
            await broker.append(0, b"2")
            assert (await anext(messages)).body == b"2"
        assert caplog.text.count(said) == 1
    file.write_text("accessKey: old\nsecretKey: s\n")
    async with billing(broker, credentials=file) as wrong:
        with pytest.raises(RequestRefusedError, match="signature"):
            await anext(aiter(wrong))


async def test_an_outage_is_logged_once_and_waited_for(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    busy = True
    pull = broker.handlers[11]
    broker.on(11, lambda request: Command(2, remark="busy") if busy else pull(request))
    await broker.append(0, b"x")
    async with billing(broker) as consumer:
        waiting = asyncio.ensure_future(anext(aiter(consumer)))
        await broker.wait_for(11, 12)
        busy = False
        assert (await waiting).body == b"x"
        await until_logged(caplog, "has resumed")
    warnings = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert len([text for text in warnings if "is interrupted" in text]) == 1
    assert len([text for text in warnings if "has resumed" in text]) == 1


async def test_no_name_service_at_the_start_is_an_error(unused_tcp_port: int) -> None:
    consumer = Consumer("billing", "orders", nameserver=f"127.0.0.1:{unused_tcp_port}")
    with pytest.raises(ClientError, match="check that a name server runs"):
        await consumer.start()


def test_what_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="characters other than"):
        Consumer("bill ing", "orders")
    with pytest.raises(ValueError, match="at least one topic"):
        Consumer("billing", [])
    with pytest.raises(ValueError, match="the topic"):
        Consumer("billing", "or ders")
    with pytest.raises(ValueError, match="start_from"):
        Consumer("billing", "orders", start_from="yesterday")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="coroutine function"):
        Consumer("billing", "orders", handler=print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the filter of topic"):
        Consumer("billing", {"orders": 5})


async def test_a_forked_child_gets_a_clear_error(broker: GroupBroker) -> None:
    await broker.append(0, b"x", b"y")
    async with billing(broker) as consumer:
        messages = aiter(consumer)
        await anext(messages)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                anext(messages).__await__().send(None)
            except ClientStateError as error:
                os.write(writer, str(error).encode())
            finally:
                os._exit(0)
        os.close(writer)
        await asyncio.to_thread(os.waitpid, child, 0)
        with os.fdopen(reader) as said:
            assert "before the process forked" in said.read()
        assert (await anext(messages)).body == b"y"


async def test_a_handler_that_meets_a_broker_that_is_away_is_told_of_in_a_line(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[Exception] = [
        BrokerUnreachableError("b:1 is away", address="b:1"),
        BrokerUnreachableError("b:1 is away", address="b:1"),
        LookupError("no such customer"),
    ]
    for _ in failures:
        await broker.append(0, b"x")

    async def handle(_message: ReceivedMessage) -> None:
        raise failures.pop(0)

    async with billing(broker, handler=handle, concurrency=1):
        await until_logged(caplog, "no such customer")
    told = [each for each in caplog.records if each.levelno >= logging.WARNING]
    told = [each for each in told if "the handler failed" in each.getMessage()]
    assert [each.exc_info is None for each in told] == [True, False]
    assert "at delivery 1" in told[0].getMessage()
    assert told[0].getMessage().endswith("it will be redelivered: b:1 is away")


async def test_an_address_that_is_away_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with AsyncExitStack() as served:
        broker = await served.enter_async_context(GroupBroker(queues=4))
        async with billing(broker) as consumer:
            await broker.wait_for(11, 4)
            await served.aclose()
            consumer.engine.rebalancer.soon()
            await until_logged(caplog, "the queues of group")
            await until_logged(caplog, "is interrupted", 4)
    texts = ("reading from", "the queues of group")
    told = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len([each for each in told if each.getMessage().startswith(texts)]) == 1
