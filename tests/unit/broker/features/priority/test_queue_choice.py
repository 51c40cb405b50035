"""Priority: the queue is the priority."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.features.priority.queue_choice import queue_of_priority
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.properties import encode_properties
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.direct import short_send_fields
from tests.support.hot_broker import HotBroker
from tests.support.peers import Clock
from tests.support.raw_peer import request
from tests.support.served_broker import ServedBroker

PRIORITY = "_SYS_MSG_PRIORITY_"


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
    (stored,) = decode_messages(
        broker.store.reading.get_message("alarms", int(queue_id), 0, 1).body
    )
    assert (PRIORITY in stored.properties) is is_kept


def test_what_delays_or_opens_a_transaction_comes_before_a_priority() -> None:
    alarms = TopicConfig("alarms", write_queue_nums=4)
    for other in ({"DELAY": "1"}, {"TIMER_DELAY_MS": "1"}, {"TRAN_MSG": "true"}):
        properties = {PRIORITY: "1", **other}
        assert queue_of_priority(properties, alarms, 3) == 3
        assert PRIORITY not in properties
    assert queue_of_priority({PRIORITY: "99999999999"}, alarms, 3) == 3
    assert queue_of_priority({PRIORITY: "7"}, TopicConfig("none", write_queue_nums=0), 3) == 0


def test_the_hot_pass_leaves_a_priority_to_the_general_way(tmp_path: Path) -> None:
    hot = HotBroker(tmp_path)
    fields = send_fields("orders", {PRIORITY: "1"}, queue_id=2)
    hot.serve(FrameDecoder().feed(request(310, fields)))
    ((answer, _),) = hot.answers()
    assert answer.ext is not None
    assert answer.ext["queueId"] == "1"
