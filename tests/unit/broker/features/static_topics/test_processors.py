"""Static topics: 513, logical queues on one broker, and one that moved to another.

Answers on one broker are those of Apache RocketMQ 5.5.0 after ``mqadmin updateStaticTopic``.
"""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from rockhopper.broker.features.static_topics.mappings import StaticTopic, StaticTopicTable
from rockhopper.broker.features.static_topics.state import StaticTopicState
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.name_server.route_table import Registration, RouteTable
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies.queues import ConsumeStats
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.direct import pull_fields, short_send_fields, topic_fields
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker

NAMES = ("broker-a", "broker-b")


def table_of(broker: ServedBroker) -> StaticTopicTable:
    return cast(StaticTopicState, broker.tables.features["static_topics"]).table


@pytest.fixture
async def pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[ServedBroker, ServedBroker]]:
    brokers = {name: ServedBroker(tmp_path / name, Clock(), {"brokerName": name}) for name in NAMES}

    async def ask(broker: str, code: int, ext: Mapping[str, str]) -> Command:
        return await brokers[broker].ask(Code(code), dict(ext))

    for broker in brokers.values():
        monkeypatch.setattr(broker.kernel.cluster.brokers, "ask", ask)
    yield brokers["broker-a"], brokers["broker-b"]
    for broker in brokers.values():
        await broker.close()


def piece(broker: str, queue_id: int, **changes: int) -> dict[str, Any]:
    first = {"gen": 0, "logicOffset": 0, "startOffset": 0, "endOffset": -1}
    times = {"timeOfStart": -1, "timeOfEnd": -1}
    return {"bname": broker, "queueId": queue_id, **first, **times, **changes}


async def map_queues(
    broker: ServedBroker, hosted: dict[int, list[dict[str, Any]]], epoch: int, **fields: str
) -> Command:
    """What mqadmin sends: the topic's settings, and the mapping of one broker."""
    header = topic_fields("orders", 2, **fields)
    body = {
        "bname": broker.config.broker_name,
        "currIdMap": {},
        "dirty": False,
        "epoch": epoch,
        "hostedQueues": hosted,
        "scope": "__global__",
        "topic": "orders",
        "totalQueues": 4,
    }
    code = Code.UPDATE_AND_CREATE_STATIC_TOPIC
    return await broker.ask(code, header, json.dumps(body).encode())


async def map_both(pair: tuple[ServedBroker, ServedBroker]) -> None:
    a, b = pair
    assert (await map_queues(a, {n: [piece("broker-a", n)] for n in (0, 1)}, 10)).code == 0
    hosted = {n + 2: [piece("broker-b", n)] for n in (0, 1)}
    assert (await map_queues(b, hosted, 10)).code == 0


async def send(broker: ServedBroker, queue_id: int, body: bytes, **fields: str) -> Command:
    header = short_send_fields("orders", queue_id) | fields
    return await broker.ask(Code.SEND_MESSAGE_V2, header, body)


async def pull(broker: ServedBroker, queue_id: int, offset: int, **fields: str) -> Command:
    header = pull_fields("orders", offset, queue_id) | {"consumerGroup": "readers", **fields}
    return await broker.ask(Code.PULL_MESSAGE, header)


async def offset_of(broker: ServedBroker, code: Code, queue_id: int, **fields: str) -> int:
    header = {"topic": "orders", "queueId": str(queue_id), "consumerGroup": "readers", **fields}
    answer = await broker.ask(code, header)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert answer.ext is not None
    return int(answer.ext["offset"])


def ends(answer: Command) -> tuple[int, str, str, str]:
    ext = answer.ext or {}
    return answer.code, ext["nextBeginOffset"], ext["minOffset"], ext["maxOffset"]


async def test_a_logical_queue_is_served_where_it_is(
    pair: tuple[ServedBroker, ServedBroker],
) -> None:
    await map_both(pair)
    a, b = pair
    for broker, queue_id in ((a, 1), (b, 3)):
        for number in range(2):
            sent = await send(broker, queue_id, b"%d" % number)
            assert sent.ext is not None
            assert (sent.ext["queueId"], sent.ext["queueOffset"]) == (str(queue_id), str(number))
        answer = await pull(broker, queue_id, 0)
        assert ends(answer) == (0, "2", "0", "2")
        assert (answer.ext or {})["offsetDelta"] == "0"
        assert [m.body for m in decode_messages(answer.body)] == [b"0", b"1"]
        assert await offset_of(broker, Code.GET_MAX_OFFSET, queue_id) == 2
        assert await offset_of(broker, Code.GET_MIN_OFFSET, queue_id) == 0
        await offset_of_committed(broker, queue_id, 1)
    # It is a physical queue of another number.
    assert b.tables.offsets.get("orders", "readers", 1) == 1


