"""ReceiveMessage: what comes, when, and what becomes of it when its client goes."""

import asyncio
from typing import Any

import pytest

from rockhopper.broker.features.pop.grpc.half import PopGrpc
from rockhopper.broker.features.pop.grpc.handles import Handles
from rockhopper.broker.features.pop.grpc.receiving import _Receipt
from rockhopper.protocol.grpc_v2.codes import Code
from tests.support.features import pop_of
from tests.support.grpc_client import (
    GrpcBroker,
    GrpcClient,
    receiving,
    sending,
    settings_of_consumer,
)
from tests.support.peers import Clock


def handles_of(served: GrpcBroker) -> Handles:
    half = served.gateway.halves["pop"]
    assert isinstance(half, PopGrpc)
    return half.handles


def bodies(messages: list[Any]) -> list[bytes]:
    return [each.message.body for each in messages if each.HasField("message")]


async def received(client: GrpcClient, made: Any, **fields: str) -> list[Any]:
    answer = await client.ask_for("ReceiveMessage", made, **fields).ended()
    assert answer.status == "0"
    return answer.messages


async def test_the_status_comes_first_and_the_time_last(
    served: GrpcBroker, client: GrpcClient, clock: Clock
) -> None:
    served.put("t", b"hello", properties="UNIQ_KEY\x01U\x02TAGS\x01red\x02mine\x01yes\x02")
    status, message, time = await received(client, receiving("t"))
    assert status.status.code == Code.OK
    assert time.delivery_timestamp.ToMilliseconds() == clock()
    system = message.message.system_properties
    assert message.message.body == b"hello"
    assert dict(message.message.user_properties) == {"mine": "yes"}
    assert (system.message_id, system.tag, system.delivery_attempt) == ("U", "red", 1)
    assert system.receipt_handle == f"0 {clock()} 30000 0 0 broker-a 0 0 0"
    assert system.body_digest.checksum == "5D41402ABC4B2A76B9719D911017C592"


async def test_a_message_that_comes_later_ends_the_wait(
    served: GrpcBroker, client: GrpcClient
) -> None:
    waiting = client.ask_for("ReceiveMessage", receiving("t"))
    assert not waiting.is_ended
    await client.ask("SendMessage", sending("t", b"late"))
    await waiting.ended()
    assert bodies(waiting.messages) == [b"late"]


async def test_a_call_that_waited_is_checked_again(served: GrpcBroker, client: GrpcClient) -> None:
    waiting = client.ask_for("ReceiveMessage", receiving("t"))
    group = served.tables.groups.get(receiving("t").group.name)
    assert group is not None
    group.consume_enable = False
    served.put("t", b"late")
    await waiting.ended()
    assert bodies(waiting.messages) == []
    assert [each.status.code for each in waiting.messages] == [Code.FORBIDDEN]


async def test_a_call_that_waited_is_not_served_in_another_order(
    served: GrpcBroker, client: GrpcClient
) -> None:
    waiting = client.ask_for("ReceiveMessage", receiving("t"))
    group = served.tables.groups.get(receiving("t").group.name)
    assert group is not None
    group.consume_message_orderly = True
    served.put("t", b"late")
    await waiting.ended()
    assert [each.status.code for each in waiting.messages] == [Code.MESSAGE_NOT_FOUND]


async def test_who_gave_up_waiting_takes_nothing(served: GrpcBroker, client: GrpcClient) -> None:
    stream_id, _ = client.begin("ReceiveMessage")
    client.send(stream_id, receiving("t"), is_end=True)
    assert len(pop_of(served).polling) == 1
    client.cancel(stream_id)
    assert len(pop_of(served).polling) == 0
    await client.ask("SendMessage", sending("t", b"for others"))
    assert bodies(await received(client, receiving("t"))) == [b"for others"]


async def test_tags_with_the_same_hash_are_told_apart(
    served: GrpcBroker, client: GrpcClient
) -> None:
    tags = ["BB"] * 40 + ["Aa", "BB", "Aa"]
    for number, tag in enumerate(tags):
        served.put("t", b"%d" % number, properties=f"TAGS\x01{tag}\x02")
    made = receiving("t", batch_size=2)
    made.filter_expression.expression = "C || Aa"
    assert bodies(await received(client, made)) == [b"40", b"42"]


async def test_nothing_in_time_is_said(served: GrpcBroker, client: GrpcClient) -> None:
    waiting = client.ask_for("ReceiveMessage", receiving("t"))
    pop_of(served).polling.close()
    await waiting.ended()
    assert [each.status.code for each in waiting.messages] == [Code.MESSAGE_NOT_FOUND]


async def test_what_a_client_does_not_take_is_visible_at_once(
    served: GrpcBroker, clock: Clock
) -> None:
    for number in range(4):
        served.put("t", b"%d" % number * 400)
    slow = GrpcClient(served.gateway, window=1000)
    slow.takes = False
    stream_id, answer = slow.begin("ReceiveMessage")
    slow.send(stream_id, receiving("t"), is_end=True)
    await answer.until(2)
    slow.lose()
    lane = pop_of(served).lanes.get("g", "t", 0)
    assert lane is not None
    is_visible = [entry.visible_ms <= clock() + 1 for _, entry in sorted(lane.entries.items())]
    # What went out before the client was lost comes back when its time is over.
    assert is_visible == [False, True, True, True]


