"""Pop consumption over real sockets: every code, what comes back and what does not."""

import json
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.app import Broker
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.direct import pull_fields
from tests.support.features import needs, pop_of
from tests.support.popping import GROUP, TOPIC, PopConsumer, batch_ack_body, pop_fields
from tests.support.raw_peer import RawPeer, request, until

pytestmark = needs("pop")
RETRY = f"%RETRY%{GROUP}+{TOPIC}"


@pytest.fixture
async def consumer(broker: Broker) -> AsyncIterator[PopConsumer]:
    async with RawPeer(broker.address) as peer:
        yield PopConsumer(peer)


async def test_popped_messages_are_invisible_and_gone_once_acknowledged(
    broker: Broker, consumer: PopConsumer
) -> None:
    await consumer.send(b"a", b"b", b"c")
    messages = await consumer.pop()
    assert [message.body for message in messages] == [b"a", b"b", b"c"]
    assert await consumer.pop() == []
    assert broker.tables.offsets.get(TOPIC, GROUP, 0) == 0
    for message in messages[1:]:
        assert (await consumer.ack(message)).code == ResponseCode.SUCCESS
    assert broker.tables.offsets.get(TOPIC, GROUP, 0) == 0
    await consumer.ack(messages[0])
    assert broker.tables.offsets.get(TOPIC, GROUP, 0) == 3
    assert pop_of(broker).lanes.in_flight == 0


async def test_answer_says_where_each_message_is_from(consumer: PopConsumer) -> None:
    await consumer.send(b"a", b"b")
    answer = await consumer.peer.ask(Code.POP_MESSAGE, pop_fields(maxMsgNums=1))
    assert answer.ext is not None
    assert answer.ext["startOffsetInfo"] == "0 0 0"
    assert answer.ext["msgOffsetInfo"] == "0 0 0"
    assert answer.ext["restNum"] == "1"
    assert answer.ext["invisibleTime"] == "60000"
    assert answer.remark == "FOUND"


async def test_message_that_nobody_acknowledges_comes_back_with_its_topic(
    broker: Broker, consumer: PopConsumer
) -> None:
    await consumer.send(b"again", properties="TAGS\x01red\x02color\x01blue\x02")
    (first,) = await consumer.pop(invisibleTime=1)
    (again,) = await consumer.pop(pollTime=20_000)
    assert again.body == b"again"
    assert again.topic == TOPIC
    assert again.reconsume_times == 1
    assert again.tags == "red"
    assert again.properties["color"] == "blue"
    assert again.properties["1ST_POP_TIME"] == first.properties["POP_CK"].split(" ")[1]
    assert again.properties["POP_CK"].split(" ")[4] == "2"
    assert broker.tables.topics.get(RETRY).read_queue_nums == 1  # type: ignore[union-attr]
    # What the first pop was told is void, and does not touch the copy.
    assert (await consumer.ack(first)).code == ResponseCode.SUCCESS
    assert pop_of(broker).lanes.in_flight >= 1
    assert (await consumer.ack(again)).code == ResponseCode.SUCCESS
    await broker.store.safe_point.wait_for_disk(broker.store.log.written_offset)
    pop_of(broker).reviving.settle()
    assert pop_of(broker).lanes.in_flight == 0
    assert broker.tables.offsets.get(RETRY, GROUP, 0) == 1


async def test_message_goes_to_the_dead_letters_after_the_maximum(
    broker: Broker, consumer: PopConsumer
) -> None:
    group = broker.tables.groups.find_or_create(GROUP)
    assert group is not None
    group.retry_max_times = 2
    await consumer.send(b"poison")
    times = []
    for _ in range(3):
        (message,) = await consumer.pop(pollTime=20_000, invisibleTime=1)
        times.append(message.reconsume_times)
    assert times == [0, 1, 2]
    await until(lambda: pop_of(broker).reviving.buried == 1)
    assert await consumer.pop() == []
    ext = pull_fields(f"%DLQ%{GROUP}", 0) | {"consumerGroup": "undertakers"}
    (dead,) = decode_messages((await consumer.peer.ask(Code.PULL_MESSAGE, ext)).body)
    assert dead.body == b"poison"
    assert dead.properties["RETRY_TOPIC"] == TOPIC
    assert "POP_CK" not in dead.properties


