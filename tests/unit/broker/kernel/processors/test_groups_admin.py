"""Codes 200, 201, 203, 204, 207, 208, 225, 343, 345 and 352: groups, who is in them, how far."""

import asyncio
import json
from typing import Any

import pytest

from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import LanguageCode, ResponseCode
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.command import Command
from rockhopper.protocol.subscription import Subscription
from tests.support.direct import pull_fields
from tests.support.features import needs
from tests.support.peers import Clock, Peer
from tests.support.popping import pop_fields
from tests.support.served_broker import ServedBroker

QUEUE = '{"brokerName":"broker-a","queueId":%d,"topic":"%s"}'


async def update(broker: ServedBroker, **settings: object) -> Command:
    body = json.dumps({"groupName": "billing"} | settings).encode()
    return await broker.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


async def described(broker: ServedBroker, name: str = "billing") -> dict[str, Any]:
    answer = await broker.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name})
    assert answer.code == ResponseCode.SUCCESS
    document = fastjson.loads(answer.body)
    assert isinstance(document, dict)
    return document


def join(broker: ServedBroker, peer: Peer, *topics: str, group: str = "billing") -> None:
    client = Client(peer.connection, "c1", LanguageCode.GO, 317)
    subscriptions = {topic: Subscription(topic, "TagA", version=5) for topic in topics}
    broker.kernel.consumers.register(group, client, ConsumeSettings(), subscriptions)


async def test_group_is_made_and_saved_with_defaults_for_what_is_not_said(
    broker: ServedBroker,
) -> None:
    broker.tables.groups.start_saving()
    answer = await update(broker, retryMaxTimes=3, consumeEnable=False)
    assert answer.code == ResponseCode.SUCCESS
    assert broker.tables.groups.is_saved
    assert await described(broker) == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": False,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "billing",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 3,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


async def test_group_is_replaced_wholesale(broker: ServedBroker) -> None:
    await update(broker, retryMaxTimes=3)
    await update(broker, retryQueueNums=2)
    group = await described(broker)
    assert (group["retryMaxTimes"], group["retryQueueNums"]) == (16, 2)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"groupName": "../x"}, ResponseCode.INVALID_PARAMETER),
        ({"groupName": ""}, ResponseCode.INVALID_PARAMETER),
        ({"groupName": "g" * 121}, ResponseCode.INVALID_PARAMETER),
        ({"groupName": 5}, ResponseCode.SYSTEM_ERROR),
        ({"retryMaxTimes": "often"}, ResponseCode.SYSTEM_ERROR),
        ({"retryMaxTimes": []}, ResponseCode.SYSTEM_ERROR),
        ({"retryQueueNums": 1_000_000}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": {"+a": "b"}}, ResponseCode.SYSTEM_ERROR),
        ({"attributes": 5}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_group_that_makes_no_sense_is_refused(
    broker: ServedBroker, settings: dict[str, object], code: ResponseCode
) -> None:
    before = dict(broker.tables.groups.groups)
    answer = await update(broker, **settings)
    assert answer.code == code
    assert answer.remark
    assert broker.tables.groups.groups == before


@pytest.mark.parametrize("body", [b"", b"garbage", b"[]", b"null"])
async def test_body_that_is_no_group_is_refused(broker: ServedBroker, body: bytes) -> None:
    answer = await broker.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_list_of_groups_is_all_or_nothing(broker: ServedBroker) -> None:
    async def update_list(*groups: object) -> int:
        body = json.dumps({"groupConfigList": groups}).encode()
        answer = await broker.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)
        return answer.code

    assert await update_list({"groupName": "a"}, {"groupName": "../x"}) != ResponseCode.SUCCESS
    assert "a" not in broker.tables.groups
    assert await update_list({"groupName": "a"}, {"groupName": "b"}) == ResponseCode.SUCCESS
    assert "a" in broker.tables.groups
    assert "b" in broker.tables.groups
    answer = await broker.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=b"{}")
    assert answer.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(("clean", "left"), [("true", []), ("false", ["orders"])])
async def test_deleted_group_keeps_its_offsets_unless_asked(
    broker: ServedBroker, clean: str, left: list[str]
) -> None:
    broker.tables.groups.put(SubscriptionGroup("billing"))
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    ext = {"groupName": "billing", "cleanOffset": clean}
    answer = await broker.ask(Code.DELETE_SUBSCRIPTIONGROUP, ext)
    assert answer.code == ResponseCode.SUCCESS
    assert "billing" not in broker.tables.groups
    assert broker.tables.offsets.topics_of("billing") == left


async def test_deletion_of_a_group_that_does_not_exist_is_fine(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "nobody"})
    assert answer.code == ResponseCode.SUCCESS


