"""Pop consumption: what is refused or bounded, and what operators change under it."""

import json
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from tests.support.features import needs, pop_of
from tests.support.popping import GROUP, TOPIC, PopConsumer, pop_fields
from tests.support.raw_peer import RawPeer, request, until

pytestmark = needs("pop")


@pytest.fixture
async def consumer(broker: Broker) -> AsyncIterator[PopConsumer]:
    async with RawPeer(broker.address) as peer:
        yield PopConsumer(peer)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"bornTime": 1}, 210),
        ({"maxMsgNums": 33}, 29),
        ({"maxMsgNums": 0}, 29),
        ({"invisibleTime": -1}, 29),
        ({"topic": "nowhere"}, 17),
        ({"topic": "unreadable"}, 16),
        ({"topic": "inner"}, 16),
        ({"queueId": 1}, 29),
        ({"consumerGroup": "no good!"}, 26),
        ({"consumerGroup": "barred"}, 16),
        ({"exp": "a >", "expType": "SQL92"}, 23),
        ({"exp": "||", "expType": "TAG"}, 23),
        ({"exp": "a", "expType": "REGEX"}, 23),
    ],
)
async def test_pop_is_refused(
    broker: Broker, consumer: PopConsumer, changes: dict[str, object], code: int
) -> None:
    await consumer.send(b"a")
    broker.tables.topics.put(TopicConfig("unreadable", perm=2))
    broker.tables.topics.put(TopicConfig("inner", attributes={"queue.type": "BatchCQ"}))
    barred = broker.tables.groups.find_or_create("barred")
    assert barred is not None
    barred.consume_enable = False
    answer = await consumer.peer.ask(Code.POP_MESSAGE, pop_fields(**changes))
    assert answer.code == code, answer.remark
    assert answer.remark


async def test_pop_is_refused_by_a_broker_that_may_not_be_read(
    broker: Broker, consumer: PopConsumer
) -> None:
    await consumer.send(b"a")
    broker.config.live.broker_permission = 2
    answer = await consumer.peer.ask(Code.POP_MESSAGE, pop_fields())
    assert answer.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("code", [Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME])
async def test_acknowledgement_is_refused(consumer: PopConsumer, code: Code) -> None:
    await consumer.send(b"a")
    (message,) = await consumer.pop()

    async def answer(**changes: object) -> int:
        fields = consumer.ack_fields(message, **{"invisibleTime": 1000, **changes})
        return (await consumer.peer.ask(code, fields)).code

    assert await answer(topic="nowhere") == ResponseCode.TOPIC_NOT_EXIST
    assert await answer(queueId=1) == ResponseCode.MESSAGE_ILLEGAL
    assert await answer(offset=2) == ResponseCode.NO_MESSAGE
    assert await answer(extraInfo="what") == ResponseCode.INVALID_PARAMETER
    assert await answer() == ResponseCode.SUCCESS


async def test_reset_forgets_what_is_in_flight(broker: Broker, consumer: PopConsumer) -> None:
    await consumer.send(b"a", b"b", b"c")
    await consumer.pop()
    ext = {"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true", "queueId": "0"}
    answer = await consumer.peer.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, ext | {"offset": "1"})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert [message.body for message in await consumer.pop()] == [b"b", b"c"]
    assert pop_of(broker).lanes.in_flight == 2


async def test_deleted_topic_takes_its_lanes_along(broker: Broker, consumer: PopConsumer) -> None:
    await consumer.send(b"a")
    await consumer.pop()
    async with RawPeer(broker.address) as waiting:
        waiting.send(request(Code.POP_MESSAGE, pop_fields(pollTime=20_000)))
        await until(lambda: len(pop_of(broker).polling) == 1)
        await consumer.peer.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})
        assert (await waiting.answer()).code == ResponseCode.TOPIC_NOT_EXIST
    assert len(pop_of(broker).lanes) == 0
    assert pop_of(broker).lanes.in_flight == 0


async def test_number_of_messages_in_flight_is_bounded() -> None:
    async with (
        Broker.temporary({"popInflightMessageThreshold": 2}) as broker,
        RawPeer(broker.address) as peer,
        RawPeer(broker.address) as other,
    ):
        consumer = PopConsumer(peer)
        await consumer.send(b"a", b"b", b"c")
        messages = await consumer.pop()
        assert [message.body for message in messages] == [b"a", b"b"]
        assert await consumer.pop() == []
        other.send(request(Code.POP_MESSAGE, pop_fields(pollTime=20_000)))
        await until(lambda: len(pop_of(broker).polling) == 1)
        await consumer.ack(messages[0])
        (third,) = consumer.messages(await other.answer())
        assert third.body == b"c"


