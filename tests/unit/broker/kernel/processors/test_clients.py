"""Codes 34, 35, 38 and 46: heartbeats of every client there is, and what they bring about."""

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.users.access import Action, Resource, ResourceKind
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from tests.support.peers import Clock, Peer
from tests.support.rules import Rules
from tests.support.served_broker import ServedBroker

# As the Java 5 client writes it (RocketMQ's HeartbeatData).
JAVA_BEAT = (
    b'{"clientID":"127.0.0.1@123#456","consumerDataSet":[{"consumeFromWhere":'
    b'"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"billing",'
    b'"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[],'
    b'"expressionType":"TAG","subString":"*","subVersion":1795166829790,"tagsSet":[],'
    b'"topic":"orders"}],"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":'
    b'[{"groupName":"senders"}],"withoutSub":false}'
)
GO_BEAT = (
    b'{"clientID":"10.0.0.7@77","producerDataSet":[],"consumerDataSet":[{"groupName":"billing",'
    b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":'
    b'"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[{"ClassFilterMode":false,"topic":"orders",'
    b'"subString":"TagA","tagsSet":["TagA"],"codeSet":["2598919"],"subVersion":'
    b'1795166829790123456,"expressionType":"TAG"}],"unitMode":false}]}'
)
JS_BEAT = (
    b'{"clientID":"10.0.0.8@88","consumerDataSet":[{"consumeFromWhere":'
    b'"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"billing",'
    b'"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":'
    b'[2598919],"subString":"TagA","subVersion":1795166829790,"tagsSet":["TagA"],"topic":'
    b'"orders"},{"classFilterMode":false,"codeSet":[],"subString":"*","subVersion":1795166829790,'
    b'"tagsSet":[],"topic":"%RETRY%billing"}],"unitMode":null}],"producerDataSet":[]}'
)
CPP_BEAT = (
    b'{"clientID":"10.0.0.9@99","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,'
    b'"groupName":"billing","messageModel":1,"subscriptionDataSet":[{"codeSet":[0,0],"subString":'
    b'"TagA || TagB","subVersion":"1795166829790","tagsSet":["TagA","TagB"],"topic":"orders"}]}],'
    b'"producerDataSet":[{"groupName":""}]}\n'
)


def beat(client_id: str = "c1", group: str = "billing", **changes: Any) -> bytes:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": "orders", "subString": "*", "subVersion": 1}],
    }
    return json.dumps({"clientID": client_id, "consumerDataSet": [consumer]} | changes).encode()


async def send(broker: ServedBroker, body: bytes, peer: Peer) -> Command:
    return await broker.ask(Code.HEART_BEAT, body=body, peer=peer)


async def members(broker: ServedBroker, group: str = "billing") -> list[str]:
    answer = await broker.ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    ids = fastjson.loads(answer.body)["consumerIdList"]
    assert isinstance(ids, list)
    return ids


@pytest.mark.parametrize("body", [JAVA_BEAT, GO_BEAT, JS_BEAT, CPP_BEAT])
async def test_heartbeats_of_all_clients_make_a_member(broker: ServedBroker, body: bytes) -> None:
    peer = Peer()
    answer = await send(broker, body, peer)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert await members(broker) == [json.loads(body)["clientID"]]
    group = broker.kernel.consumers.get("billing")
    assert group is not None
    assert group.settings.consume_type == "CONSUME_PASSIVELY"
    assert group.settings.message_model == "CLUSTERING"


@pytest.mark.parametrize("body", [GO_BEAT, JS_BEAT, CPP_BEAT])
async def test_filter_comes_from_the_expression_whatever_the_hashes_say(
    broker: ServedBroker, body: bytes
) -> None:
    peer = Peer()
    await send(broker, body, peer)
    subscription = broker.kernel.consumers.subscription("billing", "orders", peer.connection)
    assert subscription is not None
    assert subscription.matches_hash(2598919)
    assert not subscription.matches_hash(0)


async def test_first_heartbeat_makes_group_and_retry_topic_at_once(broker: ServedBroker) -> None:
    await send(broker, JAVA_BEAT, Peer())
    assert broker.tables.groups.get("billing") is not None
    retry = broker.tables.topics.get("%RETRY%billing")
    assert retry is not None
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)


async def test_producers_of_a_heartbeat_are_known(broker: ServedBroker) -> None:
    await send(broker, JAVA_BEAT, Peer())
    assert [client.client_id for client in broker.kernel.producers.clients("senders")] == [
        "127.0.0.1@123#456"
    ]


