"""A pop of a topic of type PRIORITY begins with the most urgent queue."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.direct import topic_fields
from tests.support.peers import Clock
from tests.support.popping import pop_fields
from tests.support.served_broker import ServedBroker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    served = ServedBroker(tmp_path, Clock(), {})
    served.tables.topics.put(
        TopicConfig(
            "alarms",
            read_queue_nums=4,
            write_queue_nums=4,
            attributes={"message.type": "PRIORITY"},
        )
    )
    yield served
    await served.close()


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
    broker.config.pop.priority_order_asc = False
    for queue_id in (1, 3, 0, 2):
        broker.put("alarms", f"urgency {queue_id}".encode(), queue_id=queue_id)
    assert await pop(broker, 4) == [b"urgency 0", b"urgency 1", b"urgency 2", b"urgency 3"]


async def test_a_topic_may_be_of_type_priority(broker: ServedBroker) -> None:
    fields = topic_fields("sirens", 2, attributes="+message.type=PRIORITY")
    answer = await broker.ask(Code.UPDATE_AND_CREATE_TOPIC, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    topic = broker.tables.topics.get("sirens")
    assert topic is not None
    assert topic.is_prioritised


async def test_a_group_says_how_often_priorities_count(broker: ServedBroker) -> None:
    body = b'{"groupName":"guards","attributes":{"+priority.factor":"%d"}}'
    code = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert (await broker.ask(code, body=body % 0)).code == ResponseCode.SUCCESS
    group = broker.tables.groups.get("guards")
    assert group is not None
    assert group.priority_factor == 0
    refused = await broker.ask(code, body=body % 101)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "not in range" in (refused.remark or "")
    # What is not named stays.
    assert (await broker.ask(code, body=b'{"groupName":"guards"}')).code == ResponseCode.SUCCESS
    group = broker.tables.groups.get("guards")
    assert group is not None
    assert group.priority_factor == 0
