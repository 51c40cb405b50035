"""The checks of a send: may it, where to, and which queue; codes and order are RocketMQ's."""

import pytest

from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.support.direct import send_fields
from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker


async def send(broker: ServedBroker, topic: str = "orders", **changes: str) -> Command:
    fields = send_fields(topic) | changes
    return await broker.ask(RequestCode.SEND_MESSAGE, fields, b"hello")


@pytest.fixture(autouse=True)
def orders(broker: ServedBroker) -> None:
    broker.create_topic("orders", queues=4)


async def test_a_queue_that_is_named_is_taken_and_any_other_one_if_none_is(
    broker: ServedBroker,
) -> None:
    answer = await send(broker, queueId="3")
    assert (answer.ext or {})["queueId"] == "3"
    found = {(await send(broker, queueId="-1")).ext["queueId"] for _ in range(60)}  # type: ignore[index]
    assert found == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("topic", "changes", "code", "says"),
    [
        ("orders", {"queueId": "4"}, ResponseCode.INVALID_PARAMETER, "queueId[4] is illegal"),
        ("no topic!", {}, ResponseCode.INVALID_PARAMETER, "no topic!"),
        ("", {}, ResponseCode.INVALID_PARAMETER, ""),
        ("SCHEDULE_TOPIC_XXXX", {}, ResponseCode.NO_PERMISSION, "is forbidden"),
        ("gone", {"defaultTopic": "nothing"}, ResponseCode.TOPIC_NOT_EXIST, "apply first please"),
    ],
)
async def test_what_cannot_be_sent_says_why(
    broker: ServedBroker, topic: str, changes: dict[str, str], code: int, says: str
) -> None:
    answer = await send(broker, topic, **changes)
    assert answer.code == code
    assert says in str(answer.remark)


async def test_a_topic_without_writers_and_a_broker_without_refuse(broker: ServedBroker) -> None:
    broker.create_topic("closed", perm=4)
    answer = await send(broker, "closed")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "topic[closed] sending" in str(answer.remark)
    broker.config.live.broker_permission = 4
    answer = await send(broker)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "the broker[broker-a] sending" in str(answer.remark)


async def test_a_broker_that_is_not_open_yet_says_when(broker: ServedBroker, clock: Clock) -> None:
    broker.config.live.accept_send_from_ms = clock() + 1
    answer = await send(broker)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "until 2023-11-1" in str(answer.remark)
    broker.config.live.accept_send_from_ms = clock()
    assert (await send(broker)).code == ResponseCode.SUCCESS


async def test_a_new_topic_has_as_many_queues_as_were_asked_for(broker: ServedBroker) -> None:
    answer = await send(broker, "new", defaultTopicQueueNums="2")
    assert answer.code == ResponseCode.SUCCESS
    topic = broker.tables.topics.get("new")
    assert topic is not None
    assert topic.write_queue_nums == 2


@pytest.mark.parametrize(
    ("times", "most", "delay", "is_dead"),
    [
        ("2", None, None, False),
        ("3", None, None, False),
        ("4", None, None, True),
        ("3", None, "6", True),
        ("3", None, "5", False),
        ("2", "1", None, True),
        ("1", "1", None, False),
        ("4", "-1", None, True),
        ("4", "9", None, False),
    ],
)
async def test_what_a_consumer_gave_up_on_goes_to_the_dead_letters(
    broker: ServedBroker, times: str, most: str | None, delay: str | None, is_dead: bool
) -> None:
    group = broker.tables.groups.find_or_create("g")
    assert group is not None
    group.retry_max_times = 3
    changes = {"reconsumeTimes": times, "queueId": "0"}
    if most is not None:
        changes["maxReconsumeTimes"] = most
    if delay is not None:
        changes["properties"] = f"DELAY\x01{delay}\x02"
    answer = await send(broker, "%RETRY%g", **changes)
    assert answer.code == ResponseCode.SUCCESS
    dead = broker.store.reading.queue_range("%DLQ%g", 0)[1]
    delayed = broker.tables.topics.get("%DLQ%g") is not None
    assert bool(dead or delayed) is is_dead


async def test_the_retry_topic_of_no_group_is_refused(broker: ServedBroker) -> None:
    broker.config.live.auto_create_subscription_group = False
    answer = await send(broker, "%RETRY%nobody")
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