async def offset_of_committed(broker: ServedBroker, queue_id: int, offset: int) -> None:
    fields = {"topic": "orders", "consumerGroup": "readers", "queueId": str(queue_id)}
    code = Code.UPDATE_CONSUMER_OFFSET
    broker.tables.groups.find_or_create("readers")
    assert (await broker.ask(code, fields | {"commitOffset": str(offset)})).code == 0
    assert await offset_of(broker, Code.QUERY_CONSUMER_OFFSET, queue_id) == offset


async def test_others_are_told_that_they_do_not_lead(
    pair: tuple[ServedBroker, ServedBroker],
) -> None:
    await map_both(pair)
    a, _ = pair
    assert (await send(a, 3, b"x")).code == ResponseCode.NOT_LEADER_FOR_QUEUE
    assert (await pull(a, 3, 0)).code == ResponseCode.NOT_LEADER_FOR_QUEUE
    fields = {"topic": "orders", "queueId": "3", "consumerGroup": "readers", "commitOffset": "0"}
    for code in (30, 31, 32, 14, 15):
        assert (await a.ask(Code(code), fields)).code == ResponseCode.NOT_LEADER_FOR_QUEUE
    # By its physical number, whoever asks for that.
    assert (await send(a, 1, b"x", lo="false")).code == ResponseCode.SUCCESS
    assert (await pull(a, 1, 0, lo="false")).code == ResponseCode.SUCCESS
    chosen = await send(a, -1, b"x")
    assert (chosen.ext or {})["queueId"] in ("0", "1")


@pytest.mark.parametrize("end_told", [3, -1])
async def test_a_queue_that_moved_is_read_from_both_brokers(
    pair: tuple[ServedBroker, ServedBroker], end_told: int
) -> None:
    await map_both(pair)
    a, b = pair
    for number in range(3):
        await send(a, 1, b"old %d" % number)
    await offset_of_committed(a, 1, 2)
    # remappingStaticTopic, first step: nothing is decided, and all can be read.
    moving = [piece("broker-a", 1), piece("broker-b", 1, gen=1, logicOffset=-1)]
    hosted = {1: moving, 2: [piece("broker-b", 0)], 3: [piece("broker-b", 1)]}
    assert (await map_queues(b, hosted, 11)).code == 0
    assert (await map_queues(a, {0: [piece("broker-a", 0)], 1: moving}, 11)).code == 0
    early = await send(b, 1, b"early")
    assert (early.code, (early.ext or {})["queueOffset"]) == (ResponseCode.SUCCESS, "-1")
    assert ends(await pull(b, 1, 1))[:3] == (0, "3", "0")
    # Second step: the old broker's piece ends at 3, the new one's begins at 10000.
    pieces = [
        piece("broker-a", 1, endOffset=3),
        piece("broker-b", 1, gen=1, logicOffset=10_000),
    ]
    assert (await map_queues(a, {0: [piece("broker-a", 0)], 1: pieces}, 11)).code == 0
    # Apache's tool does not tell the new leader where the old piece ends.
    pieces = [piece("broker-a", 1, endOffset=end_told), pieces[1]]
    hosted = {1: pieces, 2: [piece("broker-b", 0)], 3: [piece("broker-b", 1)]}
    assert (await map_queues(b, hosted, 11)).code == 0
    assert (await send(a, 1, b"x")).code == ResponseCode.NOT_LEADER_FOR_QUEUE
    sent = await send(b, 1, b"new")
    assert (sent.ext or {})["queueOffset"] == "10001"
    # Of what the new piece has the group knows nothing: it is not at its beginning.
    assert await reported(a) == {0: -1, 1: 2}
    assert await reported(b) == {0: -1, 1: -1}
    found = await pull(b, 1, 1)
    assert ends(found) == (0, "10000", "0", "10002")
    assert [m.body for m in decode_messages(found.body)] == [b"old 1", b"old 2"]
    assert ends(await pull(b, 1, 3)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "10000", "0", "10002")
    found = await pull(b, 1, 10_000)
    assert ends(found) == (0, "10002", "0", "10002")
    assert (found.ext or {})["offsetDelta"] == "10000"
    assert [m.body for m in decode_messages(found.body)] == [b"early", b"new"]
    assert await offset_of(b, Code.GET_MAX_OFFSET, 1) == 10_002
    assert await offset_of(b, Code.GET_MIN_OFFSET, 1) == 0
    # The group goes on where it was, and then in the new piece.
    assert await offset_of(b, Code.QUERY_CONSUMER_OFFSET, 1) == 2
    await offset_of_committed(b, 1, 3)
    assert a.tables.offsets.get("orders", "readers", 1) == 3
    await offset_of_committed(b, 1, 10_001)
    assert b.tables.offsets.get("orders", "readers", 1) == 1
    assert await reported(b) == {0: -1, 1: 1}


