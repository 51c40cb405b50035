"""Single messages: found by key, by the producer's id or by the broker's, and checked."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.client import (
    Admin,
    MessageNotFoundError,
    RequestRefusedError,
    RouteNotFoundError,
)
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import host_bytes
from tests.support.fake_server import FakeServer, route
from tests.support.records import encode_message

UNIQUE_ID = "C0A800010DB14C8F0EEC647096BB0000"
# Stored at an address inside the broker's own network, which must never be dialled.
INNER_HOST = "10.255.255.1"
OFFSET_ID = "0AFFFF0100002A9F0000000000000400"


def record(
    key: str = "k-1", topic: str = "orders", store_time_ms: int = 5, commit_log_offset: int = 1024
) -> bytes:
    return encode_message(
        topic=topic,
        body=b"hello",
        properties={"KEYS": f"other {key}", "UNIQ_KEY": UNIQUE_ID},
        commit_log_offset=commit_log_offset,
        store_time_ms=store_time_ms,
        store_host=host_bytes(INNER_HOST, 10911),
    )


@pytest.fixture
async def broker() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        yield server


@pytest.fixture
async def name_service(broker: FakeServer) -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        server.serve_routes({"orders": route({"broker-a": broker.address})})
        # As a name server writes it: bare keys that are numbers.
        cluster = (
            '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"ADDRESS",1:"10.0.0.9:10911"},'
            '"brokerName":"broker-a","cluster":"C","enableActingMaster":false}},'
            '"clusterAddrTable":{"C":["broker-a"]}}'
        ).replace("ADDRESS", broker.address)
        server.on(106, lambda request: Command(0, body=cluster.encode()))
        server.on(206, lambda request: Command(0, body=b'{"topicList":["orders","C","gone"]}'))
        server.on(216, lambda request: Command(3, remark=" request type 216 not supported"))
        yield server


@pytest.fixture
async def admin(name_service: FakeServer) -> AsyncIterator[Admin]:
    async with Admin(name_service.address) as admin:
        yield admin


async def test_a_key_is_checked_on_the_message_itself(admin: Admin, broker: FakeServer) -> None:
    found = record("k-1") + record("k-10") + record("k-1", topic="others")
    broker.on(12, lambda request: Command(0, body=found))
    messages = await admin.messages_by_key("orders", "k-1")
    assert [(message.topic, message.keys) for message in messages] == [("orders", ["other", "k-1"])]
    assert (broker.requests_of(12)[0].ext or {})["_UNIQUE_KEY_QUERY"] == "false"


async def test_messages_of_a_key_come_newest_first(admin: Admin, broker: FakeServer) -> None:
    body = b"".join(
        record(store_time_ms=time_ms, commit_log_offset=time_ms * 100) for time_ms in (3, 9, 6)
    )
    broker.on(12, lambda request: Command(0, body=body))
    messages = await admin.messages_by_key("orders", "k-1", max_count=2)
    assert [message.store_time_ms for message in messages] == [9, 6]


async def test_no_message_of_a_key_is_an_empty_list(admin: Admin, broker: FakeServer) -> None:
    broker.on(12, lambda request: Command(22, remark="can not find message"))
    assert await admin.messages_by_key("orders", "k-1") == []


async def test_an_offset_id_is_asked_of_the_brokers_in_the_route(
    admin: Admin, broker: FakeServer
) -> None:
    broker.on(33, lambda request: Command(0, body=record()))
    message = await admin.message(OFFSET_ID)
    assert message.body == b"hello"
    assert message.queue.broker_name == "broker-a"
    assert (broker.requests_of(33)[0].ext or {})["offset"] == "1024"


async def test_bytes_that_lie_at_the_offset_by_chance_are_not_taken_for_the_message(
    admin: Admin, broker: FakeServer
) -> None:
    broker.on(12, lambda request: Command(22))
    # Another message's id, and no message at all.
    for body in (record(), b"\0\0\0\x20garbage in the middle of a record"):
        broker.on(33, lambda request, body=body: Command(0, body=body))  # type: ignore[misc]
        with pytest.raises(MessageNotFoundError):
            await admin.message("0AFFFF0100002A9F0000000000000500")


async def test_a_producer_s_id_is_looked_for_in_every_topic(
    admin: Admin, broker: FakeServer
) -> None:
    broker.on(12, lambda request: Command(0, body=record()))
    message = await admin.message(UNIQUE_ID)
    assert message.message_id == UNIQUE_ID
    (query,) = broker.requests_of(12)  # the other names have no route
    assert (query.ext or {})["_UNIQUE_KEY_QUERY"] == "true"
    assert broker.requests_of(33) == []


async def test_a_producer_s_id_can_be_looked_for_in_one_topic(
    admin: Admin, broker: FakeServer, name_service: FakeServer
) -> None:
    broker.on(12, lambda request: Command(0, body=record()))
    assert (await admin.message(UNIQUE_ID, "orders")).message_id == UNIQUE_ID
    assert name_service.requests_of(206) == []
    with pytest.raises(RouteNotFoundError):
        await admin.message(UNIQUE_ID, "missing")


async def test_an_id_that_nobody_knows_is_an_error(admin: Admin, broker: FakeServer) -> None:
    broker.on(12, lambda request: Command(22))
    with pytest.raises(MessageNotFoundError, match="no-such-id was found in any topic"):
        await admin.message("no-such-id")


async def test_a_broker_that_fails_is_not_taken_for_one_without_the_message(
    admin: Admin, broker: FakeServer
) -> None:
    broker.on(12, lambda request: Command(1, remark="index is broken"))
    with pytest.raises(RequestRefusedError, match="index is broken"):
        await admin.message(UNIQUE_ID)
