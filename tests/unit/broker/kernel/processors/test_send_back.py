"""Code 36: a message that a consumer failed on comes back later, or goes to the dead letters."""

import pytest

from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.served_broker import ServedBroker

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture(autouse=True)
def orders(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    broker.tables.groups.find_or_create("billing")


async def send_back(
    broker: ServedBroker, offset: int, *, version: int = 479, **changes: str
) -> Command:
    ext = {"offset": str(offset), "group": "billing", "delayLevel": "0"} | changes
    return await broker.ask(Code.CONSUMER_SEND_MSG_BACK, ext, version=version)


def stored(broker: ServedBroker, topic: str, queue_id: int = 0) -> list[StoredMessage]:
    return decode_messages(broker.store.reading.get_message(topic, queue_id, 0, 32).body)


async def test_first_failure_waits_at_level_three(broker: ServedBroker) -> None:
    put = broker.put(
        "orders", b"hello", queue_id=2, properties="KEYS\x01k1\x02UNIQ_KEY\x01U1\x02TAGS\x01a\x02"
    )
    answer = await send_back(broker, put.commit_log_offset)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    (waiting,) = stored(broker, SCHEDULE, 2)
    assert waiting.body == b"hello"
    assert waiting.reconsume_times == 1
    assert waiting.born_time_ms == 1234
    assert (waiting.born_host, waiting.born_port) == ("10.1.2.3", 4567)
    offset_id = f"7F00000100002A9F{put.commit_log_offset:016X}"
    assert waiting.properties == {
        "KEYS": "k1",
        "UNIQ_KEY": "U1",
        "TAGS": "a",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": offset_id,
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%billing",
        "REAL_QID": "0",
    }


UNIQUE = "UNIQ_KEY\x01U1\x02"


@pytest.mark.parametrize("level", ["0", "-1"])
@pytest.mark.parametrize(
    "changes", [{"originMsgId": "U0"}, {"originMsgId": "U1", "storeTimestamp": "1"}]
)
async def test_another_message_at_the_offset_is_left_where_it_is(
    broker: ServedBroker, level: str, changes: dict[str, str]
) -> None:
    put = broker.put("orders", properties=UNIQUE)
    ext = {"offset": str(put.commit_log_offset), "group": "billing", "delayLevel": level}
    answer = await broker.ask(Code.CONSUMER_SEND_MSG_BACK, ext | changes)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"look message by offset failed, {put.commit_log_offset}: the offset now holds ano" in (
        answer.remark or ""
    )
    assert (stored(broker, SCHEDULE, 2), stored(broker, "%DLQ%billing")) == ([], [])


async def test_a_message_is_known_by_each_id_that_clients_send(broker: ServedBroker) -> None:
    properties = UNIQUE + "ORIGIN_MESSAGE_ID\x01ID0\x02"
    put = broker.put("orders", properties=properties)
    (message,) = stored(broker, "orders")
    offset_id = f"7F00000100002A9F{put.commit_log_offset:016X}"
    for message_id in ("U1", "ID0", offset_id, ""):
        answer = await send_back(
            broker,
            put.commit_log_offset,
            originMsgId=message_id,
            storeTimestamp=str(message.store_time_ms),
        )
        assert answer.code == ResponseCode.SUCCESS
    assert len(stored(broker, SCHEDULE, 2)) == 4


async def test_later_failures_wait_longer_and_remember_the_first_topic(
    broker: ServedBroker,
) -> None:
    broker.create_topic("%RETRY%billing", queues=1)
    properties = "RETRY_TOPIC\x01orders\x02ORIGIN_MESSAGE_ID\x01ID0\x02REAL_TOPIC\x01x\x02"
    put = broker.put("%RETRY%billing", properties=properties, reconsume_times=4)
    await send_back(broker, put.commit_log_offset)
    (waiting,) = stored(broker, SCHEDULE, 6)
    assert waiting.reconsume_times == 5
    assert waiting.properties["RETRY_TOPIC"] == "orders"
    assert waiting.properties["ORIGIN_MESSAGE_ID"] == "ID0"
    assert waiting.properties["REAL_TOPIC"] == "%RETRY%billing"


@pytest.mark.parametrize(("asked", "level"), [("1", 1), ("5", 5), ("18", 18), ("99", 18)])
async def test_consumer_may_choose_the_delay(broker: ServedBroker, asked: str, level: int) -> None:
    put = broker.put("orders")
    await send_back(broker, put.commit_log_offset, delayLevel=asked)
    (waiting,) = stored(broker, SCHEDULE, level - 1)
    assert waiting.properties["DELAY"] == str(level)


async def test_retries_beyond_the_last_level_stay_there(broker: ServedBroker) -> None:
    broker.tables.groups.put(SubscriptionGroup("billing", retry_max_times=100))
    put = broker.put("orders", reconsume_times=40)
    await send_back(broker, put.commit_log_offset)
    assert len(stored(broker, SCHEDULE, 17)) == 1


async def test_message_that_failed_too_often_goes_to_the_dead_letters(
    broker: ServedBroker,
) -> None:
    put = broker.put("orders", reconsume_times=16)
    assert (await send_back(broker, put.commit_log_offset)).code == ResponseCode.SUCCESS
    (dead,) = stored(broker, "%DLQ%billing")
    assert dead.reconsume_times == 17
    assert dead.properties["DELAY"] == "0"
    assert dead.properties["RETRY_TOPIC"] == "orders"
    assert "REAL_TOPIC" not in dead.properties
    topic = broker.tables.topics.get("%DLQ%billing")
    assert topic is not None
    assert (topic.write_queue_nums, topic.perm) == (1, 6)
    assert broker.stats.dead("orders", "billing").messages == 1


async def test_one_try_less_still_comes_back(broker: ServedBroker) -> None:
    put = broker.put("orders", reconsume_times=15)
    await send_back(broker, put.commit_log_offset)
    assert len(stored(broker, SCHEDULE, 17)) == 1
    assert broker.stats.get_send_back_traffic("orders", "billing").messages == 1


async def test_negative_level_means_never_again(broker: ServedBroker) -> None:
    put = broker.put("orders")
    await send_back(broker, put.commit_log_offset, delayLevel="-1")
    assert len(stored(broker, "%DLQ%billing")) == 1


@pytest.mark.parametrize(("version", "dead"), [(479, 1), (121, 1), (63, 0)])
async def test_client_may_lower_the_maximum_unless_it_is_too_old_to_mean_it(
    broker: ServedBroker, version: int, dead: int
) -> None:
    put = broker.put("orders", reconsume_times=2)
    await send_back(broker, put.commit_log_offset, version=version, maxReconsumeTimes="2")
    assert len(stored(broker, "%DLQ%billing")) == dead


async def test_group_without_retry_queues_loses_nothing_all_the_same(broker: ServedBroker) -> None:
    broker.tables.groups.put(SubscriptionGroup("billing", retry_queue_nums=0))
    put = broker.put("orders")
    answer = await send_back(broker, put.commit_log_offset)
    assert answer.code == ResponseCode.SUCCESS
    assert len(stored(broker, SCHEDULE, 2)) == 1
    topic = broker.tables.topics.get("%RETRY%billing")
    assert topic is not None
    assert topic.read_queue_nums == 1


async def test_negative_maximum_of_a_client_is_none(broker: ServedBroker) -> None:
    put = broker.put("orders")
    await send_back(broker, put.commit_log_offset, maxReconsumeTimes="-1")
    assert len(stored(broker, SCHEDULE, 2)) == 1


async def test_damaged_message_is_an_error_and_not_forgotten(broker: ServedBroker) -> None:
    put = broker.put("orders", b"A" * 100)
    (path,) = (broker.config.store.root / "commitlog").iterdir()
    with path.open("r+b") as file:
        data = file.read()
        file.seek(data.index(b"A" * 100))
        file.write(b"B")
    answer = await send_back(broker, put.commit_log_offset)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"look message by offset failed, {put.commit_log_offset}"


async def test_unit_of_a_consumer_is_noted_at_its_retry_topic(broker: ServedBroker) -> None:
    put = broker.put("orders")
    await send_back(broker, put.commit_log_offset, unitMode="true")
    topic = broker.tables.topics.get("%RETRY%billing")
    assert topic is not None
    assert topic.sys_flag == 2


async def test_group_is_made_on_first_use_with_its_retry_topic(broker: ServedBroker) -> None:
    put = broker.put("orders")
    answer = await send_back(broker, put.commit_log_offset, group="audit")
    assert answer.code == ResponseCode.SUCCESS
    assert "%RETRY%audit" in broker.tables.topics


@pytest.mark.parametrize("group", ["../x", "", "g" * 121])
async def test_bad_group_name_is_refused(broker: ServedBroker, group: str) -> None:
    put = broker.put("orders")
    answer = await send_back(broker, put.commit_log_offset, group=group)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert broker.store.log.written_offset == put.end_offset


@pytest.mark.parametrize("offset", [-1, 2**62, 3])
async def test_offset_that_is_no_message_is_refused(broker: ServedBroker, offset: int) -> None:
    broker.put("orders")
    answer = await send_back(broker, offset)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"look message by offset failed, {offset}"


async def test_broker_that_takes_no_messages_refuses(broker: ServedBroker) -> None:
    put = broker.put("orders")
    broker.config.live.broker_permission = 4
    answer = await send_back(broker, put.commit_log_offset)
    assert answer.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(("topic", "level"), [("%RETRY%billing", "0"), ("%DLQ%billing", "-1")])
async def test_retry_and_dead_letter_topics_may_be_closed(
    broker: ServedBroker, topic: str, level: str
) -> None:
    put = broker.put("orders")
    broker.tables.topics.put(TopicConfig(topic, read_queue_nums=1, write_queue_nums=1, perm=4))
    answer = await send_back(broker, put.commit_log_offset, delayLevel=level)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == f"the topic[{topic}] sending message is forbidden"


async def test_value_with_a_separator_goes_on_as_it_came(broker: ServedBroker) -> None:
    put = broker.put("orders", properties="a\x01b\x01c\x02")
    assert (await send_back(broker, put.commit_log_offset)).code == ResponseCode.SUCCESS
    (waiting,) = stored(broker, SCHEDULE, 2)
    assert waiting.properties["a"] == "b\x01c"


async def test_missing_offset_names_the_field(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.CONSUMER_SEND_MSG_BACK, {"group": "billing", "delayLevel": "0"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "offset" in (answer.remark or "")
