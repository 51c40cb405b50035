"""PullMessage and the offsets of pull consumers."""

from typing import Any

import pytest

from rockhopper.protocol.grpc_v2.codes import Code
from tests.support.grpc_client import GrpcBroker, GrpcClient, request, sending
from tests.support.peers import Clock


def of_queue(rpc: str, queue_id: int = 0, group: str | None = "g", **fields: Any) -> Any:
    made = request(rpc, **fields) if group is None else request(rpc, group=group, **fields)
    made.message_queue.topic.name, made.message_queue.id = "t", queue_id
    return made


async def test_messages_are_pulled_from_an_offset(served: GrpcBroker, client: GrpcClient) -> None:
    for number in range(3):
        served.put("t", b"%d" % number)
    answer = client.ask_for("PullMessage", of_queue("PullMessage", offset=1, batch_size=32))
    status, *messages, following = (await answer.ended()).messages
    assert status.status.code == Code.OK
    assert [each.message.body for each in messages] == [b"1", b"2"]
    assert following.next_offset == 3


async def test_tags_with_the_same_hash_are_told_apart(
    served: GrpcBroker, client: GrpcClient
) -> None:
    for tag in ("Aa", "BB", "Aa"):
        served.put("t", tag.encode(), properties=f"TAGS\x01{tag}\x02")
    made = of_queue("PullMessage", batch_size=32)
    made.filter_expression.expression = "Aa"
    _, *messages, following = (await client.ask_for("PullMessage", made).ended()).messages
    assert [each.message.body for each in messages] == [b"Aa", b"Aa"]
    assert following.next_offset == 3


async def test_a_pull_waits_for_what_comes(served: GrpcBroker, client: GrpcClient) -> None:
    served.create_topic("t", queues=1)
    made = of_queue("PullMessage", batch_size=32, long_polling_timeout_ms=20_000)
    waiting = client.ask_for("PullMessage", made)
    assert not waiting.is_ended
    await client.ask("SendMessage", sending("t", b"late"))
    await waiting.ended()
    assert waiting.messages[1].message.body == b"late"


async def test_who_does_not_wait_is_told_at_once(served: GrpcBroker, client: GrpcClient) -> None:
    served.put("t")
    for offset, code in ((1, Code.MESSAGE_NOT_FOUND), (9, Code.ILLEGAL_OFFSET)):
        answer = client.ask_for("PullMessage", of_queue("PullMessage", offset=offset))
        status, following = (await answer.ended()).messages
        assert status.status.code == code
        assert following.next_offset == 1


async def test_a_committed_offset_is_found_again(served: GrpcBroker, client: GrpcClient) -> None:
    served.tables.groups.find_or_create("g")
    missing = await client.ask("GetOffset", of_queue("GetOffset"))
    assert missing.status.code == Code.OFFSET_NOT_FOUND
    reply = await client.ask("UpdateOffset", of_queue("UpdateOffset", offset=7))
    assert reply.status.code == Code.OK
    assert (await client.ask("GetOffset", of_queue("GetOffset"))).offset == 7


@pytest.mark.parametrize(("policy", "offset"), [(0, 0), (1, 2), (2, 1)])
async def test_offsets_are_found_by_policy(
    served: GrpcBroker, client: GrpcClient, clock: Clock, policy: int, offset: int
) -> None:
    served.put("t")
    clock.advance(1000)
    served.put("t")
    made = of_queue("QueryOffset", group=None, query_offset_policy=policy, timestamp_ms=clock())
    assert (await client.ask("QueryOffset", made)).offset == offset


@pytest.mark.parametrize(
    ("rpc", "fields", "code"),
    [
        ("UpdateOffset", {"offset": -1}, Code.ILLEGAL_OFFSET),
        ("UpdateOffset", {"queue_id": 9}, Code.BAD_REQUEST),
        ("UpdateOffset", {"group": "nobody"}, Code.CONSUMER_GROUP_NOT_FOUND),
        ("GetOffset", {"queue_id": 9}, Code.BAD_REQUEST),
        ("QueryOffset", {"queue_id": -1, "group": None}, Code.BAD_REQUEST),
    ],
)
async def test_what_is_nowhere_is_said(
    client: GrpcClient, rpc: str, fields: dict[str, Any], code: Code
) -> None:
    assert (await client.ask(rpc, of_queue(rpc, **fields))).status.code == code


async def test_a_negative_offset_is_no_place_to_pull_from(client: GrpcClient) -> None:
    answer = client.ask_for("PullMessage", of_queue("PullMessage", offset=-1))
    (reply,) = (await answer.ended()).messages
    assert reply.status.code == Code.ILLEGAL_OFFSET


async def test_what_is_no_time_is_refused(served: GrpcBroker, client: GrpcClient) -> None:
    served.put("t")
    made = of_queue("QueryOffset", group=None, query_offset_policy=2)
    made.timestamp.nanos = -1
    reply = await client.ask("QueryOffset", made)
    assert reply.status.code == Code.BAD_REQUEST
    assert "the requested time" in reply.status.message
