"""Priority: the queue is the priority, and a pop of such a topic begins with the most urgent."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.features.priority.queue_choice import queue_of_priority
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.message import Message
from rockhopper.protocol.properties import encode_properties
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.direct import short_send_fields, topic_fields
from tests.support.hot_broker import HotBroker
from tests.support.peers import Clock
from tests.support.popping import pop_fields
from tests.support.raw_peer import request
from tests.support.served_broker import ServedBroker

PRIORITY = "_SYS_MSG_PRIORITY_"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    served = ServedBroker(tmp_path, Clock(), {})
    served.topics.put(
        TopicConfig(
            "alarms",
            read_queue_nums=4,
            write_queue_nums=4,
            attributes={"message.type": "PRIORITY"},
        )
    )
    yield served
    await served.close()


def send_fields(topic: str, properties: dict[str, str], queue_id: int = 3) -> dict[str, str]:
    text = encode_properties({"UNIQ_KEY": "A1", **properties})
    return short_send_fields(topic, queue_id, text)


async def queue_of(broker: ServedBroker, properties: dict[str, str]) -> str:
    answer = await broker.ask(Code.SEND_MESSAGE_V2, send_fields("alarms", properties))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert answer.ext is not None
    return answer.ext["queueId"]


# What Apache RocketMQ 5.5.0 answered to the same sends to queue 3 of 4, and whether it kept the
# property.
@pytest.mark.parametrize(
    ("properties", "queue_id", "is_kept"),
    [
        ({PRIORITY: "5"}, "3", True),
        ({PRIORITY: "1"}, "1", True),
        ({PRIORITY: "-1"}, "3", True),
        ({PRIORITY: "abc"}, "3", True),
        ({PRIORITY: "1", "__SHARDINGKEY": "a"}, "3", False),
        ({}, "3", False),
    ],
)
async def test_priority_is_the_queue(
    broker: ServedBroker, properties: dict[str, str], queue_id: str, is_kept: bool
) -> None:
    assert await queue_of(broker, properties) == queue_id
    (stored,) = decode_messages(broker.store.get_message("alarms", int(queue_id), 0, 1).body)
    assert (PRIORITY in stored.properties) is is_kept


def test_what_delays_or_opens_a_transaction_comes_before_a_priority() -> None:
    for other in ({"DELAY": "1"}, {"TIMER_DELAY_MS": "1"}, {"TRAN_MSG": "true"}):
        properties = {PRIORITY: "1", **other}
        assert queue_of_priority(properties, 3, 4) == 3
        assert PRIORITY not in properties
    assert queue_of_priority({PRIORITY: "99999999999"}, 3, 4) == 3
    assert queue_of_priority({PRIORITY: "7"}, 3, 0) == 0


def test_the_hot_pass_leaves_a_priority_to_the_general_way(tmp_path: Path) -> None:
    hot = HotBroker(tmp_path)
    fields = send_fields("orders", {PRIORITY: "1"}, queue_id=2)
    hot.serve(FrameDecoder().feed(request(310, fields)))
    ((answer, _),) = hot.answers()
    assert answer.ext is not None
    assert answer.ext["queueId"] == "1"


async def pop(broker: ServedBroker, count: int) -> list[bytes]:
    fields = pop_fields(consumerGroup="guards", topic="alarms", maxMsgNums=count)
    answer = await broker.ask(Code.POP_MESSAGE, fields)
    return [message.body for message in decode_messages(answer.body)]


async def test_a_pop_begins_with_the_most_urgent(broker: ServedBroker) -> None:
    for queue_id in (1, 3, 0, 2):
        broker.put("alarms", f"urgency {queue_id}".encode(), queue_id=queue_id)
    assert await pop(broker, 3) == [b"urgency 3", b"urgency 2", b"urgency 1"]
    assert await pop(broker, 3) == [b"urgency 0"]


async def test_priorities_may_count_downwards(tmp_path: Path, broker: ServedBroker) -> None:
    broker.config.live.priority_order_asc = False
    for queue_id in (1, 3, 0, 2):
        broker.put("alarms", f"urgency {queue_id}".encode(), queue_id=queue_id)
    assert await pop(broker, 4) == [b"urgency 0", b"urgency 1", b"urgency 2", b"urgency 3"]


async def test_a_topic_may_be_of_type_priority(broker: ServedBroker) -> None:
    fields = topic_fields("sirens", 2, attributes="+message.type=PRIORITY")
    answer = await broker.ask(Code.UPDATE_AND_CREATE_TOPIC, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    topic = broker.topics.get("sirens")
    assert topic is not None
    assert topic.is_prioritised


async def test_a_group_says_how_often_priorities_count(broker: ServedBroker) -> None:
    body = b'{"groupName":"guards","attributes":{"+priority.factor":"%d"}}'
    code = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert (await broker.ask(code, body=body % 0)).code == ResponseCode.SUCCESS
    group = broker.groups.get("guards")
    assert group is not None
    assert group.priority_factor == 0
    refused = await broker.ask(code, body=body % 101)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "not in range" in (refused.remark or "")
    # What is not named stays.
    assert (await broker.ask(code, body=b'{"groupName":"guards"}')).code == ResponseCode.SUCCESS
    group = broker.groups.get("guards")
    assert group is not None
    assert group.priority_factor == 0


def test_a_message_carries_its_priority() -> None:
    assert Message("alarms", b"fire", priority=3).wire_properties()[PRIORITY] == "3"
    with pytest.raises(ValueError, match="priority is -1"):
        Message("alarms", priority=-1)