async def test_asking_about_a_group_does_not_make_it(broker: ServedBroker) -> None:
    assert (await described(broker, "nobody"))["groupName"] == "nobody"
    assert "nobody" not in broker.tables.groups


@pytest.mark.parametrize(("name", "creates"), [("nobody", False), ("../x", True), ("", True)])
async def test_group_that_cannot_come_to_be_does_not_exist(
    broker: ServedBroker, name: str, creates: bool
) -> None:
    broker.config.live.auto_create_subscription_group = creates
    answer = await broker.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name})
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_all_groups_come_at_once_or_in_pages(broker: ServedBroker) -> None:
    broker.tables.groups.put(SubscriptionGroup("billing"))
    total = len(broker.tables.groups)
    answer = await broker.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    document = fastjson.loads(answer.body)
    assert sorted(document) == ["dataVersion", "forbiddenTable", "subscriptionGroupTable"]
    assert sorted(document["subscriptionGroupTable"]) == sorted(broker.tables.groups.groups)
    assert answer.ext == {"totalGroupNum": str(total)}
    ext = {"groupSeq": str(total - 1), "maxGroupNum": "5", "dataVersion": ""}
    answer = await broker.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ext)
    last_page = fastjson.loads(answer.body)["subscriptionGroupTable"]
    assert list(last_page) == [max(broker.tables.groups.groups)]


async def test_members_that_are_online_are_listed(broker: ServedBroker) -> None:
    join(broker, Peer("10.0.0.7", 4000), "orders")
    answer = await broker.ask(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "billing"})
    assert answer.body == (
        b'{"connectionSet":[{"clientAddr":"10.0.0.7:4000","clientId":"c1","language":"GO",'
        b'"version":317}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
        b'"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{"orders":'
        b'{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA",'
        b'"subVersion":5,"tagsSet":["TagA"],"topic":"orders"}}}'
    )


async def test_group_without_members_is_not_online(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "billing"})
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert answer.remark == "the consumer group[billing] not online"


async def test_producers_that_are_online_are_listed(broker: ServedBroker) -> None:
    unknown_language = Client(Peer("10.0.0.7", 4000).connection, "p1", 99, 479)
    broker.kernel.producers.register("senders", unknown_language)
    answer = await broker.ask(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "senders"})
    assert fastjson.loads(answer.body) == {
        "connectionSet": [
            {"clientAddr": "10.0.0.7:4000", "clientId": "p1", "language": "OTHER", "version": 479}
        ]
    }


