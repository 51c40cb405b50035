"""Codes 17, 18, 21, 202, 215, 300, 305 and 351: topics made, changed, described and deleted."""

import asyncio
import errno
import json
from typing import Any
from unittest import mock

import pytest

from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.kernel.processors.topics_admin import TOPICS_PER_TURN
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.store.files import disk
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.subscription import Subscription
from tests.support.direct import topic_fields
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker

NEW_TOPIC = topic_fields("orders", readQueueNums="8", writeQueueNums="6")


async def update(broker: ServedBroker, **changes: str) -> Command:
    return await broker.ask(Code.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC | changes)


async def described(broker: ServedBroker, name: str = "orders") -> dict[str, Any]:
    answer = await broker.ask(Code.GET_TOPIC_CONFIG, {"topic": name})
    assert answer.code == ResponseCode.SUCCESS
    document = fastjson.loads(answer.body)
    assert isinstance(document, dict)
    return document


async def test_topic_is_made_saved_and_announced(broker: ServedBroker) -> None:
    broker.tables.topics.start_saving()
    answer = await update(broker, attributes="+message.type=FIFO,+queue.type=BatchCQ")
    assert answer.code == ResponseCode.SUCCESS
    assert await described(broker) == {
        "attributes": {"message.type": "FIFO", "queue.type": "BatchCQ"},
        "order": False,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 0,
        "writeQueueNums": 6,
    }
    assert broker.tables.topics.is_saved
    assert b'"orders"' in broker.tables.topics.path.read_bytes()
    assert broker.announced == 1


async def test_topic_is_replaced_wholesale(broker: ServedBroker) -> None:
    await update(broker, order="true", topicSysFlag="1")
    assert (await update(broker, perm="4", readQueueNums="2")).code == ResponseCode.SUCCESS
    topic = await described(broker)
    assert (topic["perm"], topic["readQueueNums"], topic["order"]) == (4, 2, False)


async def test_unchanged_topic_is_fine_and_announced_to_nobody(broker: ServedBroker) -> None:
    await update(broker)
    assert (await update(broker)).code == ResponseCode.SUCCESS
    assert broker.announced == 1


async def test_changeable_attribute_changes_and_goes(broker: ServedBroker) -> None:
    await update(broker, attributes="+message.type=FIFO")
    await update(broker, attributes="+message.type=DELAY")
    assert (await described(broker))["attributes"] == {"message.type": "DELAY"}
    await update(broker, attributes="-message.type")
    assert (await described(broker))["attributes"] == {}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "../x"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "a/b"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": ""}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "t" * 128}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "a\0"}, ResponseCode.INVALID_PARAMETER),
        ({"readQueueNums": "1000000000"}, ResponseCode.SYSTEM_ERROR),
        ({"writeQueueNums": "65537"}, ResponseCode.SYSTEM_ERROR),
        ({"writeQueueNums": "-1"}, ResponseCode.SYSTEM_ERROR),
        ({"readQueueNums": "many"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "TBW102"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "rmq_sys_anything"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "DefaultCluster_REPLY_TOPIC"}, ResponseCode.INVALID_PARAMETER),
        ({"perm": "8"}, ResponseCode.INVALID_PARAMETER),
        ({"perm": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"topicFilterType": "TRIPLE"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "+nonsense=1"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "+queue.type=Round"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "-message.type"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "+queue.type"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "+reserve.time=-2"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "+reserve.time=--5"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "+reserve.time=9223372036854775808"}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": "+message.type=MIXED"}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_topic_that_makes_no_sense_is_refused(
    broker: ServedBroker, changes: dict[str, str], code: ResponseCode
) -> None:
    before = dict(broker.tables.topics.configs)
    answer = await update(broker, **changes)
    assert answer.code == code
    assert answer.remark
    assert broker.tables.topics.configs == before
    assert broker.announced == 0


async def test_most_queues_that_are_allowed_are_allowed(broker: ServedBroker) -> None:
    assert (await update(broker, writeQueueNums="65536")).code == ResponseCode.SUCCESS


