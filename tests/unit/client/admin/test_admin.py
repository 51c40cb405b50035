"""Admin: topics, brokers and settings."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.client import (
    Admin,
    BrokerUnreachableError,
    MalformedAnswerError,
    RequestRefusedError,
    RouteNotFoundError,
)
from rockhopper.protocol.command import Command
from tests.support.fake_server import FakeServer, route


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


async def test_brokers_are_listed_with_their_slaves(admin: Admin, broker: FakeServer) -> None:
    found = [(each.name, each.broker_id, each.address) for each in await admin.brokers()]
    assert found == [("broker-a", 0, broker.address), ("broker-a", 1, "10.0.0.9:10911")]
    assert [each.address for each in await admin.masters()] == [broker.address]
    assert [each.address for each in await admin.masters(broker.address)] == [broker.address]


async def test_an_unknown_broker_is_an_error_that_lists_the_known_ones(admin: Admin) -> None:
    with pytest.raises(RouteNotFoundError, match=r"no broker 'b'.*broker-a"):
        await admin.masters("b")


async def test_topics_are_listed_in_order(admin: Admin) -> None:
    assert await admin.topics() == ["C", "gone", "orders"]


async def test_a_name_service_that_knows_nothing_is_not_believed_while_another_knows(
    name_service: FakeServer, broker: FakeServer
) -> None:
    async with FakeServer() as empty:
        nothing = b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
        empty.on(106, lambda request: Command(0, body=nothing))
        empty.on(206, lambda request: Command(0, body=b'{"topicList":[]}'))
        for _ in range(4):  # whichever is asked first
            async with Admin(f"{empty.address};{name_service.address}") as admin:
                assert await admin.topics() == ["C", "gone", "orders"]
            async with Admin(f"{empty.address};{name_service.address}") as admin:
                assert [each.address for each in await admin.masters()] == [broker.address]
        async with Admin(empty.address) as admin:
            assert await admin.topics() == []


async def test_creating_a_topic_says_everything_that_java_says(
    admin: Admin, broker: FakeServer
) -> None:
    broker.on(17, lambda request: Command(0))
    await admin.create_topic("new", queues=4, attributes={"queue.type": "BatchCQ"})
    (request,) = broker.requests_of(17)
    ext = dict(request.ext or {})
    ext.pop("rh", None)
    assert ext == {
        "topic": "new",
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": "+queue.type=BatchCQ",
        "force": "false",
    }


async def test_a_refusal_carries_code_remark_and_address(admin: Admin, broker: FakeServer) -> None:
    broker.on(17, lambda request: Command(16, remark="not from this host"))
    with pytest.raises(RequestRefusedError, match=r"not from this host \(") as caught:
        await admin.create_topic("new")
    assert (caught.value.code, caught.value.remark) == (16, "not from this host")
    assert caught.value.address == broker.address


async def test_deleting_a_topic_tells_brokers_and_name_services(
    admin: Admin, broker: FakeServer, name_service: FakeServer
) -> None:
    broker.on(215, lambda request: Command(0))
    await admin.delete_topic("orders")
    assert len(broker.requests_of(215)) == 1
    assert len(name_service.requests_of(216)) == 1


async def test_deleting_a_topic_that_does_not_exist_is_an_error(admin: Admin) -> None:
    with pytest.raises(RouteNotFoundError):
        await admin.delete_topic("missing")


async def test_settings_survive_the_way_through_java_s_properties(
    admin: Admin, broker: FakeServer
) -> None:
    broker.on(25, lambda request: Command(0))
    broker.on(26, lambda request: Command(0, body=broker.requests_of(25)[-1].body))
    settings = {"path": "C:\\data\\new", "name": "é", "text": "two\nlines"}
    await admin.update_broker_config(broker.address, settings)
    assert broker.requests_of(25)[0].body.isascii()
    assert await admin.broker_config(broker.address) == settings


async def test_an_answer_that_cannot_be_read_is_named(admin: Admin, broker: FakeServer) -> None:
    broker.on(28, lambda request: Command(0, body=b"[1"))
    with pytest.raises(MalformedAnswerError, match="an invalid KVTable"):
        await admin.broker_status(broker.address)


async def test_between_calls_it_says_nothing_of_a_name_service_that_is_away(
    name_service: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with Admin(name_service.address) as admin:
        await admin.route("orders")
        await name_service.stop_listening()
        name_service.drop_connections()
        await admin.session.keep_up_once()
        with pytest.raises(BrokerUnreachableError):
            await admin.route("orders")
    assert caplog.records == []