async def test_producer_group_without_members_does_not_exist(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "senders"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "the producer group[senders] not exist"


async def test_subscription_of_a_group_is_described(broker: ServedBroker) -> None:
    join(broker, Peer(), "orders")
    ext = {"group": "billing", "topic": "orders"}
    answer = await broker.ask(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, ext)
    document = fastjson.loads(answer.body)
    assert document["subscriptionData"]["subString"] == "TagA"
    answer = await broker.ask(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, ext | {"group": "nobody"})
    assert answer.body == b'{"group":"nobody","topic":"orders"}'


async def test_topics_of_a_group_are_those_with_offsets(broker: ServedBroker) -> None:
    for topic in ("orders", "bills"):
        broker.tables.offsets.commit(topic, "billing", 0, 1)
    broker.tables.offsets.commit("other", "audit", 0, 1)
    answer = await broker.ask(Code.QUERY_TOPICS_BY_CONSUMER, {"group": "billing"})
    assert answer.body == b'{"brokerAddr":"127.0.0.1:10911","topicList":["bills","orders"]}'


async def test_topics_of_a_group_are_with_its_retries_if_it_is_asked_for_them(
    broker: ServedBroker,
) -> None:
    for group in ("billing", "bill", "billing+"):
        broker.tables.groups.find_or_create(group)
    for topic in ("orders", "%RETRY%billing", "%RETRY%billing+orders", "%RETRY%billing_orders"):
        broker.create_topic(topic)
        broker.put(topic)
    broker.create_topic("%RETRY%billing+empty")
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    asked = {"group": "billing", "withRetryTopics": "true"}
    answer = await broker.ask(Code.QUERY_TOPICS_BY_CONSUMER, asked)
    assert fastjson.loads(answer.body)["topicList"] == [
        "%RETRY%billing",
        "%RETRY%billing+orders",
        "%RETRY%billing_orders",
        "orders",
    ]
    answer = await broker.ask(Code.QUERY_TOPICS_BY_CONSUMER, {"group": "bill"})
    assert fastjson.loads(answer.body)["topicList"] == []
    answer = await broker.ask(Code.QUERY_TOPICS_BY_CONSUMER, asked | {"group": "bill"})
    assert fastjson.loads(answer.body)["topicList"] == []


async def test_consume_stats_show_end_and_offset_of_each_queue(
    broker: ServedBroker, clock: Clock
) -> None:
    broker.create_topic("orders", queues=2)
    first_ms = clock.now_ms
    broker.put("orders")
    clock.advance(1000)
    broker.put("orders")
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    answer = await broker.ask(Code.GET_CONSUME_STATS, {"consumerGroup": "billing"})
    assert answer.body.decode() == (
        '{"consumeTps":0.0,"offsetTable":{'
        f'{QUEUE % (0, "orders")}:{{"brokerOffset":2,"consumerOffset":1,"lastTimestamp":{first_ms},'
        '"pullOffset":1},'
        f'{QUEUE % (1, "orders")}:{{"brokerOffset":0,"consumerOffset":0,"lastTimestamp":0,'
        '"pullOffset":0}}}'
    )


async def test_what_was_handed_out_and_not_committed_is_in_flight(broker: ServedBroker) -> None:
    broker.create_topic("orders", queues=1)
    await update(broker)
    for _ in range(3):
        broker.put("orders")
    await broker.ask(Code.PULL_MESSAGE, pull_fields("orders", 0) | {"consumerGroup": "billing"})
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    answer = await broker.ask(Code.GET_CONSUME_STATS, {"consumerGroup": "billing"})
    (queue,) = fastjson.loads(answer.body)["offsetTable"].values()
    assert (queue["consumerOffset"], queue["pullOffset"]) == (1, 3)
    answer = await broker.ask(Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    body = fastjson.loads(answer.body)
    (queue,) = body["consumeStatsList"][0]["billing"][0]["offsetTable"].values()
    assert (queue["consumerOffset"], queue["pullOffset"]) == (1, 3)
    assert body["totalInflightDiff"] == 2


@needs("pop")
async def test_what_was_popped_and_not_acknowledged_is_in_flight(broker: ServedBroker) -> None:
    broker.create_topic("orders", queues=1)
    await update(broker)
    for _ in range(3):
        broker.put("orders")
    pop = pop_fields(consumerGroup="billing", topic="orders", maxMsgNums=2)
    await broker.ask(Code.POP_MESSAGE, pop)
    ext = {"consumerGroup": "billing", "topic": "orders"}
    answer = await broker.ask(Code.GET_CONSUME_STATS, ext)
    (queue,) = fastjson.loads(answer.body)["offsetTable"].values()
    assert (queue["consumerOffset"], queue["pullOffset"]) == (0, 2)
    assert broker.stats.windows("GROUP_CK_NUMS", "orders@billing") is not None
    assert broker.stats.windows("GROUP_GET_LATENCY", "0@orders@billing") is None


async def topics_reported(broker: ServedBroker, **ext: str) -> set[str]:
    answer = await broker.ask(Code.GET_CONSUME_STATS, {"consumerGroup": "billing"} | ext)
    assert answer.code == ResponseCode.SUCCESS
    return {
        fastjson.MessageQueueKey.parse(key).topic
        for key in fastjson.loads(answer.body)["offsetTable"]
    }


async def test_consume_stats_leave_out_what_the_online_group_does_not_subscribe_to(
    broker: ServedBroker,
) -> None:
    for topic in ("orders", "bills"):
        broker.create_topic(topic)
        broker.tables.offsets.commit(topic, "billing", 0, 1)
    assert await topics_reported(broker) == {"orders", "bills"}
    assert await topics_reported(broker, topic="bills") == {"bills"}
    join(broker, Peer(), "orders")
    assert await topics_reported(broker) == {"orders"}
    assert await topics_reported(broker, topic="bills") == set()
    assert await topics_reported(broker, topicList="bills;orders;nothing") == {"orders", "bills"}


async def test_a_group_that_subscribes_to_nothing_is_measured_by_its_offsets(
    broker: ServedBroker,
) -> None:
    """Java's LitePullConsumer with assigned queues, as in Flink's connector, joins like that."""
    broker.create_topic("orders")
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    join(broker, Peer())
    assert await topics_reported(broker) == {"orders"}


async def test_consume_stats_of_many_topics_leave_others_their_turns(broker: ServedBroker) -> None:
    for number in range(200):
        broker.create_topic(f"orders{number}", queues=4)
        broker.tables.offsets.commit(f"orders{number}", "billing", 0, 1)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    before = broker.store.reading.queue_range
    most = looked_at = seen = 0

    def queue_range(topic: str, queue_id: int) -> tuple[int, int]:
        nonlocal most, looked_at, seen
        looked_at = looked_at + 1 if turns == seen else 1
        seen, most = turns, max(most, looked_at)
        return before(topic, queue_id)

    broker.store.reading.queue_range = queue_range  # type: ignore[method-assign]
    answer = await broker.ask(Code.GET_CONSUME_STATS, {"consumerGroup": "billing"})
    counting.cancel()
    assert len(fastjson.loads(answer.body)["offsetTable"]) == 800
    assert most <= 64
