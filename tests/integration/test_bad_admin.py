"""Requests for administrators, look-ups and heartbeats that make no sense, or come from afar."""

import json

import pytest
import pytest_asyncio

from rockhopper.broker.server.listening import socket_names
from rockhopper.protocol.codes import FLAG_ONEWAY, RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.support.direct import send_fields, topic_fields
from tests.support.raw_peer import RawPeer, request
from tests.support.unharmed import Unharmed

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def from_afar(unharmed: Unharmed, monkeypatch: pytest.MonkeyPatch) -> Unharmed:
    """Whoever connects from now on comes from another host, as the broker sees it."""
    monkeypatch.setattr(socket_names, "socket_address", lambda name: ("192.0.2.7", name[1]))
    return unharmed


def is_plain(answer: Command) -> bool:
    remark = answer.remark or ""
    return bool(remark) and "\n" not in remark and "Error" not in remark and len(remark) < 1000


ADMINISTRATIVE = {
    "A1 updateBrokerConfig rocketmqHome": (25, {}, b"rocketmqHome=/tmp/x"),
    "A2 updateBrokerConfig brokerConfigPath": (25, {}, b"brokerConfigPath=/tmp/x"),
    "A3 getBrokerConfig": (26, {}, b""),
    "A4 deleteTopic": (215, {"topic": "neighbour"}, b""),
    "createTopic": (17, topic_fields("made"), b""),
    "createTopics": (18, {}, b'{"topicConfigList":[{"topicName":"made"}]}'),
    "getAllTopicConfig": (21, {}, b""),
    "getRuntimeInfo": (28, {}, b""),
    "updateGroup": (200, {}, b'{"groupName":"made"}'),
    "deleteGroup": (207, {"groupName": "tests"}, b""),
    "allConsumerOffsets": (43, {}, b""),
}


@pytest.mark.parametrize(
    ("code", "ext", "body"), ADMINISTRATIVE.values(), ids=ADMINISTRATIVE.keys()
)
async def test_a1_to_a4_administrators_are_on_this_host(
    from_afar: Unharmed, code: int, ext: dict[str, str], body: bytes
) -> None:
    async with RawPeer(from_afar.broker.address) as peer:
        answer = await peer.ask(code, ext, body)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "remoteAdmin" in (answer.remark or "")
        assert answer.body == b""
    assert "neighbour" in from_afar.broker.tables.topics
    assert "made" not in from_afar.broker.tables.topics
    await from_afar.check()


@pytest.mark.parametrize("code", [103, 104, 100, 216, 318])
async def test_the_routes_of_others_cannot_be_changed_from_afar(
    from_afar: Unharmed, code: int
) -> None:
    async with RawPeer(from_afar.broker.nameserver) as peer:
        answer = await peer.ask(code, {"brokerName": "x", "clusterName": "x", "topic": "neighbour"})
        assert answer.code != ResponseCode.SUCCESS
        assert is_plain(answer)
        route = await peer.ask(105, {"topic": "neighbour"})
        assert route.code == ResponseCode.SUCCESS
    await from_afar.check()


@pytest.mark.parametrize("key", ["rocketmqHome", "brokerConfigPath", "storePathRootDir"])
async def test_a1_a2_where_things_are_is_not_changed_while_running(
    unharmed: Unharmed, key: str
) -> None:
    root = unharmed.broker.config.store.root
    async with RawPeer(unharmed.broker.address) as peer:
        answer = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, f"{key}=/tmp/x".encode())
        assert answer.code != ResponseCode.SUCCESS
        assert is_plain(answer)
    assert unharmed.broker.config.store.root == root
    await unharmed.check()