async def test_queue_type_of_a_topic_stays(broker: ServedBroker) -> None:
    await update(broker, attributes="+queue.type=SimpleCQ")
    answer = await update(broker, attributes="+queue.type=BatchCQ")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "queue.type" in (answer.remark or "")


async def test_remark_names_the_system_topic_as_rocketmq_does(broker: ServedBroker) -> None:
    answer = await update(broker, topic="SELF_TEST_TOPIC")
    assert answer.remark == "The topic[SELF_TEST_TOPIC] is conflict with system topic."


async def test_missing_field_is_named(broker: ServedBroker) -> None:
    ext = {name: value for name, value in NEW_TOPIC.items() if name != "perm"}
    answer = await broker.ask(Code.UPDATE_AND_CREATE_TOPIC, ext)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "perm" in (answer.remark or "")


async def update_list(broker: ServedBroker, *topics: object) -> Command:
    body = json.dumps({"topicConfigList": list(topics)}).encode()
    return await broker.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=body)


async def test_list_of_topics_is_applied_though_one_is_unchanged(broker: ServedBroker) -> None:
    await update_list(broker, {"topicName": "a"})
    answer = await update_list(
        broker,
        {"topicName": "a"},
        {"topicName": "b", "readQueueNums": 2, "attributes": {"+message.type": "FIFO"}},
    )
    assert answer.code == ResponseCode.SUCCESS
    topic = await described(broker, "b")
    assert (topic["readQueueNums"], topic["writeQueueNums"]) == (2, 16)
    assert topic["attributes"] == {"message.type": "FIFO"}