async def test_pop_waits_for_a_message(broker: Broker, consumer: PopConsumer) -> None:
    await consumer.send(b"first")
    await consumer.pop()
    async with RawPeer(broker.address) as sender:
        consumer.peer.send(request(Code.POP_MESSAGE, pop_fields(pollTime=20_000)))
        await until(lambda: len(pop_of(broker).polling) == 1)
        await PopConsumer(sender).send(b"second")
        (message,) = consumer.messages(await consumer.peer.answer())
        assert message.body == b"second"
    assert len(pop_of(broker).polling) == 0


async def test_one_message_wakes_one_of_two_that_wait(
    broker: Broker, consumer: PopConsumer
) -> None:
    await consumer.send(b"first")
    await consumer.pop()
    async with RawPeer(broker.address) as other, RawPeer(broker.address) as sender:
        consumer.peer.send(request(Code.POP_MESSAGE, pop_fields(pollTime=20_000)))
        await until(lambda: len(pop_of(broker).polling) == 1)
        other.send(request(Code.POP_MESSAGE, pop_fields(pollTime=20_000)))
        await until(lambda: len(pop_of(broker).polling) == 2)
        await PopConsumer(sender).send(b"second")
        assert len(consumer.messages(await consumer.peer.answer())) == 1
        assert len(pop_of(broker).polling) == 1
        ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1"}
        info = await sender.ask(Code.POLLING_INFO, ext)
        assert info.ext == {"pollingNum": "1"}
        await PopConsumer(sender).send(b"third")
        assert consumer.messages(await other.answer())[0].body == b"third"


async def test_pop_that_waited_long_enough_is_told_so(consumer: PopConsumer) -> None:
    await consumer.send(b"first")
    await consumer.pop()
    answer = await consumer.peer.ask(Code.POP_MESSAGE, pop_fields(pollTime=20))
    assert answer.code == ResponseCode.POLLING_TIMEOUT
    assert answer.ext is not None
    assert answer.ext["restNum"] == "0"


async def test_waiting_pop_of_a_closed_connection_takes_nothing(
    broker: Broker, consumer: PopConsumer
) -> None:
    await consumer.send(b"first")
    await consumer.pop()
    async with RawPeer(broker.address) as gone:
        gone.send(request(Code.POP_MESSAGE, pop_fields(pollTime=20_000)))
        await until(lambda: len(pop_of(broker).polling) == 1)
    await until(lambda: len(pop_of(broker).polling) == 0)
    await consumer.send(b"second")
    assert [message.body for message in await consumer.pop()] == [b"second"]


async def test_waiting_pop_is_answered_when_the_broker_stops(consumer: PopConsumer) -> None:
    async with Broker.temporary() as broker:
        async with RawPeer(broker.address) as peer:
            await PopConsumer(peer).send(b"first")
            await PopConsumer(peer).pop()
            peer.send(request(Code.POP_MESSAGE, pop_fields(pollTime=20_000)))
            await until(lambda: len(pop_of(broker).polling) == 1)
            await broker.stop()
            assert (await peer.answer()).code == ResponseCode.POLLING_TIMEOUT