async def test_every_member_is_told_of_a_new_one(broker: ServedBroker) -> None:
    old, new = Peer(), Peer()
    await send(broker, beat("c1"), old)
    await send(broker, beat("c2"), new)
    assert old.requests == [(40, {"consumerGroup": "billing"})] * 2
    assert await members(broker) == ["c1", "c2"]


async def test_group_that_may_not_be_created_is_left_out_in_silence(broker: ServedBroker) -> None:
    broker.config.live.auto_create_subscription_group = False
    answer = await send(broker, beat(), Peer())
    assert answer.code == ResponseCode.SUCCESS
    assert broker.kernel.consumers.get("billing") is None
    assert "%RETRY%billing" not in broker.tables.topics


@pytest.mark.parametrize("group", ["../x", "a/b", "", "g" * 121, "a\0"])
async def test_bad_group_names_make_nothing(broker: ServedBroker, group: str) -> None:
    before = len(broker.tables.topics)
    assert (await send(broker, beat(group=group), Peer())).code == ResponseCode.SUCCESS
    assert list(broker.kernel.consumers) == []
    assert len(broker.tables.topics) == before


@pytest.mark.parametrize("group", ["a.b", "a b", "gr\u00fc\u00dfe", "g" * 300, ""])
async def test_producer_groups_of_any_name_are_online(broker: ServedBroker, group: str) -> None:
    """As in RocketMQ: no file is called by them, and transactions are checked by them."""
    body = beat(producerDataSet=[{"groupName": group}, {"groupName": "g" * 5000}])
    assert (await send(broker, body, Peer())).code == ResponseCode.SUCCESS
    assert list(broker.kernel.producers.groups()) == [group]
    answer = await broker.ask(Code.GET_ALL_PRODUCER_INFO)
    (producer,) = json.loads(answer.body)["data"][group]
    assert producer["remoteIP"] == "/127.0.0.1:40000"


@pytest.mark.parametrize("group", ["a\nb", "a\x1b[31m", "a\x9bb", "a\u202eb"])
async def test_producer_groups_with_control_characters_are_passed_over(
    broker: ServedBroker, group: str
) -> None:
    body = beat(producerDataSet=[{"groupName": group}, {"groupName": "good"}])
    assert (await send(broker, body, Peer())).code == ResponseCode.SUCCESS
    assert list(broker.kernel.producers.groups()) == ["good"]


async def test_a_unit_makes_its_retry_topic_one_of_units(broker: ServedBroker) -> None:
    await send(broker, JAVA_BEAT.replace(b'"unitMode":false', b'"unitMode":true'), Peer())
    topic = broker.tables.topics.get("%RETRY%billing")
    assert topic is not None
    assert topic.sys_flag == 2


async def test_pulling_consumers_are_left_out_where_they_are_not_wanted(
    broker: ServedBroker,
) -> None:
    broker.config.pull.reject_pull_consumer = True
    body = beat().replace(b"CONSUME_PASSIVELY", b"CONSUME_ACTIVELY")
    assert (await send(broker, body, Peer())).code == ResponseCode.SUCCESS
    assert broker.kernel.consumers.get("billing") is None


async def test_subscription_that_cannot_be_parsed_is_left_out(broker: ServedBroker) -> None:
    peer = Peer()
    data = [{"topic": "orders", "subString": "||"}, {"topic": "bills", "subString": "a"}]
    body = json.loads(beat())
    body["consumerDataSet"][0]["subscriptionDataSet"] = data
    await send(broker, json.dumps(body).encode(), peer)
    group = broker.kernel.consumers.get("billing")
    assert group is not None
    assert list(group.subscriptions()) == ["bills"]


async def test_second_kind_of_heartbeat_is_full_once_and_short_after(broker: ServedBroker) -> None:
    peer = Peer()
    full = await send(broker, beat(heartbeatFingerprint=77), peer)
    assert full.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}
    short_body = json.loads(beat(heartbeatFingerprint=77, withoutSub=True))
    short_body["consumerDataSet"][0]["subscriptionDataSet"] = []
    short = await send(broker, json.dumps(short_body).encode(), peer)
    assert short.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}
    assert broker.kernel.consumers.subscription("billing", "orders", peer.connection) is not None