async def test_pull_consumer_of_the_group_moves_the_cursor_on(
    broker: Broker, consumer: PopConsumer
) -> None:
    await consumer.send(b"a", b"b", b"c")
    await consumer.pop(maxMsgNums=1)
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "2"}
    await consumer.peer.ask(Code.UPDATE_CONSUMER_OFFSET, ext)
    assert [message.body for message in await consumer.pop()] == [b"c"]
    assert pop_of(broker).lanes.in_flight == 2


async def test_group_is_set_to_pop_and_its_clients_get_all_queues(
    broker: Broker, consumer: PopConsumer
) -> None:
    await consumer.send(b"a")
    beat = {
        "clientID": "c1",
        "consumerDataSet": [
            {
                "groupName": GROUP,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": TOPIC, "subString": "*", "subVersion": 1}],
            }
        ],
        "producerDataSet": [],
    }
    async with RawPeer(broker.address) as member:
        member.send(request(Code.HEART_BEAT, {}, json.dumps(beat).encode()))
        await member.answers(2)

        async def assigned(topic: str = TOPIC, client_id: str = "c1") -> object:
            body = {
                "topic": topic,
                "consumerGroup": GROUP,
                "clientId": client_id,
                "strategyName": "AVG",
                "messageModel": "CLUSTERING",
            }
            answer = await member.ask(Code.QUERY_ASSIGNMENT, {}, json.dumps(body).encode())
            assert answer.code == ResponseCode.SUCCESS
            return json.loads(answer.body).get("messageQueueAssignments")

        queue = {"brokerName": "broker-a", "queueId": 0, "topic": TOPIC}
        assert await assigned() == [{"messageQueue": queue, "mode": "PULL"}]
        mode = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0}
        answer = await member.ask(Code.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(mode).encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert await assigned() == [{"messageQueue": queue | {"queueId": -1}, "mode": "POP"}]
        assert await assigned(client_id="stranger") == []
        assert await assigned(topic="nowhere") is None
        mode["topic"] = f"%RETRY%{GROUP}"
        answer = await member.ask(Code.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(mode).encode())
        assert answer.code == ResponseCode.NO_PERMISSION
        answer = await member.ask(Code.GET_ALL_MESSAGE_REQUEST_MODE, {})
        stored = json.loads(answer.body)["messageRequestModeMap"]
        assert stored[TOPIC][GROUP]["mode"] == "POP"
    path = broker.config.store.root / "config" / "messageRequestMode.json"
    assert json.loads(path.read_text())["messageRequestModeMap"] == stored


async def test_reset_wakes_a_pop_that_waits(broker: Broker, consumer: PopConsumer) -> None:
    await consumer.send(b"a")
    (message,) = await consumer.pop()
    await consumer.ack(message)
    async with RawPeer(broker.address) as admin:
        consumer.peer.send(request(Code.POP_MESSAGE, pop_fields(pollTime=20_000)))
        await until(lambda: len(pop_of(broker).polling) == 1)
        ext = {"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true"}
        await admin.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        assert consumer.messages(await consumer.peer.answer())[0].body == b"a"


async def test_queues_of_all_brokers_are_shared_out() -> None:
    async with Broker.temporary() as first:
        settings = {"role": "broker", "namesrvAddr": first.nameserver, "brokerName": "broker-b"}
        async with Broker.temporary(settings) as second, RawPeer(second.address) as peer:
            for broker in (first, second):
                topic = TopicConfig(TOPIC, read_queue_nums=2, write_queue_nums=2)
                broker.tables.topics.put(topic)
            await second.announce()
            beat = {
                "clientID": "c1",
                "consumerDataSet": [{"groupName": GROUP, "subscriptionDataSet": []}],
            }
            peer.send(request(Code.HEART_BEAT, {}, json.dumps(beat).encode()))
            await until(lambda: second.kernel.consumers.get(GROUP) is not None)
            body = {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "c1"}
            async with RawPeer(second.address) as asking:
                answer = await asking.ask(Code.QUERY_ASSIGNMENT, {}, json.dumps(body).encode())
            found = json.loads(answer.body)["messageQueueAssignments"]
            queues = [
                (m["messageQueue"]["brokerName"], m["messageQueue"]["queueId"]) for m in found
            ]
            assert queues == [("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1)]