async def test_tags_filter_what_is_popped(broker: Broker, consumer: PopConsumer) -> None:
    for tag in ("red", "green", "red"):
        await consumer.send(tag.encode(), properties=f"TAGS\x01{tag}\x02")
    messages = await consumer.pop(exp="red", expType="TAG")
    assert [message.body for message in messages] == [b"red", b"red"]
    assert [m.queue_offset for m in messages] == [0, 2]
    assert await consumer.pop(exp="*", expType="TAG") == []
    # A tag that does not match moves the waiting pop on without an answer.
    async with RawPeer(broker.address) as sender:
        fields = pop_fields(exp="red", expType="TAG", pollTime=20_000)
        consumer.peer.send(request(Code.POP_MESSAGE, fields))
        await until(lambda: len(pop_of(broker).polling) == 1)
        await PopConsumer(sender).send(b"green", properties="TAGS\x01green\x02")
        await PopConsumer(sender).send(b"late red", properties="TAGS\x01red\x02")
        (message,) = consumer.messages(await consumer.peer.answer())
        assert message.body == b"late red"


async def test_sql_filters_what_is_popped(consumer: PopConsumer) -> None:
    for size in (1, 5, 9):
        await consumer.send(str(size).encode(), properties=f"size\x01{size}\x02")
    # After a slow compilation of the filter, a pop that does not wait may find nothing.
    messages = await consumer.pop(exp="size > 4", expType="SQL92", pollTime=20_000)
    assert [message.body for message in messages] == [b"5", b"9"]


async def test_batch_acknowledgement(broker: Broker, consumer: PopConsumer) -> None:
    await consumer.send(*(b"%d" % n for n in range(12)))
    messages = await consumer.pop()
    body = batch_ack_body([messages[0], messages[1], messages[9]])
    assert (await consumer.peer.ask(Code.BATCH_ACK_MESSAGE, {}, body)).code == 0
    assert pop_of(broker).lanes.in_flight == 9
    assert broker.tables.offsets.get(TOPIC, GROUP, 0) == 2
    # What is out of range is passed over, and nothing at all is an error.
    assert (await consumer.peer.ask(Code.BATCH_ACK_MESSAGE, {}, body)).code == 0
    empty = json.dumps({"acks": [], "brokerName": "broker-a"}).encode()
    answer = await consumer.peer.ask(Code.BATCH_ACK_MESSAGE, {}, empty)
    assert answer.code == ResponseCode.NO_MESSAGE


async def test_invisible_time_can_be_changed(broker: Broker, consumer: PopConsumer) -> None:
    await consumer.send(b"a")
    (message,) = await consumer.pop()
    old = dict(message.properties)
    answer = await consumer.change(message, 90_000)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext is not None
    assert 89_000 <= int(answer.ext["invisibleTime"]) <= 90_000
    new = message.properties["POP_CK"]
    # The old extra info is void.
    message.properties["POP_CK"] = old["POP_CK"]
    await consumer.ack(message)
    assert pop_of(broker).lanes.in_flight == 1
    assert (await consumer.change(message, 5)).code == ResponseCode.NO_MESSAGE
    message.properties["POP_CK"] = new
    assert (await consumer.change(message, 0)).code == ResponseCode.SUCCESS
    (again,) = await consumer.pop(pollTime=20_000)
    assert again.reconsume_times == 1


async def test_orderly_pop_waits_until_the_batch_is_acknowledged(
    broker: Broker, consumer: PopConsumer
) -> None:
    await consumer.send(b"1", b"2", b"3")
    fields = {"order": "true", "maxMsgNums": 2, "attemptId": "one"}
    answer = await consumer.peer.ask(Code.POP_MESSAGE, pop_fields(**fields))
    assert answer.ext is not None
    assert answer.ext["reviveQid"] == "999"
    assert answer.ext["orderCountInfo"] == "0 0 0"
    messages = consumer.messages(answer)
    assert [message.body for message in messages] == [b"1", b"2"]
    # Another attempt has to wait; the same one gets the same.
    assert await consumer.pop(**(fields | {"attemptId": "two"})) == []
    messages = await consumer.pop(**fields)
    assert [message.body for message in messages] == [b"1", b"2"]
    await consumer.ack(messages[0])
    assert broker.tables.offsets.get(TOPIC, GROUP, 0) == 1
    async with RawPeer(broker.address) as other:
        waiting = pop_fields(order="true", attemptId="two", pollTime=20_000)
        other.send(request(Code.POP_MESSAGE, waiting))
        await until(lambda: len(pop_of(broker).polling) == 1)
        await consumer.ack(messages[1])
        (third,) = consumer.messages(await other.answer())
        assert third.body == b"3"
    assert broker.tables.offsets.get(TOPIC, GROUP, 0) == 2
    illegal = await consumer.peer.ask(Code.ACK_MESSAGE, consumer.ack_fields(third, offset=3))
    assert illegal.code == ResponseCode.MESSAGE_ILLEGAL


