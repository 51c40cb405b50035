"""Groups as clients of any make need them: notices, restarts, commits, resets, calls back."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rockhopper.broker.app import TEMPORARY_SETTINGS, Broker
from rockhopper.broker.settings.config_file import build_config
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from tests.integration.test_group_consumption import heartbeat, members, pull, send
from tests.support.daemon import Daemon
from tests.support.raw_peer import RawPeer, until
from tests.support.wire import WireClient

PLACE = {"consumerGroup": "billing", "topic": "orders", "queueId": "0"}


async def join(client: WireClient, client_id: str) -> None:
    answer = await client.ask(Code.HEART_BEAT, body=heartbeat(client_id, "billing", "orders"))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def committed(client: WireClient) -> str:
    answer = await client.ask(Code.QUERY_CONSUMER_OFFSET, PLACE)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert answer.ext is not None
    return answer.ext["offset"]


async def test_hundreds_that_join_at_once_are_told_once_or_twice(broker: Broker) -> None:
    count = 200
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(WireClient(broker.address)) for _ in range(count)
        ]

        await asyncio.gather(*(join(client, f"c{n}") for n, client in enumerate(clients)))
        await clients[0].next_push()
        assert len(await members(clients[0], "billing")) == count
        async with WireClient(broker.address) as last:
            await join(last, "last")
            notice = await last.next_push()

        assert notice.ext == {"consumerGroup": "billing"}
        told = sum(client.pushed.qsize() for client in clients)
        assert told < 20 * count, "a notice for each of the others would be 200 for each"


async def test_a_member_that_breaks_off_and_one_that_says_goodbye_are_told_at_once(
    broker: Broker,
) -> None:
    async with WireClient(broker.address) as first, WireClient(broker.address) as leaving:
        await join(first, "c1")
        await first.next_push()
        async with RawPeer(broker.address) as killed:
            await killed.ask(34, {}, heartbeat("c2", "billing", "orders"))
            await first.next_push()
            killed.reset()
            assert (await first.next_push()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        await join(leaving, "c3")
        await first.next_push()
        fields = {"clientID": "c3", "consumerGroup": "billing"}
        await leaving.ask(Code.UNREGISTER_CLIENT, fields)
        await first.next_push()
        assert await members(first, "billing") == ["c1"]


async def test_pulls_go_on_after_a_restart_without_a_heartbeat(tmp_path: Path) -> None:
    config = build_config(TEMPORARY_SETTINGS | {"storePathRootDir": str(tmp_path)})
    async with Broker(config) as broker, WireClient(broker.address) as client:
        await join(client, "c1")
        await send(client, "orders", b"before")
    async with Broker(config) as broker, WireClient(broker.address) as client:
        (message,) = await pull(client, "billing", "orders")
        assert message.body == b"before"
        fields = PLACE | {"consumerGroup": "strangers", "queueOffset": "0", "maxMsgNums": "32"}
        fields |= {"sysFlag": "2", "commitOffset": "0", "suspendTimeoutMillis": "0"}
        refused = await client.ask(Code.PULL_MESSAGE, fields | {"subVersion": "0"})
        assert refused.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_who_pulls_after_others_are_back_is_asked_for_a_heartbeat_first(
    tmp_path: Path,
) -> None:
    config = build_config(TEMPORARY_SETTINGS | {"storePathRootDir": str(tmp_path)})
    async with Broker(config) as broker, WireClient(broker.address) as client:
        await join(client, "c1")
        await send(client, "orders", b"before")
    fields = PLACE | {"consumerGroup": "billing", "queueOffset": "0", "maxMsgNums": "32"}
    fields |= {"sysFlag": "2", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}
    async with (
        Broker(config) as broker,
        WireClient(broker.address) as quick,
        WireClient(broker.address) as slow,
    ):
        await join(quick, "c1")
        refused = await slow.ask(Code.PULL_MESSAGE, fields)
        assert refused.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert (await slow.next_push()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        await join(slow, "c2")
        assert (await slow.ask(Code.PULL_MESSAGE, fields)).code == ResponseCode.SUCCESS


async def test_heartbeat_without_subscriptions_still_means_the_same_after_a_restart(
    tmp_path: Path,
) -> None:
    config = build_config(TEMPORARY_SETTINGS | {"storePathRootDir": str(tmp_path)})
    beat = json.loads(heartbeat("c1", "billing", "orders")) | {"heartbeatFingerprint": 77}
    async with Broker(config) as broker, WireClient(broker.address) as client:
        await client.ask(Code.HEART_BEAT, body=json.dumps(beat).encode())
    beat["withoutSub"] = True
    beat["consumerDataSet"][0]["subscriptionDataSet"] = []
    async with Broker(config) as broker, WireClient(broker.address) as client:
        for fingerprint, is_to_be_repeated in ((77, "false"), (78, "true")):
            beat["heartbeatFingerprint"] = fingerprint
            answer = await client.ask(Code.HEART_BEAT, body=json.dumps(beat).encode())
            assert (answer.ext or {})["IS_SUB_CHANGE"] == is_to_be_repeated
        online = broker.kernel.consumers.get("billing")
        assert online is not None
        assert "orders" in online.subscriptions()


@pytest.mark.costly
async def test_commits_survive_kill_9(tmp_path: Path) -> None:
    async with Daemon(tmp_path) as daemon, WireClient(daemon.address) as client:
        await join(client, "c1")
        for _ in range(3):
            await send(client, "orders", b"x")
        await client.ask(Code.UPDATE_CONSUMER_OFFSET, PLACE | {"commitOffset": "2"})
        journal = tmp_path / "rockhopper" / "offsets"
        await until(lambda: any(b"orders@billing" in f.read_bytes() for f in journal.iterdir()))
        assert not (tmp_path / "config" / "consumerOffset.json").exists()
        await daemon.kill()
    async with Daemon(tmp_path) as daemon, WireClient(daemon.address) as client:
        assert await committed(client) == "2"
        assert await daemon.stop() == 0
    assert list((tmp_path / "rockhopper" / "offsets").iterdir()) == []
    assert "orders@billing" in (tmp_path / "config" / "consumerOffset.json").read_text()


async def test_members_go_forward_and_tools_go_back(broker: Broker) -> None:
    async with WireClient(broker.address) as member, WireClient(broker.address) as tool:
        await join(member, "c1")
        for _ in range(5):
            await send(member, "orders", b"x")
        for offset in ("4", "2"):
            await member.ask(Code.UPDATE_CONSUMER_OFFSET, PLACE | {"commitOffset": offset})
        assert await committed(member) == "4"
        await tool.ask(Code.UPDATE_CONSUMER_OFFSET, PLACE | {"commitOffset": "2"})
        assert await committed(member) == "2"


async def test_reset_by_the_broker_is_handed_out_by_the_next_pull(broker: Broker) -> None:
    async with WireClient(broker.address) as member:
        await join(member, "c1")
        await member.next_push()
        for _ in range(5):
            await send(member, "orders", b"x")
        await member.ask(Code.UPDATE_CONSUMER_OFFSET, PLACE | {"commitOffset": "5"})
        reset = {"group": "billing", "topic": "orders", "timestamp": "0", "isForce": "true"}
        answer = await member.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await member.ask(Code.UPDATE_CONSUMER_OFFSET, PLACE | {"commitOffset": "5"})
        assert await committed(member) == "0"
        fields = PLACE | {"queueOffset": "5", "maxMsgNums": "32", "sysFlag": "2"}
        fields |= {"commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}
        moved = await member.ask(Code.PULL_MESSAGE, fields)
        assert (moved.code, (moved.ext or {})["nextBeginOffset"]) == (21, "0")


async def test_a_pull_consumer_waits_behind_what_its_connection_has_sent(broker: Broker) -> None:
    beat = heartbeat("c1", "billing", "orders")
    choosing = beat.replace(b"CONSUME_PASSIVELY", b"CONSUME_ACTIVELY")
    assert choosing != beat
    async with WireClient(broker.address) as member:
        await member.ask(Code.HEART_BEAT, body=choosing)
        await send(member, "orders", b"x")
        fields = PLACE | {"queueOffset": "1", "maxMsgNums": "32", "sysFlag": "2"}
        fields |= {"commitOffset": "0", "suspendTimeoutMillis": "15000", "subVersion": "0"}
        waiting = member.send(Code.PULL_MESSAGE, fields)
        await until(lambda: len(broker.kernel.long_polling) == 1)
        await send(member, "orders", b"y")
        found = await waiting
        assert (found.code, (found.ext or {})["nextBeginOffset"]) == (0, "2")


async def test_reset_reaches_a_pull_that_waits(broker: Broker) -> None:
    async with WireClient(broker.address) as member, WireClient(broker.address) as tool:
        await join(member, "c1")
        await send(member, "orders", b"x")
        await member.ask(Code.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
        fields = PLACE | {"queueOffset": "1", "maxMsgNums": "32", "sysFlag": "3"}
        fields |= {"commitOffset": "1", "suspendTimeoutMillis": "15000", "subVersion": "0"}
        waiting = member.send(Code.PULL_MESSAGE, fields)
        await until(lambda: len(broker.kernel.long_polling) == 1)
        reset = {"group": "billing", "topic": "orders", "timestamp": "0", "isForce": "true"}
        await tool.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        moved = await waiting
        assert (moved.code, (moved.ext or {})["nextBeginOffset"]) == (21, "0")


async def test_reset_is_pushed_where_the_setting_says_so() -> None:
    settings = {"useServerSideResetOffset": "false"}
    reset = {"group": "billing", "topic": "orders", "timestamp": "0", "isForce": "true"}
    async with Broker.temporary(settings) as broker, WireClient(broker.address) as member:
        await join(member, "c1")
        await member.next_push()
        for _ in range(5):
            await send(member, "orders", b"x")
        await member.ask(Code.UPDATE_CONSUMER_OFFSET, PLACE | {"commitOffset": "5"})
        await member.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        push = await member.next_push()
        assert push.code == Code.RESET_CONSUMER_CLIENT_OFFSET
        assert b'{"brokerName":"broker-a","queueId":0,"topic":"orders"}:0' in push.body
        for offset in ("0", "3", "1"):
            await member.ask(Code.UPDATE_CONSUMER_OFFSET, PLACE | {"commitOffset": offset})
        assert await committed(member) == "3"
        async with WireClient(broker.address) as tool:
            await member.close()
            answer = await tool.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)
            assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE


async def test_tools_reach_a_consumer_through_the_broker(broker: Broker) -> None:
    asked = {"consumerGroup": "billing", "clientId": "c1"}
    async with RawPeer(broker.address) as member, WireClient(broker.address) as tool:
        await member.ask(34, {}, heartbeat("c1", "billing", "orders"))
        assert (await member.answer()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        sent = await send(tool, "orders", b"look at me")
        for code, ext in (
            (Code.GET_CONSUMER_RUNNING_INFO, asked | {"jstackEnable": "false"}),
            (Code.CONSUME_MESSAGE_DIRECTLY, asked | {"msgId": (sent.ext or {})["msgId"]}),
        ):
            waiting = tool.send(code, ext)
            call = await member.answer()
            assert call.code == code
            assert (b"look at me" in call.body) == (code == Code.CONSUME_MESSAGE_DIRECTLY)
            member.send(_response(call, b'{"from":"client"}'))
            answer = await waiting
            assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b'{"from":"client"}')
        offline = await tool.ask(Code.GET_CONSUMER_RUNNING_INFO, asked | {"clientId": "c9"})
        assert offline.remark == "The Consumer <billing> <c9> not online"
        waiting = tool.send(Code.GET_CONSUMER_RUNNING_INFO, asked)
        await member.answer()
        member.reset()
        assert (await waiting).code == ResponseCode.SYSTEM_ERROR


def _response(call: Command, body: bytes) -> bytes:
    header = {"code": 0, "flag": 1, "language": "JAVA", "opaque": call.opaque, "version": 479}
    text = json.dumps(header).encode()
    return (
        (4 + len(text) + len(body)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text + body
    )


async def test_what_tools_ask_about_consumption_is_answered(broker: Broker) -> None:
    async with WireClient(broker.address) as client:
        await join(client, "c1")
        for _ in range(3):
            await send(client, "orders", b"x")
        await client.ask(Code.UPDATE_CONSUMER_OFFSET, PLACE | {"commitOffset": "1"})

        by_topic = {"topic": "orders", "group": "billing"}
        span = await client.ask(Code.QUERY_CONSUME_TIME_SPAN, by_topic)
        spans = fastjson.loads(span.body)["consumeTimeSpanSet"]
        assert spans[0]["minTimeStamp"] == spans[0]["consumeTimeStamp"] > 0
        stats = await client.ask(Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
        progress = fastjson.loads(stats.body)
        assert progress["totalDiff"] == 2
        offsets = progress["consumeStatsList"][0]["billing"][0]["offsetTable"]
        assert sum(offset["lastTimestamp"] > 0 for offset in offsets.values()) == 1
        forbidden = await client.ask(
            Code.UPDATE_AND_GET_GROUP_FORBIDDEN, by_topic | {"readable": "false"}
        )
        assert fastjson.loads(forbidden.body) == by_topic | {"readable": False}
        copy = {"srcGroup": "billing", "destGroup": "audit", "topic": ""}
        assert (await client.ask(Code.CLONE_GROUP_OFFSET, copy)).code == ResponseCode.SUCCESS
        assert broker.tables.offsets.get("orders", "audit", 0) == 1
        for code in (Code.CLEAN_UNUSED_TOPIC, Code.CLEAN_EXPIRED_CONSUMEQUEUE):
            assert (await client.ask(code)).code == ResponseCode.SUCCESS
        producers = await client.ask(Code.GET_ALL_PRODUCER_INFO)
        assert fastjson.loads(producers.body) == {"data": {}}


@pytest.mark.parametrize(("times", "where"), [("0", "retry"), ("15", "retry"), ("17", "dead")])
async def test_lock_of_another_member_buries_no_plain_message(
    broker: Broker, times: str, where: str
) -> None:
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": "orders"}
    lock = json.dumps({"clientId": "c1", "consumerGroup": "billing", "mqSet": [queue]}).encode()
    async with WireClient(broker.address) as orderly, WireClient(broker.address) as plain:
        await join(orderly, "c1")
        await orderly.ask(Code.LOCK_BATCH_MQ, body=lock)
        ext = {"a": "billing", "b": "%RETRY%billing", "c": "TBW102", "d": "4", "e": "0"}
        ext |= {"f": "0", "g": "1700000000000", "h": "0", "i": "", "j": times, "l": "16"}
        answer = await plain.ask(Code.SEND_MESSAGE_V2, ext, b"failed")
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        topic = "%RETRY%billing" if where == "retry" else "%DLQ%billing"
        assert broker.store.reading.queue_range(topic, 0) == (0, 1)


async def test_orderly_consumer_that_gave_up_reaches_the_dead_letters(broker: Broker) -> None:
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": "orders"}
    lock = json.dumps({"clientId": "c1", "consumerGroup": "billing", "mqSet": [queue]}).encode()
    async with WireClient(broker.address) as orderly:
        await join(orderly, "c1")
        await orderly.ask(Code.LOCK_BATCH_MQ, body=lock)
        ext = {"a": "billing", "b": "%RETRY%billing", "c": "TBW102", "d": "4", "e": "0"}
        ext |= {"f": "0", "g": "1700000000000", "h": "0", "i": "", "j": "3", "l": "3"}
        answer = await orderly.ask(Code.SEND_MESSAGE_V2, ext, b"hopeless")
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert broker.store.reading.queue_range("%DLQ%billing", 0) == (0, 1)


async def test_retry_topic_of_a_group_that_may_not_exist_is_not_made() -> None:
    settings = {"autoCreateSubscriptionGroup": "false"}
    async with Broker.temporary(settings) as broker, WireClient(broker.address) as client:
        ext = {"a": "p", "b": "%RETRY%nobody", "c": "TBW102", "d": "4", "e": "0"}
        ext |= {"f": "0", "g": "1700000000000", "h": "0", "i": ""}
        answer = await client.ask(Code.SEND_MESSAGE_V2, ext, b"x")
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "%RETRY%nobody" not in broker.tables.topics
        await join(client, "c1")
        assert "billing" not in broker.tables.groups
