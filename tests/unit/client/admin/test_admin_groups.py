"""Groups moved and deleted by an operator: planned within the queues, done broker by broker."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from rockhopper.client import Admin, MalformedAnswerError, RequestRefusedError, RouteNotFoundError
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.command import Command
from tests.support.fake_broker import FakeBroker

A, B = MessageQueue("orders", "a", 0), MessageQueue("orders", "a", 1)


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    """Queue 0 holds offsets 2 to 5, queue 1 nothing; the group has committed 3 in queue 0."""
    async with FakeBroker() as server:
        await server.append(0, *[b"x"] * 5)
        server.min_offsets[0] = 2
        server.committed["g", 0] = 3
        cluster = (
            '{"brokerAddrTable":{"a":{"brokerAddrs":{0:"ADDRESS"},"brokerName":"a","cluster":"C"}},'
            '"clusterAddrTable":{"C":["a"]}}'
        ).replace("ADDRESS", server.address)
        server.on(106, lambda request: Command(0, body=cluster.encode()))
        server.on(222, lambda request: Command(0))
        server.on(203, lambda request: Command(206, remark="nobody"))
        server.on(207, lambda request: Command(0))
        yield server


@pytest.fixture
async def admin(broker: FakeBroker) -> AsyncIterator[Admin]:
    async with Admin(broker.address) as made:
        yield made


@pytest.mark.parametrize(
    ("to", "after"),
    [
        ("earliest", (2, 0)),
        ("latest", (5, 0)),
        (4, (4, 0)),
        (0, (2, 0)),
        (99, (5, 0)),
        (datetime.fromtimestamp(0.003, UTC), (3, 0)),
    ],
)
async def test_a_plan_stays_within_the_queues(
    admin: Admin, broker: FakeBroker, to: Any, after: tuple[int, int]
) -> None:
    plan = await admin.groups.plan_reset("g", "orders", to)
    assert [(move.queue, move.before, move.after) for move in plan] == [
        (A, 3, after[0]),
        (B, None, after[1]),
    ]
    assert broker.requests_of(222) == []


@pytest.mark.parametrize(
    ("to", "timestamp"),
    [("earliest", "0"), ("latest", "-1"), (datetime.fromtimestamp(7, UTC), "7000")],
)
async def test_a_whole_topic_is_moved_by_one_request(
    admin: Admin, broker: FakeBroker, to: Any, timestamp: str
) -> None:
    await admin.groups.reset_offsets("g", "orders", to)
    (request,) = broker.requests_of(222)
    ext = request.ext or {}
    assert (ext["timestamp"], ext["isForce"], ext["queueId"]) == (timestamp, "true", "-1")


async def test_single_queues_and_offsets_are_moved_one_by_one(
    admin: Admin, broker: FakeBroker
) -> None:
    moves = await admin.groups.reset_offsets("g", "orders", 4)
    asked = [request.ext or {} for request in broker.requests_of(222)]
    assert [(ext["queueId"], ext["offset"]) for ext in asked] == [("0", "4"), ("1", "0")]
    assert [move.after for move in moves] == [4, 0]
    await admin.groups.reset_offsets("g", "orders", "earliest", queues=[A])
    last = broker.requests_of(222)[-1].ext or {}
    assert (last["queueId"], last["offset"]) == ("0", "2")


async def test_what_the_broker_says_it_did_counts(admin: Admin, broker: FakeBroker) -> None:
    key = '{"brokerName":"a","queueId":0,"topic":"orders"}'
    broker.on(222, lambda request: Command(0, body=f'{{"offsetTable":{{{key}:7}}}}'.encode()))
    moves = await admin.groups.reset_offsets("g", "orders", "latest")
    assert [move.after for move in moves] == [7, 0]
    broker.on(222, lambda request: Command(0, body=b"nonsense"))
    with pytest.raises(MalformedAnswerError, match="with an invalid body"):
        await admin.groups.reset_offsets("g", "orders", "latest")


@pytest.mark.parametrize("code", [206, 1])
async def test_where_only_members_could_be_told_and_nobody_is_there_it_commits(
    admin: Admin, broker: FakeBroker, code: int
) -> None:
    broker.on(222, lambda request: Command(code, remark="not online"))
    await admin.groups.reset_offsets("g", "orders", "latest")
    assert broker.committed["g", 0] == 5


async def test_another_refusal_is_one(admin: Admin, broker: FakeBroker) -> None:
    broker.on(222, lambda request: Command(16, remark="no permission"))
    with pytest.raises(RequestRefusedError, match="no permission"):
        await admin.groups.reset_offsets("g", "orders", "latest")
    assert broker.committed["g", 0] == 3


async def test_a_topic_that_is_not_there_is_named(admin: Admin) -> None:
    with pytest.raises(RouteNotFoundError, match="gone"):
        await admin.groups.reset_offsets("g", "gone", "latest")


@pytest.mark.parametrize("with_offsets", [True, False])
async def test_a_group_is_deleted_on_every_broker(
    admin: Admin, broker: FakeBroker, with_offsets: bool
) -> None:
    done = await admin.groups.delete("g", with_offsets=with_offsets)
    assert [each.address for each in done] == [broker.address]
    (request,) = broker.requests_of(207)
    ext = request.ext or {}
    assert ext["groupName"] == "g"
    assert json.loads(ext.get("cleanOffset", "false")) is with_offsets