async def test_orderly_message_comes_back_counted_and_dies(
    broker: Broker, consumer: PopConsumer
) -> None:
    group = broker.tables.groups.find_or_create(GROUP)
    assert group is not None
    group.retry_max_times = 1
    await consumer.send(b"1", b"2")
    fields = {"order": "true", "maxMsgNums": 1, "invisibleTime": 1, "pollTime": 20_000}
    infos = []
    for _ in range(3):
        answer = await consumer.peer.ask(Code.POP_MESSAGE, pop_fields(**fields))
        assert answer.ext is not None
        infos.append((consumer.messages(answer)[0].body, answer.ext["orderCountInfo"]))
    assert infos == [
        (b"1", "0 0 0"),
        (b"1", "0 qo0%0 1;0 0 1"),
        (b"2", "0 0 0"),
    ]
    assert pop_of(broker).reviving.buried == 1


async def test_orderly_invisible_time_keeps_the_pop_time(
    broker: Broker, consumer: PopConsumer
) -> None:
    await consumer.send(b"1")
    (message,) = await consumer.pop(order="true")
    pop_time = message.properties["POP_CK"].split(" ")[1]
    answer = await consumer.change(message, 0)
    assert answer.ext is not None
    assert (answer.ext["popTime"], answer.ext["reviveQid"]) == (pop_time, "999")
    (again,) = await consumer.pop(order="true", pollTime=20_000)
    assert again.body == b"1"


async def test_notification_tells_of_messages(broker: Broker, consumer: PopConsumer) -> None:
    await consumer.send(b"first")
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "pollTime": "0"}
    assert (await consumer.peer.ask(Code.NOTIFICATION, ext)).ext == {
        "hasMsg": "true",
        "pollingFull": "false",
    }
    await consumer.pop()
    ext["pollTime"] = "20"
    answer = await consumer.peer.ask(Code.NOTIFICATION, ext)
    assert answer.ext is not None
    assert answer.ext["hasMsg"] == "false"
    ext["pollTime"] = "20000"
    async with RawPeer(broker.address) as sender:
        consumer.peer.send(request(Code.NOTIFICATION, ext))
        await until(lambda: len(pop_of(broker).polling) == 1)
        await PopConsumer(sender).send(b"second")
        answer = await consumer.peer.answer()
    assert answer.ext is not None
    assert answer.ext["hasMsg"] == "true"


async def test_peek_moves_nothing(consumer: PopConsumer) -> None:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": "32"}
    await consumer.send(b"a", b"b")
    for _ in range(2):
        answer = await consumer.peer.ask(Code.PEEK_MESSAGE, ext)
        assert [message.body for message in decode_messages(answer.body)] == [b"a", b"b"]
    await consumer.pop()
    assert (await consumer.peer.ask(Code.PEEK_MESSAGE, ext)).code == ResponseCode.PULL_NOT_FOUND


async def test_codes_cut_to_16_bits_are_served(consumer: PopConsumer) -> None:
    await consumer.send(b"a")
    answer = await consumer.peer.ask(3442, pop_fields())
    (message,) = consumer.messages(answer)
    assert (await consumer.peer.ask(3443, consumer.ack_fields(message))).code == 0