REFUSED: dict[str, tuple[int, dict[str, str], bytes, set[int]]] = {
    "A5 createTopic ../x": (17, topic_fields("../x"), b"", {29}),
    "createTopic of 300": (17, topic_fields("t" * 300), b"", {29}),
    "A6 createTopic 10^9 queues": (17, topic_fields("many", readQueueNums=str(10**9)), b"", {1}),
    "createTopic -1 queues": (17, topic_fields("few", writeQueueNums="-1"), b"", {1}),
    "createTopic perm 99": (17, topic_fields("odd", perm="99"), b"", {29}),
    "createTopic without perm": (
        17,
        {n: v for n, v in topic_fields("odd").items() if n != "perm"},
        b"",
        {1},
    ),
    "createTopics that is no list": (18, {}, b'{"topicConfigList":{}}', {1}),
    "createTopics with a bad one": (18, {}, b'{"topicConfigList":[{"topicName":"../x"}]}', {29}),
    "createTopics of garbage": (18, {}, b"\xff\xfe", {1}),
    "deleteTopic ../x": (215, {"topic": "../x"}, b"", {29}),
    "deleteTopic of the system": (215, {"topic": "SCHEDULE_TOPIC_XXXX"}, b"", {29}),
    "updateGroup ../x": (200, {}, b'{"groupName":"../x"}', {29}),
    "updateGroup of garbage": (200, {}, b"[1,2", {1}),
    "updateBrokerConfig of garbage": (25, {}, b"\xff\xfe=\\u12", {1, 29}),
    "updateBrokerConfig brokerPermission=x": (25, {}, b"brokerPermission=x", {1, 29}),
    "A7 heartbeat of garbage": (34, {}, b"this is no JSON", {1}),
    "A7 heartbeat nested": (34, {}, b"[" * 15_000, {1}),
    "heartbeat of an array": (34, {}, b"[]", {1}),
    "heartbeat without a client": (34, {}, b"{}", {1}),
    "heartbeat of 3 MiB": (34, {}, b'{"clientID":"' + b"c" * (3 << 20) + b'"}', {1}),
    "heartbeat of wrong kinds": (34, {}, b'{"clientID":[1],"consumerDataSet":5}', {1}),
    "A8 viewMessage 2^62": (33, {"offset": str(2**62)}, b"", {1}),
    "A9 viewMessage -1": (33, {"offset": "-1"}, b"", {1}),
    "viewMessage inside a record": (33, {"offset": "1"}, b"", {1}),
    "viewMessage abc": (33, {"offset": "abc"}, b"", {29}),
    "A10 endTransaction": (
        37,
        {"producerGroup": "g", "tranStateTableOffset": str(2**62), "commitLogOffset": "-1"},
        b"",
        {1, 3},
    ),
    "query of nothing": (12, {"topic": "neighbour", "key": ""}, b"", {1, 22}),
    "query of 2^31": (
        12,
        {
            "topic": "neighbour",
            "key": "k",
            "maxNum": str(2**31 - 1),
            "beginTimestamp": str(-(2**63)),
            "endTimestamp": str(2**63 - 1),
        },
        b"",
        {22},
    ),
    "lock of garbage": (41, {}, b"{", {1}),
    "lock of wrong kinds": (41, {}, b'{"mqSet":[{"queueId":"x"}]}', {1}),
    "searchOffset of an unknown queue": (
        29,
        {"topic": "neighbour", "queueId": "77", "timestamp": "0"},
        b"",
        {29},
    ),
    "checkClient with bad SQL": (
        46,
        {},
        b'{"subscriptionData":{"topic":"t","subString":"a >","expressionType":"SQL92"}}',
        {1, 23},
    ),
    "send back of nowhere": (
        36,
        {"offset": str(2**62), "group": "tests", "delayLevel": "0", "originMsgId": "x"},
        b"",
        {1},
    ),
}


@pytest.mark.parametrize(("code", "ext", "body", "expected"), REFUSED.values(), ids=REFUSED.keys())
async def test_it_is_refused_in_plain_words(
    unharmed: Unharmed, code: int, ext: dict[str, str], body: bytes, expected: set[int]
) -> None:
    topics = set(unharmed.broker.tables.topics.configs)
    async with RawPeer(unharmed.broker.address) as peer:
        answer = await peer.ask(code, ext, body)
        assert answer.code in expected, answer.remark
        assert is_plain(answer), answer.remark
    assert set(unharmed.broker.tables.topics.configs) <= topics | {"%RETRY%tests"}
    await unharmed.check()


async def test_a11_a_route_asked_for_with_a_foreign_signature_is_told(unharmed: Unharmed) -> None:
    # What scanners send to find RocketMQ: the route of TBW102 with somebody's credentials.
    ext = {"topic": "TBW102", "AccessKey": "rocketmq2", "Signature": "bm90IHNpZ25lZA=="}
    async with RawPeer(unharmed.broker.nameserver) as peer:
        answer = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext)
    assert answer.code == ResponseCode.SUCCESS
    assert json.loads(answer.body)["brokerDatas"]
    await unharmed.check()


async def test_secrets_are_masked_even_on_this_host(unharmed: Unharmed) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        answer = await peer.ask(RequestCode.GET_BROKER_CONFIG)
    assert answer.code == ResponseCode.SUCCESS
    for line in answer.body.decode().splitlines():
        key, _, value = line.partition("=")
        if any(part in key.lower() for part in ("secret", "password", "credential")):
            assert set(value) <= {"*"}, line
    await unharmed.check()


async def test_oneway_requests_of_every_kind_get_no_answer(unharmed: Unharmed) -> None:
    codes = [12, 14, 15, 17, 21, 25, 26, 28, 33, 34, 36, 38, 41, 46, 215]
    async with RawPeer(unharmed.broker.address) as peer:
        for code in codes:
            peer.send(request(code, {}, b"{", opaque=99, flag=FLAG_ONEWAY))
        assert (await peer.ask(9999)).opaque == 1
        # Some of them are served later than they were read: nothing comes of these either.
        for _ in range(3):
            assert (await peer.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).opaque == 1
    await unharmed.check()


async def test_a_topic_deleted_under_a_producer_costs_no_message(unharmed: Unharmed) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        for number in range(5):
            sent = await peer.ask(RequestCode.SEND_MESSAGE, send_fields("orders"), b"x")
            assert sent.code == ResponseCode.SUCCESS
            assert (sent.ext or {})["queueOffset"] == str(number)
            deleted = await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
            assert deleted.code == ResponseCode.SUCCESS
    await unharmed.check()