def test_only_messages_that_did_not_leave_are_given_back() -> None:
    class Receiving:
        returned: Any = None

        def give_back(self, received: list[Any]) -> None:
            self.returned = received

    side = Receiving()
    untyped: Any = side, None, None, None, False, ""
    receipt = _Receipt(*untyped)
    receipt._received = list("abc")  # type: ignore[arg-type]
    returned = []
    # The status, three messages, and the delivery time leave in this order.
    for unsent in (1, 2, 4, 5):
        receipt.lost(unsent)
        returned.append(side.returned)
    assert returned == [[], ["c"], ["a", "b", "c"], ["a", "b", "c"]]


async def test_a_client_that_takes_slowly_gets_everything(served: GrpcBroker) -> None:
    for number in range(4):
        served.put("t", b"%d" % number * 400)
    slow = GrpcClient(served.gateway, window=1000)
    slow.takes = False
    stream_id, answer = slow.begin("ReceiveMessage")
    slow.send(stream_id, receiving("t"), is_end=True)
    while not answer.is_ended:
        slow.make_room(stream_id, 100)
        await asyncio.sleep(0)
    assert len(bodies(answer.messages)) == 4
    assert answer.status == "0"


async def test_a_filter_chooses(served: GrpcBroker, client: GrpcClient) -> None:
    served.put("t", b"red", properties="TAGS\x01red\x02")
    served.put("t", b"blue", properties="TAGS\x01blue\x02n\x015\x02")
    made = receiving("t")
    made.filter_expression.expression = "blue"
    assert bodies(await received(client, made)) == [b"blue"]
    by_sql = receiving("t", "other")
    by_sql.filter_expression.type = 2
    by_sql.filter_expression.expression = "n > 4"
    assert bodies(await received(client, by_sql)) == [b"blue"]


@pytest.mark.parametrize(
    ("changes", "fields", "code"),
    [
        ({"invisible_ms": 9_999}, {}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_ms": 43_200_001}, {}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"topic": "gone"}, {}, Code.TOPIC_NOT_FOUND),
        ({"topic": "a b"}, {}, Code.ILLEGAL_TOPIC),
        ({"group": ""}, {}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"group": "CID_RMQ_SYS_X"}, {}, Code.ILLEGAL_CONSUMER_GROUP),
        ({}, {"grpc_timeout": "4S", "x_mq_client_version": "5.0.8"}, Code.ILLEGAL_POLLING_TIME),
        ({}, {"grpc_timeout": "4S", "x_mq_client_version": "5.0.2"}, Code.BAD_REQUEST),
    ],
)
async def test_what_cannot_be_received_is_refused(
    client: GrpcClient, changes: dict[str, Any], fields: dict[str, str], code: Code
) -> None:
    made = receiving(**{"topic": "t", **changes})
    (reply,) = await received(client, made, **fields)
    assert reply.status.code == code


async def test_a_wrong_filter_is_refused(client: GrpcClient) -> None:
    made = receiving("t")
    made.filter_expression.type, made.filter_expression.expression = 2, "n > > 4"
    (reply,) = await received(client, made)
    assert reply.status.code == Code.ILLEGAL_FILTER_EXPRESSION


async def test_an_ordered_group_gets_one_batch_of_a_queue_and_counts_attempts(
    served: GrpcBroker, client: GrpcClient, clock: Clock
) -> None:
    group = served.tables.groups.find_or_create("g")
    assert group is not None
    ordered = type(group).from_json("g", group.to_json() | {"consumeMessageOrderly": True})
    served.tables.groups.put(ordered)
    for body in (b"1", b"2"):
        await client.ask("SendMessage", sending("fifo", body, message_group="m"))
    first = await received(client, receiving("fifo", batch_size=1))
    assert bodies(first) == [b"1"]
    clock.advance(31_000)
    again = await received(client, receiving("fifo", batch_size=1))
    assert bodies(again) == [b"1"]
    assert again[1].message.system_properties.delivery_attempt == 2


async def test_a_namespace_stands_in_front_of_the_topic(
    served: GrpcBroker, client: GrpcClient
) -> None:
    served.create_topic("ns%t")
    served.put("ns%t", b"theirs")
    made = receiving("t")
    made.message_queue.topic.resource_namespace = "ns"
    _, message, _ = await received(client, made)
    assert message.message.topic.name == "t"
    assert message.message.topic.resource_namespace == "ns"


async def test_messages_of_a_push_consumer_are_renewed(
    served: GrpcBroker, client: GrpcClient
) -> None:
    stream_id, telemetry = client.begin("Telemetry")
    client.send(stream_id, settings_of_consumer("g", "t", client_type=2))
    await telemetry.until(1)
    served.put("t", b"long work")
    await received(client, receiving("t", invisible_ms=0, auto_renew=True))
    assert len(handles_of(served)) == 1