async def test_other_requests_get_their_turn_while_many_topics_are_made(
    broker: ServedBroker,
) -> None:
    most = before = len(broker.tables.topics)
    growths = []

    async def watch() -> None:
        nonlocal before
        while True:
            growths.append(len(broker.tables.topics) - before)
            before = len(broker.tables.topics)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    answer = await update_list(broker, *({"topicName": f"t{n}"} for n in range(2000)))
    watching.cancel()
    assert answer.code == ResponseCode.SUCCESS
    assert len(broker.tables.topics) == most + 2000
    assert max(growths) == TOPICS_PER_TURN


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"topicName": "../x"}, ResponseCode.INVALID_PARAMETER),
        ({"perm": 6}, ResponseCode.SYSTEM_ERROR),
        (5, ResponseCode.SYSTEM_ERROR),
        ({"topicName": "b", "perm": "x"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_list_with_one_bad_topic_changes_nothing(
    broker: ServedBroker, bad: object, code: ResponseCode
) -> None:
    answer = await update_list(broker, {"topicName": "a"}, bad)
    assert answer.code == code
    assert "a" not in broker.tables.topics


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"topicConfigList":5}'])
async def test_list_that_is_none_is_refused(broker: ServedBroker, body: bytes) -> None:
    answer = await broker.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def delete(broker: ServedBroker, name: str) -> Command:
    return await broker.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": name})


async def test_deleted_topic_is_gone_with_queues_and_offsets(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    broker.create_topic("bills")
    put = broker.put("orders")
    for topic in ("orders", "bills"):
        broker.tables.offsets.commit(topic, "billing", 0, 1)
    assert (await delete(broker, "orders")).code == ResponseCode.SUCCESS
    assert "orders" not in broker.tables.topics
    assert broker.store.reading.queue_range("orders", 0) == (1, 1)
    assert broker.tables.offsets.topics_of("billing") == ["bills"]
    assert broker.store.reading.reader.record(put.commit_log_offset)
    assert broker.announced == 1


async def test_a_deletion_that_a_full_disk_refuses_takes_nothing(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("orders")
    broker.put("orders", b"0")
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(disk, "append_whole", mock.Mock(side_effect=full))
        assert (await delete(broker, "orders")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "orders" in broker.tables.topics
    assert broker.tables.offsets.topics_of("billing") == ["orders"]
    assert broker.put("orders", b"1").queue_offset == 1
    assert broker.store.reading.queue_range("orders", 0) == (0, 2)


async def test_a_topic_made_again_goes_on_where_the_former_one_ended(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    broker.put("orders")
    await delete(broker, "orders")
    broker.create_topic("orders")
    assert broker.put("orders", b"new").queue_offset == 1
    assert broker.store.reading.queue_range("orders", 0) == (1, 2)


async def test_deletion_takes_the_retry_topics_of_pop_along(broker: ServedBroker) -> None:
    broker.create_topic("orders")
    for name in ("%RETRY%billing+orders", "%RETRY%billing_orders", "%RETRY%billing"):
        broker.create_topic(name, queues=1)
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    await delete(broker, "orders")
    assert "%RETRY%billing+orders" not in broker.tables.topics
    assert "%RETRY%billing_orders" not in broker.tables.topics
    assert "%RETRY%billing" in broker.tables.topics


@pytest.mark.parametrize("code", [Code.DELETE_TOPIC_IN_BROKER, Code.PURGE_TOPIC])
async def test_what_waits_for_a_group_with_a_joined_name_stays(
    broker: ServedBroker, code: Code
) -> None:
    broker.create_topic("paid")
    broker.tables.offsets.commit("paid", "orders", 0, 0)
    broker.tables.groups.find_or_create("orders_paid")
    for name in ("%RETRY%orders_paid", "%RETRY%orders+unpaid"):
        broker.create_topic(name, queues=1)
        broker.put(name, b"waits")
    assert (await broker.ask(code, {"topic": "paid"})).code == ResponseCode.SUCCESS
    for name in ("%RETRY%orders_paid", "%RETRY%orders+unpaid"):
        assert name in broker.tables.topics
        assert broker.store.reading.queue_range(name, 0) == (0, 1)


async def test_deletion_of_a_groups_retry_topic_takes_what_it_popped_along(
    broker: ServedBroker,
) -> None:
    for name in ("%RETRY%billing", "%RETRY%billing+orders", "%RETRY%billing_late+orders"):
        broker.create_topic(name, queues=1)
    await delete(broker, "%RETRY%billing")
    assert [each for each in broker.tables.topics.configs if each.startswith("%RETRY%")] == [
        "%RETRY%billing_late+orders"
    ]


@pytest.mark.parametrize("code", [Code.DELETE_TOPIC_IN_BROKER, Code.PURGE_TOPIC])
@pytest.mark.parametrize("is_popped", [True, False])
async def test_a_retry_topic_is_left_to_those_whose_pops_wait_there(
    broker: ServedBroker, code: Code, is_popped: bool
) -> None:
    name = "%RETRY%orders_paid"
    broker.create_topic("paid")
    broker.tables.offsets.commit("paid", "orders", 0, 0)
    broker.tables.groups.find_or_create("orders_paid")
    broker.create_topic(name, queues=1)
    broker.put(name, b"pulled", properties="RETRY_TOPIC\x01others\x02")
    broker.put(name, b"popped", properties="1ST_POP_TIME\x015\x02" if is_popped else "")
    await broker.ask(code, {"topic": name})
    assert (broker.store.reading.queue_range(name, 0) == (0, 2)) is is_popped
    if is_popped:
        assert broker.tables.offsets.get(name, "orders_paid", 0) == 2


async def test_deletion_of_what_does_not_exist_is_fine(broker: ServedBroker) -> None:
    assert (await delete(broker, "nothing")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("name", ["", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x", "../x", "a/b"])
async def test_deletion_of_system_topics_and_bad_names_is_refused(
    broker: ServedBroker, name: str
) -> None:
    assert (await delete(broker, name)).code == ResponseCode.INVALID_PARAMETER


async def test_unknown_topic_is_not_described(broker: ServedBroker) -> None:
    for code in (Code.GET_TOPIC_CONFIG, Code.GET_TOPIC_STATS_INFO):
        answer = await broker.ask(code, {"topic": "nothing"})
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_all_topics_come_at_once_for_old_clients(broker: ServedBroker) -> None:
    broker.create_topic("orders", queues=2)
    answer = await broker.ask(Code.GET_ALL_TOPIC_CONFIG)
    document = fastjson.loads(answer.body)
    assert sorted(document) == [
        "dataVersion",
        "mappingDataVersion",
        "topicConfigTable",
        "topicQueueMappingDetailMap",
        "topicQueueMappingInfoMap",
    ]
    assert document["topicConfigTable"]["orders"]["writeQueueNums"] == 2
    assert document["dataVersion"] == broker.tables.topics.version.to_json()
    assert (answer.ext or {})["totalTopicNum"] == str(len(document["topicConfigTable"]))


async def test_all_topics_come_in_pages_for_new_clients(broker: ServedBroker) -> None:
    for number in range(5):
        broker.create_topic(f"topic-{number}")
    total, seen, start = len(broker.tables.topics), [], 0
    version = json.dumps(broker.tables.topics.version.to_json())
    while start < total:
        ext = {"topicSeq": str(start), "maxTopicNum": "3", "dataVersion": version}
        answer = await broker.ask(Code.GET_ALL_TOPIC_CONFIG, ext)
        assert (answer.ext or {})["totalTopicNum"] == str(total)
        page = sorted(fastjson.loads(answer.body)["topicConfigTable"])
        seen += page
        start += len(page)
    assert seen == sorted(broker.tables.topics.configs)


async def test_pages_begin_anew_when_topics_have_changed(broker: ServedBroker) -> None:
    version = json.dumps(broker.tables.topics.version.to_json())
    broker.create_topic("aaa")
    ext = {"topicSeq": "2", "maxTopicNum": "1", "dataVersion": version}
    answer = await broker.ask(Code.GET_ALL_TOPIC_CONFIG, ext)
    assert list(fastjson.loads(answer.body)["topicConfigTable"]) == [
        min(broker.tables.topics.configs)
    ]


async def test_statistics_of_a_topic_have_every_queue(broker: ServedBroker, clock: Clock) -> None:
    broker.tables.topics.put(TopicConfig("orders", read_queue_nums=1, write_queue_nums=2))
    broker.put("orders")
    clock.advance(1000)
    broker.put("orders")
    answer = await broker.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "orders"})
    queue = '{"brokerName":"broker-a","queueId":%d,"topic":"orders"}'
    assert answer.body.decode() == (
        '{"offsetTable":{'
        f'{queue % 0}:{{"lastUpdateTimestamp":{clock.now_ms},"maxOffset":2,"minOffset":0}},'
        f'{queue % 1}:{{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}}'
        '},"topicPutTps":0.0}'
    )
    sized = await broker.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "orders", "sizes": "true"})
    both = broker.store.log.written_offset
    assert f'"minOffset":0,"recordsBytes":{both}}},'.encode() in sized.body
    assert b'"minOffset":0,"recordsBytes":0}}' in sized.body


async def test_other_requests_get_their_turn_while_many_queues_are_described(
    broker: ServedBroker,
) -> None:
    broker.create_topic("orders", queues=200)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    answer = await broker.ask(Code.GET_TOPIC_STATS_INFO, {"topic": "orders"})
    counting.cancel()
    assert len(fastjson.loads(answer.body)["offsetTable"]) == 200
    assert turns > 5


async def test_consumers_of_a_topic_are_online_or_have_offsets(broker: ServedBroker) -> None:
    client = Client(Peer().connection, "c1", 0, 479)
    broker.kernel.consumers.register(
        "audit", client, ConsumeSettings(), {"orders": Subscription("orders")}
    )
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    answer = await broker.ask(Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"})
    assert answer.body == b'{"groupList":["audit","billing"]}'


async def test_system_topics_are_listed_with_the_address_of_the_broker(
    broker: ServedBroker,
) -> None:
    broker.create_topic("orders")
    answer = await broker.ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    document = fastjson.loads(answer.body)
    assert document["brokerAddr"] == "127.0.0.1:10911"
    assert "SCHEDULE_TOPIC_XXXX" in document["topicList"]
    assert "orders" not in document["topicList"]