async def test_short_heartbeat_with_another_fingerprint_asks_for_a_full_one(
    broker: ServedBroker,
) -> None:
    peer = Peer()
    await send(broker, beat(heartbeatFingerprint=77), peer)
    answer = await send(broker, beat(heartbeatFingerprint=78, withoutSub=True), peer)
    assert (answer.ext or {})["IS_SUB_CHANGE"] == "true"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        b"[]",
        b"null",
        b"{}",
        b'{"clientID":5',
        b'{"clientID":"c1","consumerDataSet":7}',
        b'{"clientID":"c1","consumerDataSet":[{}]}',
        b'{"clientID":""}',
        b'{"clientID":"' + b"c" * 2000 + b'"}',
        b"\xff\xfe\x00",
        b"[" * 10_000,
        b'{"clientID":"c1","producerDataSet":' + b"[" * 100_000,
        b"x" * 3_000_000,
    ],
)
async def test_garbage_is_refused_in_plain_words(broker: ServedBroker, body: bytes) -> None:
    answer = await send(broker, body, Peer())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert "Traceback" not in answer.remark
    assert list(broker.kernel.consumers) == []


async def test_heartbeat_with_too_many_groups_is_refused(broker: ServedBroker) -> None:
    body = beat(producerDataSet=[{"groupName": f"g{n}"} for n in range(1000)])
    answer = await send(broker, body, Peer())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert broker.kernel.producers.groups() == {}


async def test_long_heartbeat_is_served_too(broker: ServedBroker) -> None:
    data = [{"topic": f"topic-{n:05}", "subString": "*"} for n in range(1000)]
    body = json.loads(beat())
    body["consumerDataSet"][0]["subscriptionDataSet"] = data
    assert (await send(broker, json.dumps(body).encode(), Peer())).code == ResponseCode.SUCCESS
    group = broker.kernel.consumers.get("billing")
    assert group is not None
    assert len(group.subscriptions()) == 1000


async def test_a_producer_group_that_is_passed_over_is_logged_once_a_connection(
    broker: ServedBroker,
) -> None:
    body = beat(producerDataSet=[{"groupName": "a\x1bb"}, {"groupName": ""}])
    peer = Peer()
    with capture_logs() as logs:
        for _ in range(3):
            await send(broker, body, peer)
    assert [entry["group"] for entry in logs if "client" in entry] == ["'a\\x1bb'"]


