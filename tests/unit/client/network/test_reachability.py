"""Reachability: every master that the name server knows is greeted, and again when it was lost."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rockhopper.client.network.reachability import Reachability
from rockhopper.client.network.session import Session
from rockhopper.protocol.command import Command
from tests.support.fake_broker import FakeBroker


def cluster(*masters: str) -> bytes:
    table = ",".join(
        f'"b{n}":{{"brokerAddrs":{{0:"{address}",1:"10.0.0.9:1"}},"brokerName":"b{n}","cluster":"C"}}'
        for n, address in enumerate(masters)
    )
    return f'{{"brokerAddrTable":{{{table}}},"clusterAddrTable":{{}}}}'.encode()


@pytest.fixture
async def brokers() -> AsyncIterator[tuple[FakeBroker, FakeBroker]]:
    async with FakeBroker() as first, FakeBroker() as second:
        first.on(106, lambda request: Command(0, body=cluster(first.address, second.address)))
        yield first, second


@pytest.fixture
async def session(brokers: tuple[FakeBroker, FakeBroker]) -> AsyncIterator[Session]:
    made = Session(brokers[0].address)
    await made.start()
    yield made
    await made.close()


async def test_every_master_is_greeted_and_no_slave(
    brokers: tuple[FakeBroker, FakeBroker], session: Session
) -> None:
    reachability = Reachability(session, look_interval_s=60)
    reachability.start()
    for broker in brokers:
        await broker.wait_for(34)
    await reachability.close()
    assert [len(broker.requests_of(34)) for broker in brokers] == [1, 1]


async def test_a_broker_that_was_lost_is_greeted_at_the_next_look(
    brokers: tuple[FakeBroker, FakeBroker], session: Session
) -> None:
    reachability = Reachability(session, look_interval_s=0.001)
    reachability.start()
    await brokers[1].wait_for(34)
    brokers[1].drop_connections()
    await brokers[1].wait_for(34, 2)
    await reachability.close()
    assert len(brokers[0].requests_of(34)) == 1


async def test_who_leads_in_place_of_a_lost_broker_is_greeted_at_the_next_look(
    brokers: tuple[FakeBroker, FakeBroker], session: Session
) -> None:
    names, other = brokers
    async with FakeBroker() as lost:
        names.on(106, lambda request: Command(0, body=cluster(lost.address)))
        reachability = Reachability(session, look_interval_s=0.001)
        reachability.start()
        await lost.wait_for(34)
        names.on(106, lambda request: Command(0, body=cluster(other.address)))
        await lost.stop_listening()
        lost.drop_connections()
        await other.wait_for(34)
        await reachability.close()


async def test_a_route_that_changes_has_the_masters_looked_up(
    brokers: tuple[FakeBroker, FakeBroker], session: Session
) -> None:
    names, other = brokers
    names.on(106, lambda request: Command(0, body=cluster(names.address)))
    reachability = Reachability(session, look_interval_s=0.001)
    reachability.start()
    await names.wait_for(34)
    names.on(106, lambda request: Command(0, body=cluster(other.address)))
    await session.routes.route("orders")
    await other.wait_for(34)
    await reachability.close()


async def test_heartbeats_are_due_again_after_their_interval(
    brokers: tuple[FakeBroker, FakeBroker], session: Session
) -> None:
    reachability = Reachability(session, look_interval_s=0.0, heartbeat_interval_s=0.0)
    reachability.start()
    await brokers[0].wait_for(34, 3)
    assert len(brokers[0].requests_of(106)) >= 3
    await reachability.close()


@pytest.mark.parametrize("answer", [Command(1, remark="no"), Command(0, body=b"nonsense")])
async def test_a_name_service_that_does_not_tell_is_asked_again(
    brokers: tuple[FakeBroker, FakeBroker], session: Session, answer: Command
) -> None:
    first = brokers[0]
    told = [Command(0, body=cluster(first.address)), answer]
    first.on(106, lambda request: told.pop() if len(told) > 1 else told[0])
    reachability = Reachability(session, look_interval_s=0.0)
    reachability.start()
    await first.wait_for(34)
    assert len(first.requests_of(106)) >= 2
    await reachability.close()


async def test_closing_ends_it_and_one_that_never_began(session: Session) -> None:
    await Reachability(session).close()
    reachability = Reachability(session)
    reachability.start()
    await reachability.close()
    assert not [
        task for task in asyncio.all_tasks() if "_keep_up" in repr(task) and "Reach" in repr(task)
    ]
