"""A request's reply finds the client that waits for it, or the replier learns why not."""

import json

import pytest

from rockhopper.broker.app import Broker
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.properties import decode_properties
from tests.integration.test_groups_for_all_clients import _response
from tests.support.raw_peer import RawPeer
from tests.support.wire import WireClient


def producer_beat(client_id: str, *groups: str) -> bytes:
    names = [{"groupName": group} for group in groups]
    return json.dumps(
        {"clientID": client_id, "consumerDataSet": [], "producerDataSet": names}
    ).encode()


def reply_fields(client_id: str | None) -> dict[str, str]:
    properties = "MSG_TYPE\x01reply\x02CORRELATION_ID\x01id-1\x02TTL\x013000\x02"
    if client_id is not None:
        properties += f"REPLY_TO_CLIENT\x01{client_id}\x02"
    return {
        "a": "repliers",
        "b": "DefaultCluster_REPLY_TOPIC",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": properties,
    }


async def answered(requester: RawPeer, code: int = 0) -> Command:
    push = await requester.answer()
    assert push.code == Code.PUSH_REPLY_MESSAGE_TO_CLIENT
    requester.send(_response(push, b""))
    return push


async def test_reply_is_pushed_to_the_requester_and_kept(broker: Broker) -> None:
    async with RawPeer(broker.address) as requester, WireClient(broker.address) as replier:
        await requester.ask(34, {}, producer_beat("asker", "askers", "others"))
        # RocketMQ forgets the whole client when one of its groups goes.
        await requester.ask(35, {"clientID": "asker", "producerGroup": "others"})
        waiting = replier.send(Code.SEND_REPLY_MESSAGE_V2, reply_fields("asker"), b"yes")
        push = await answered(requester)
        answer = await waiting
    assert push.body == b"yes"
    ext = push.ext or {}
    properties = decode_properties(ext["properties"])
    assert properties["CORRELATION_ID"] == "id-1"
    assert int(properties["PUSH_REPLY_TIME"]) > 0
    assert (ext["topic"], ext["producerGroup"]) == ("DefaultCluster_REPLY_TOPIC", "repliers")
    assert ext["bornHost"].startswith("127.0.0.1:")
    assert ext["storeHost"] == broker.address
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert len((answer.ext or {})["msgId"]) == 32
    assert broker.store.reading.queue_range("DefaultCluster_REPLY_TOPIC", 0) == (0, 1)


async def test_reply_is_only_pushed_where_the_setting_says_so() -> None:
    settings = {"storeReplyMessageEnable": "false"}
    async with (
        Broker.temporary(settings) as broker,
        RawPeer(broker.address) as requester,
        WireClient(broker.address) as replier,
    ):
        await requester.ask(34, {}, producer_beat("asker", "askers"))
        fields = reply_fields("asker")
        long_names = {
            "producerGroup": fields["a"],
            "topic": fields["b"],
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1700000000000",
            "flag": "0",
            "properties": fields["i"],
        }
        waiting = replier.send(Code.SEND_REPLY_MESSAGE, long_names, b"yes")
        await answered(requester)
        answer = await waiting
        assert answer.code == ResponseCode.SUCCESS
        assert (answer.ext or {})["msgId"] == "0"
        assert broker.store.reading.queue_range("DefaultCluster_REPLY_TOPIC", 0) == (0, 0)


@pytest.mark.parametrize(
    ("client_id", "remark"),
    [
        ("nobody", "push reply message fail, channel of <nobody> not found."),
        (None, "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
async def test_replier_learns_why_nobody_was_reached(
    broker: Broker, client_id: str | None, remark: str
) -> None:
    async with WireClient(broker.address) as replier:
        answer = await replier.ask(Code.SEND_REPLY_MESSAGE_V2, reply_fields(client_id), b"yes")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith(remark)


def request_fields(client_id: str) -> dict[str, str]:
    return {
        "producerGroup": "askers",
        "topic": "questions",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": f"CORRELATION_ID\x01id-1\x02REPLY_TO_CLIENT\x01{client_id}\x02",
    }


async def test_requester_is_known_by_its_request_before_its_first_heartbeat(
    broker: Broker,
) -> None:
    async with RawPeer(broker.address) as requester, WireClient(broker.address) as replier:
        await requester.ask(Code.SEND_MESSAGE, request_fields("asker"), b"well?")
        waiting = replier.send(Code.SEND_REPLY_MESSAGE_V2, reply_fields("asker"), b"yes")
        assert (await answered(requester)).body == b"yes"
        assert (await waiting).code == ResponseCode.SUCCESS


async def test_forwarded_request_takes_no_replies_away(broker: Broker) -> None:
    async with RawPeer(broker.address) as requester, WireClient(broker.address) as forwarder:
        await requester.ask(34, {}, producer_beat("asker", "askers"))
        await forwarder.ask(Code.SEND_MESSAGE, request_fields("asker"), b"well?")
        waiting = forwarder.send(Code.SEND_REPLY_MESSAGE_V2, reply_fields("asker"), b"yes")
        assert (await answered(requester)).body == b"yes"
        assert (await waiting).code == ResponseCode.SUCCESS


async def test_requester_that_has_gone_is_not_waited_for(broker: Broker) -> None:
    async with RawPeer(broker.address) as requester, WireClient(broker.address) as replier:
        await requester.ask(34, {}, producer_beat("asker", "askers"))
        waiting = replier.send(Code.SEND_REPLY_MESSAGE_V2, reply_fields("asker"), b"yes")
        await requester.answer()
        requester.reset()
        answer = await waiting
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "fail" in (answer.remark or "")