async def test_a_position_of_an_older_log_is_none_of_a_logical_queue_either(
    pair: tuple[ServedBroker, ServedBroker],
) -> None:
    a, _ = pair
    moved = piece("broker-a", 1, gen=1, logicOffset=100)
    first = piece("broker-b", 1, endOffset=3)
    assert (await map_queues(a, {0: [piece("broker-a", 0)], 1: [first, moved]}, 10)).code == 0
    a.tables.groups.find_or_create("readers")
    for _ in range(10):
        await send(a, 1, b"x")
    a.tables.catalog.history.start_run(a.store.log.written_offset)
    for _ in range(5):
        await send(a, 1, b"x")
    await offset_of_committed(a, 1, 107)
    peer = Peer(port=2)
    header = pull_fields("orders", 114, 1) | {"consumerGroup": "readers", "maxMsgNums": "1"}
    committing = header | {"sysFlag": "5", "commitOffset": "114"}
    for fields in (committing, header):
        answer = await a.ask(Code.PULL_MESSAGE, fields, peer=peer)
        assert ends(answer) == (ResponseCode.PULL_OFFSET_MOVED, "107", "0", "115")
    assert a.tables.offsets.get("orders", "readers", 1) == 7
    answer = await a.ask(Code.PULL_MESSAGE, header | {"queueOffset": "107"}, peer=peer)
    assert answer.code == ResponseCode.SUCCESS
    answer = await a.ask(Code.PULL_MESSAGE, committing | {"commitOffset": "108"}, peer=peer)
    assert answer.code == ResponseCode.SUCCESS
    assert a.tables.offsets.get("orders", "readers", 1) == 8


async def reported(broker: ServedBroker) -> dict[int, int]:
    """What 208 says that the group has committed, by physical queue."""
    fields = {"consumerGroup": "readers", "topic": "orders"}
    answer = await broker.ask(Code.GET_CONSUME_STATS, fields)
    found = ConsumeStats.decode(answer.body).offset_table
    return {key.queue_id: at.consumer_offset for key, at in found.items()}


async def test_mappings_are_told_and_kept(
    pair: tuple[ServedBroker, ServedBroker], tmp_path: Path
) -> None:
    await map_both(pair)
    _, b = pair
    answer = await b.ask(Code.GET_TOPIC_CONFIG, {"topic": "orders", "lo": "true"})
    detail = fastjson.loads(answer.body)
    assert isinstance(detail, dict)
    assert detail["mappingDetail"]["hostedQueues"] == {
        "2": [piece("broker-b", 0)],
        "3": [piece("broker-b", 1)],
    }
    answer = await b.ask(Code.GET_TOPIC_CONFIG, {"topic": "orders"})
    assert b"mappingDetail" not in answer.body
    everything = (await b.ask(Code.GET_ALL_TOPIC_CONFIG)).body
    # Apache's exportMetadata passes over it by strict JSON.
    document = json.loads(everything)
    assert isinstance(document, dict)
    assert set(document["topicQueueMappingDetailMap"]) == {"orders"}
    table_of(b).save()
    path = tmp_path / "broker-b" / "config" / "topicQueueMapping.json"
    kept = fastjson.loads(path.read_bytes())
    assert isinstance(kept, dict)
    static = StaticTopic.from_json(kept["topicQueueMappingInfoMap"]["orders"])
    assert static == table_of(b).mappings["orders"]
    assert static.info()["currIdMap"] == {"2": 0, "3": 1}
    await b.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    assert table_of(b).mappings == {}


async def test_a_mapping_that_does_not_fit_is_refused(
    pair: tuple[ServedBroker, ServedBroker],
) -> None:
    await map_both(pair)
    a, b = pair
    hosted = {0: [piece("broker-a", 0)]}
    for epoch, word in ((9, "older"), (10, "a different mapping"), (11, "lacks")):
        refused = await map_queues(a, hosted, epoch)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert word in (refused.remark or "")
    assert (await map_queues(a, hosted, 11, force="true")).code == ResponseCode.SUCCESS
    wrong = await b.ask(Code.UPDATE_AND_CREATE_STATIC_TOPIC, {"topic": "x"}, b"{}")
    assert wrong.code == ResponseCode.SYSTEM_ERROR


def test_routes_show_who_leads_what() -> None:
    routes = RouteTable()
    static = StaticTopic.from_json(
        {
            "bname": "broker-b",
            "topic": "orders",
            "totalQueues": 4,
            "epoch": 1,
            "hostedQueues": {"2": [piece("broker-b", 0)]},
        }
    )
    topics = {name: TopicConfig(name) for name in ("orders", "plain")}
    told = {"orders": static.info()}
    registration = Registration(
        "cluster", "broker-b", 0, "127.0.0.1:1", topics=topics, mappings=told
    )
    assert routes.register(registration, 0) is not None
    found = routes.route("orders", "")
    assert found is not None
    assert found.mappings == {"broker-b": static.info()}
    plain = routes.route("plain", "")
    assert plain is not None
    assert plain.mappings == {}
