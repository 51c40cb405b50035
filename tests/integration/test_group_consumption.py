"""What a push consumer of any client does, over real sockets: join, share, fail, retry, leave."""

import json
from pathlib import Path

from rockhopper.broker.app import TEMPORARY_SETTINGS, Broker
from rockhopper.broker.settings.config_file import build_config
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.wire import WireClient


def heartbeat(client_id: str, group: str, topic: str) -> bytes:
    subscriptions = [
        {"topic": name, "subString": "*", "subVersion": 1} for name in (topic, f"%RETRY%{group}")
    ]
    return json.dumps(
        {
            "clientID": client_id,
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": subscriptions,
                }
            ],
            "producerDataSet": [],
        }
    ).encode()


async def send(client: WireClient, topic: str, body: bytes) -> Command:
    ext = {
        "a": "senders",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "TAGS\x01a\x02",
    }
    answer = await client.ask(Code.SEND_MESSAGE_V2, ext, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


async def pull(client: WireClient, group: str, topic: str) -> list[StoredMessage]:
    """Pull as push consumers do: the filter is the heartbeat's, and an empty queue waits."""
    ext = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "2",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subVersion": "0",
    }
    answer = await client.ask(Code.PULL_MESSAGE, ext)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_messages(answer.body)


async def members(client: WireClient, group: str) -> list[str]:
    answer = await client.ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    ids = fastjson.loads(answer.body)["consumerIdList"]
    assert isinstance(ids, list)
    return sorted(ids)


async def test_group_learns_at_once_who_comes_and_who_is_gone(broker: Broker) -> None:
    async with WireClient(broker.address) as first:
        await first.ask(Code.HEART_BEAT, body=heartbeat("c1", "billing", "orders"))
        assert (await first.next_push()).ext == {"consumerGroup": "billing"}
        async with WireClient(broker.address) as second:
            await second.ask(Code.HEART_BEAT, body=heartbeat("c2", "billing", "orders"))
            assert (await first.next_push()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED
            assert await members(first, "billing") == ["c1", "c2"]
        assert (await first.next_push()).is_oneway
        assert await members(first, "billing") == ["c1"]


async def test_retry_topic_has_a_route_for_the_first_heartbeat_that_makes_it(
    broker: Broker,
) -> None:
    async with WireClient(broker.address) as client, WireClient(broker.nameserver) as names:
        route = {"topic": "%RETRY%billing"}
        before = await names.ask(Code.GET_ROUTEINFO_BY_TOPIC, route)
        assert fastjson.loads(before.body)["queueDatas"][0]["readQueueNums"] == 1
        assert "%RETRY%billing" not in broker.tables.topics
        await client.ask(Code.HEART_BEAT, body=heartbeat("c1", "billing", "orders"))
        answer = await names.ask(Code.GET_ROUTEINFO_BY_TOPIC, route)
        assert answer.code == ResponseCode.SUCCESS
        assert fastjson.loads(answer.body)["queueDatas"][0]["readQueueNums"] == 1
        assert "%RETRY%billing" in broker.tables.topics


async def test_retry_topic_of_a_group_that_nobody_may_make_has_no_route() -> None:
    settings = {"autoCreateSubscriptionGroup": "false"}
    async with Broker.temporary(settings) as broker, WireClient(broker.nameserver) as names:
        for group in ("billing", "no/such/name"):
            route = {"topic": f"%RETRY%{group}"}
            assert (await names.ask(Code.GET_ROUTEINFO_BY_TOPIC, route)).code == 17


async def test_failed_message_comes_back_on_the_retry_topic(broker: Broker) -> None:
    async with WireClient(broker.address) as client:
        await client.ask(Code.HEART_BEAT, body=heartbeat("c1", "billing", "orders"))
        await send(client, "orders", b"difficult")
        (message,) = await pull(client, "billing", "orders")
        ext = {
            "offset": str(message.commit_log_offset),
            "group": "billing",
            "delayLevel": "1",
            "originTopic": "orders",
            "maxReconsumeTimes": "16",
        }
        answer = await client.ask(Code.CONSUMER_SEND_MSG_BACK, ext)
        assert answer.code == ResponseCode.SUCCESS
        (again,) = await pull(client, "billing", "%RETRY%billing")
        assert again.body == b"difficult"
        assert again.reconsume_times == 1
        assert again.properties["RETRY_TOPIC"] == "orders"
        assert again.properties["UNIQ_KEY"] == message.properties["UNIQ_KEY"]
        assert again.tags == "a"
        assert again.store_time_ms - message.store_time_ms >= 1000


async def test_orderly_consumer_that_crashes_frees_its_queues(broker: Broker) -> None:
    def body(client_id: str) -> bytes:
        queues = [{"brokerName": "broker-a", "queueId": 0, "topic": "orders"}]
        return json.dumps(
            {"clientId": client_id, "consumerGroup": "billing", "mqSet": queues}
        ).encode()

    async with WireClient(broker.address) as watcher:
        await watcher.ask(Code.HEART_BEAT, body=heartbeat("c2", "billing", "orders"))
        await watcher.next_push()
        async with WireClient(broker.address) as holder:
            await holder.ask(Code.HEART_BEAT, body=heartbeat("c1", "billing", "orders"))
            await holder.ask(Code.LOCK_BATCH_MQ, body=body("c1"))
            await watcher.next_push()
            refused = await watcher.ask(Code.LOCK_BATCH_MQ, body=body("c2"))
            assert refused.body == b'{"lockOKMQSet":[]}'
        await watcher.next_push()
        granted = await watcher.ask(Code.LOCK_BATCH_MQ, body=body("c2"))
        assert len(fastjson.loads(granted.body)["lockOKMQSet"]) == 1


async def test_garbage_heartbeat_leaves_the_connection_in_use(broker: Broker) -> None:
    async with WireClient(broker.address) as client:
        answer = await client.ask(Code.HEART_BEAT, body=b"\x00garbage")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert await send(client, "orders", b"still here")


async def test_restart_keeps_offsets_groups_and_what_is_delayed(tmp_path: Path) -> None:
    config = build_config(TEMPORARY_SETTINGS | {"storePathRootDir": str(tmp_path)})
    place = {"consumerGroup": "billing", "topic": "orders", "queueId": "0"}
    async with Broker(config) as broker, WireClient(broker.address) as client:
        await client.ask(Code.HEART_BEAT, body=heartbeat("c1", "billing", "orders"))
        await send(client, "orders", b"difficult")
        await client.ask(Code.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": "1"})
        (message,) = await pull(client, "billing", "orders")
        ext = {"offset": str(message.commit_log_offset), "group": "billing", "delayLevel": "1"}
        await client.ask(Code.CONSUMER_SEND_MSG_BACK, ext)
    async with Broker(config) as broker, WireClient(broker.address) as client:
        assert (await client.ask(Code.QUERY_CONSUMER_OFFSET, place)).ext == {"offset": "1"}
        assert "billing" in broker.tables.groups
        await client.ask(Code.HEART_BEAT, body=heartbeat("c1", "billing", "orders"))
        (again,) = await pull(client, "billing", "%RETRY%billing")
        assert again.body == b"difficult"
    async with Broker(config) as broker:
        assert broker.kernel.scheduled.delayed.offset(1) == 1
        assert broker.store.reading.queue_range("%RETRY%billing", 0) == (0, 1)
