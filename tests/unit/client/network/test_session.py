"""A session: open between start and close, known by heartbeats, and polite at the end."""

import json
from collections.abc import AsyncIterator

import pytest

from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientStateError,
    RequestRefusedError,
)
from rockhopper.client.network.session import Session
from rockhopper.protocol.bodies import ConsumerData
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from tests.support.fake_broker import FakeBroker
from tests.support.fake_server import FakeServer
from tests.support.turns import until


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as server:
        yield server


@pytest.fixture
async def session(broker: FakeBroker) -> AsyncIterator[Session]:
    made = Session(broker.address)
    await made.start()
    yield made
    await made.close()


async def ask(session: Session, broker: FakeBroker) -> Command:
    ext = {"topic": "orders", "queueId": "0"}
    return await session.request(broker.address, RequestCode.GET_MAX_OFFSET, ext)


async def test_it_answers_only_while_it_is_open(broker: FakeBroker) -> None:
    session = Session(broker.address)
    with pytest.raises(ClientStateError, match="not started; use `async with`"):
        await ask(session, broker)
    await session.start()
    assert (await ask(session, broker)).code == 0
    await session.close()
    await session.close()
    with pytest.raises(ClientStateError, match="this client is closed"):
        await ask(session, broker)


async def test_another_code_than_is_accepted_is_a_refusal(
    broker: FakeBroker, session: Session
) -> None:
    broker.on(30, lambda request: Command(17, remark="no such topic"))
    with pytest.raises(RequestRefusedError, match="no such topic") as error:
        await ask(session, broker)
    assert (error.value.code, error.value.address) == (17, broker.address)
    ext = {"topic": "orders", "queueId": "0"}
    answer = await session.request(
        broker.address, RequestCode.GET_MAX_OFFSET, ext, accept=frozenset({17})
    )
    assert answer.remark == "no such topic"


async def test_a_heartbeat_names_the_groups_that_live_here(
    broker: FakeBroker, session: Session
) -> None:
    session.producer_groups |= {"p2", "p1"}
    await session.heartbeat(broker.address)
    (beat,) = broker.requests_of(34)
    said = json.loads(beat.body)
    assert said["clientID"] == session.client_id
    assert [each["groupName"] for each in said["producerDataSet"]] == ["p1", "p2"]


async def test_only_strangers_are_introduced_and_failures_are_told(
    broker: FakeBroker, session: Session
) -> None:
    session.producer_groups.add("p")
    assert await session.introduce([broker.address]) == []
    assert await session.introduce([broker.address]) == []
    assert len(broker.requests_of(34)) == 1
    (failure,) = await session.introduce(["127.0.0.1:1"])
    assert isinstance(failure, BrokerUnreachableError)


async def test_a_refused_heartbeat_introduces_nobody(broker: FakeBroker, session: Session) -> None:
    broker.on(34, lambda request: Command(1, remark="too busy"))
    session.producer_groups.add("p")
    (failure,) = await session.introduce([broker.address])
    assert "too busy" in str(failure)
    broker.on(34, lambda request: Command(0))
    assert await session.introduce([broker.address]) == []
    assert len(broker.requests_of(34)) == 2


async def test_upkeep_beats_on_connections_to_brokers(broker: FakeBroker, session: Session) -> None:
    session.producer_groups.add("p")
    await session.routes.route("orders")
    await ask(session, broker)
    before = len(broker.requests_of(34))
    await session.keep_up_once()
    assert len(await broker.wait_for(34, before + 1)) == before + 1


async def test_every_group_says_goodbye(broker: FakeBroker) -> None:
    session = Session(broker.address)
    await session.start()
    await session.routes.route("orders")
    session.producer_groups |= {"p1", "p2"}
    await ask(session, broker)
    await session.close()
    said = sorted((request.ext or {})["producerGroup"] for request in broker.requests_of(35))
    assert said == ["p1", "p2"]


async def test_nothing_is_dialled_to_look_for_a_connection(session: Session) -> None:
    assert session.connection("127.0.0.1:1") is None


def with_slave(broker: FakeBroker, slave: FakeServer, *, master: str | None = None) -> None:
    data = broker.routes["orders"]
    addresses = {"0": master or broker.address, "2": slave.address}
    data["brokerDatas"] = [{"brokerAddrs": addresses, "brokerName": "a", "cluster": "C"}]


@pytest.fixture
async def slave() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        server.on(34, lambda request: Command(0))
        server.on(35, lambda request: Command(0))
        yield server


async def test_slaves_hear_of_consumers_and_not_of_producers(
    broker: FakeBroker, slave: FakeServer, session: Session
) -> None:
    with_slave(broker, slave)
    session.producer_groups.add("p")
    await session.routes.route("orders")
    await session.keep_up_once()
    assert slave.connections == []
    session.consumers["billing"] = ConsumerData("billing")
    await session.keep_up_once()
    (beat,) = await slave.wait_for(34)
    assert json.loads(beat.body)["consumerDataSet"][0]["groupName"] == "billing"


async def test_a_slave_that_cannot_be_reached_holds_nothing_up(
    broker: FakeBroker, slave: FakeServer, session: Session
) -> None:
    with_slave(broker, slave)
    await slave.stop_listening()
    session.consumers["billing"] = ConsumerData("billing")
    await session.routes.route("orders")
    await session.keep_up_once()
    assert (await ask(session, broker)).code == 0


async def test_a_broker_that_breaks_or_does_not_lead_is_looked_up_at_once(
    broker: FakeBroker, slave: FakeServer, session: Session
) -> None:
    with_slave(broker, slave, master=slave.address)
    await session.routes.route("orders")
    slave.on(30, lambda request: Command(2, remark="[REJECTREQUEST]it follows another"))
    with pytest.raises(RequestRefusedError):
        await session.request(slave.address, RequestCode.GET_MAX_OFFSET, {})
    await broker.wait_for(105, 2)
    await until(lambda: session.routes.known("orders") is not None)
    await slave.stop_listening()
    slave.drop_connections()
    await broker.wait_for(105, 3)
