"""Codes 307, 309 and 223: asked of consumers on their own connections, within a time limit."""

import json

import pytest

from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import decode_message
from rockhopper.protocol.subscription import Subscription
from tests.support.peers import Peer
from tests.support.served_broker import ServedBroker


class Consumer(Peer):
    """A member that answers what it is asked, or does not."""

    def __init__(self, broker: ServedBroker, client_id: str = "c1", version: int = 479) -> None:
        super().__init__()
        self.asked: list[tuple[int, dict[str, str], bytes]] = []
        self.reply: Command | Exception = Command(0, remark="fine", ext={"x": "1"}, body=b"info")
        broker.kernel.consumers.register(
            "billing",
            Client(self.connection, client_id, 0, version),
            ConsumeSettings(),
            {"orders": Subscription("orders", "*")},
        )

    async def call(self, code: int, ext: dict[str, str], body: bytes, timeout_s: float) -> Command:
        self.asked.append((int(code), ext, body))
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


INFO = {"consumerGroup": "billing", "clientId": "c1"}


async def test_the_answer_of_the_client_is_handed_back(broker: ServedBroker) -> None:
    consumer = Consumer(broker)
    answer = await broker.ask(Code.GET_CONSUMER_RUNNING_INFO, INFO | {"jstackEnable": "true"})
    assert (answer.code, answer.remark, answer.body) == (0, "fine", b"info")
    assert consumer.asked == [(307, INFO | {"jstackEnable": "true"}, b"")]


@pytest.mark.parametrize(
    ("reply", "code", "says"),
    [
        (TimeoutError(), ResponseCode.CONSUME_MSG_TIMEOUT, "<billing> <c1> Timeout: 10000ms"),
        (ConnectionResetError("gone"), ResponseCode.SYSTEM_ERROR, "fail: gone"),
        (Command(1, remark="no"), ResponseCode.SYSTEM_ERROR, "no"),
    ],
)
async def test_a_client_that_does_not_answer_is_named(
    broker: ServedBroker, reply: Command | Exception, code: int, says: str
) -> None:
    Consumer(broker).reply = reply
    answer = await broker.ask(Code.GET_CONSUMER_RUNNING_INFO, INFO)
    assert answer.code == code
    assert says in str(answer.remark)


async def test_who_is_not_online_or_too_old_is_not_asked(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.GET_CONSUMER_RUNNING_INFO, INFO)
    assert "The Consumer <billing> <c1> not online" in str(answer.remark)
    old = Consumer(broker, version=61)
    answer = await broker.ask(Code.GET_CONSUMER_RUNNING_INFO, INFO)
    assert "Version <61> too low" in str(answer.remark)
    assert old.asked == []


async def test_a_message_is_handed_to_one_consumer(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    consumer = Consumer(broker)
    broker.put("orders", b"first")
    stored = broker.store.reading.get_message("orders", 0, 0, 1).body
    message_id = decode_message(stored).offset_message_id
    ext = INFO | {"msgId": message_id, "topic": "orders"}
    assert (await broker.ask(Code.CONSUME_MESSAGE_DIRECTLY, ext)).code == 0
    ((code, told, body),) = consumer.asked
    assert (code, body) == (309, stored)
    assert told["brokerName"] == "broker-a"
    assert (told["topicSysFlag"], told["groupSysFlag"]) == ("0", "0")


@pytest.mark.parametrize("id_", ["nonsense", "7F00000100002A9F00000000000FFFFF"])
async def test_a_message_that_is_not_there_is_handed_to_nobody(
    broker: ServedBroker, id_: str
) -> None:
    consumer = Consumer(broker)
    answer = await broker.ask(Code.CONSUME_MESSAGE_DIRECTLY, INFO | {"msgId": id_})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert consumer.asked == []


async def test_how_far_clients_are_is_what_they_say_themselves(broker: ServedBroker) -> None:
    queue = '{"brokerName":"broker-a","queueId":0,"topic":"orders"}'
    body = f'{{"consumerTable":{{}},"messageQueueTable":{{{queue}:7}}}}'.encode()
    first, second, third = (Consumer(broker, name) for name in ("c1", "c2", "c3"))
    first.reply = Command(0, body=body)
    second.reply = TimeoutError()
    third.reply = Command(0, body=b"nonsense")
    ext = {"topic": "orders", "group": "billing"}
    answer = await broker.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext)
    assert answer.code == ResponseCode.SUCCESS
    assert f'"c1":{{{queue}:7}}'.encode() in answer.body
    assert b"c2" not in answer.body
    assert b"c3" not in answer.body
    first.asked.clear()
    await broker.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext | {"clientAddr": "c2"})
    assert first.asked == []


async def test_a_group_without_members_says_nothing(broker: ServedBroker) -> None:
    ext = {"topic": "orders", "group": "nobody"}
    answer = await broker.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext)
    assert "No Any Consumer online in the consumer group: [nobody]" in str(answer.remark)
    assert json.dumps(answer.ext or {}) == "{}"