async def test_the_time_that_producers_take_is_counted_in_milliseconds(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = itertools.count(100.0, 0.25)
    monkeypatch.setattr(time, "perf_counter", lambda: next(moments))
    counted = broker.stats.producer_registrations
    before = counted.took_ms
    await send(broker, JAVA_BEAT, Peer())
    assert counted.took_ms - before == 250
    await send(broker, GO_BEAT, Peer())
    assert counted.took_ms - before == 250


async def test_goodbye_of_a_consumer_tells_the_rest(broker: ServedBroker) -> None:
    peer, rest = Peer(), Peer()
    await send(broker, beat("c1"), peer)
    await send(broker, beat("c2"), rest)
    rest.requests.clear()
    ext = {"clientID": "c1", "consumerGroup": "billing"}
    assert (await broker.ask(Code.UNREGISTER_CLIENT, ext, peer=peer)).code == ResponseCode.SUCCESS
    assert await members(broker) == ["c2"]
    assert rest.requests == [(40, {"consumerGroup": "billing"})]


async def test_goodbye_of_a_producer_leaves_its_group(broker: ServedBroker) -> None:
    peer = Peer()
    await send(broker, JAVA_BEAT, peer)
    ext = {"clientID": "127.0.0.1@123#456", "producerGroup": "senders", "consumerGroup": ""}
    assert (await broker.ask(Code.UNREGISTER_CLIENT, ext, peer=peer)).code == ResponseCode.SUCCESS
    assert broker.kernel.producers.groups() == {}
    assert await members(broker) == ["127.0.0.1@123#456"]


async def test_goodbye_without_client_id_names_the_field(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.UNREGISTER_CLIENT, {"consumerGroup": "billing"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "clientID" in (answer.remark or "")


def beat_of(client_id: str, expression: str, *, heeds: bool = True) -> bytes:
    """A heartbeat of a Consumer of ours, or of a client that knows of no readers."""
    consumer = {
        "groupName": "billing",
        "subscriptionDataSet": [{"topic": "orders", "subString": expression}],
        **({"heedsReaders": True} if heeds else {}),
    }
    return json.dumps({"clientID": client_id, "consumerDataSet": [consumer]}).encode()


async def list_of(broker: ServedBroker, peer: Peer) -> Any:
    ext = {"consumerGroup": "billing"}
    answer = await broker.ask(Code.GET_CONSUMER_LIST_BY_GROUP, ext, peer=peer)
    return fastjson.loads(answer.body)


async def test_members_that_heed_readers_are_told_them(broker: ServedBroker) -> None:
    narrow, wide = Peer(), Peer()
    await send(broker, beat_of("a", "new"), narrow)
    alone = {"consumerIdList": ["a"], "readers": {}, "topicsAtRisk": []}
    assert await list_of(broker, narrow) == alone
    await send(broker, beat_of("b", "new || paid"), wide)
    told = {"consumerIdList": ["a", "b"], "readers": {"orders": ["b"]}, "topicsAtRisk": []}
    assert await list_of(broker, narrow) == await list_of(broker, wide) == told


async def test_clients_of_other_makes_are_answered_as_by_rocketmq(broker: ServedBroker) -> None:
    ours, java = Peer(), Peer()
    await send(broker, beat_of("a", "new"), ours)
    await send(broker, beat_of("j", "new || paid", heeds=False), java)
    ids = ["a", "j"]
    assert await list_of(broker, java) == {"consumerIdList": ids}
    told = {"consumerIdList": ids, "readers": {}, "topicsAtRisk": ["orders"]}
    assert await list_of(broker, ours) == told


async def test_members_of_a_group_that_is_not_online(broker: ServedBroker) -> None:
    answer = await broker.ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "no consumer for this group, billing"


def check(**subscription: object) -> bytes:
    data = {"topic": "orders", "expressionType": "TAG", "subString": "*"} | subscription
    return json.dumps({"clientId": "c1", "group": "billing", "subscriptionData": data}).encode()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (check(), ResponseCode.SUCCESS),
        (check(subString="a || b"), ResponseCode.SUCCESS),
        (b"{}", ResponseCode.SUCCESS),
        (check(subString="||"), ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (check(expressionType="XPATH"), ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (check(expressionType="SQL92", subString="a > 1"), ResponseCode.SUCCESS),
        (check(expressionType="SQL92", subString="a > "), ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (check(expressionType="SQL92", subString=""), ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (b"garbage", ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_expression_is_checked_before_a_consumer_starts(
    broker: ServedBroker, body: bytes, code: ResponseCode
) -> None:
    answer = await broker.ask(Code.CHECK_CLIENT_CONFIG, body=body)
    assert answer.code == code


async def test_a_group_without_permission_leaves_the_others_of_its_heartbeat_alone(
    tmp_path: Path, clock: Clock
) -> None:
    rules = Rules(
        (Action.SUB, Resource(ResourceKind.GROUP, "billing")),
        (Action.SUB, Resource(ResourceKind.TOPIC, "orders")),
    )
    served = ServedBroker(tmp_path, clock, {}, rules)
    both = json.loads(beat(group="billing"))
    both["consumerDataSet"] += json.loads(beat(group="audit"))["consumerDataSet"]
    both["producerDataSet"] = [{"groupName": "senders"}]
    peer = Peer()
    with capture_logs() as logs:
        for _ in range(2):
            answer = await send(served, json.dumps(both).encode(), peer)
            assert answer.code == ResponseCode.SUCCESS
        assert served.kernel.consumers.get("billing") is not None
        assert served.kernel.consumers.get("audit") is None
        alone = await send(
            served, beat(group="audit", producerDataSet=both["producerDataSet"]), peer
        )
        assert alone.code == ResponseCode.NO_PERMISSION
        assert "is not allowed to Sub Group:audit" in (alone.remark or "")
        assert served.kernel.producers.clients("senders")
    refused = [entry for entry in logs if "without permission" in entry["event"]]
    assert [entry["group"] for entry in refused] == ["audit"]
    await served.close()


async def test_a_client_that_asks_is_told_the_time_of_messages(broker: ServedBroker) -> None:
    asked = await broker.ask(Code.HEART_BEAT, {"storeTime": "0"}, beat())
    assert (asked.ext or {})["storeTime"] == str(broker.clock.steady_ms())
    assert "storeTime" not in ((await send(broker, beat(), Peer())).ext or {})
