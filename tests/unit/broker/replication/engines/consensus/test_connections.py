"""Connections to a service: used again, given up in time, and closed with their engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from rockhopper.broker.replication.engines.consensus.connection import (
    HttpStatusError,
    ServiceRequest,
)
from rockhopper.broker.replication.engines.consensus.connections import (
    ServiceConnections,
    UnavailableError,
)
from tests.support.fake_etcd import LOST, FakeEtcd
from tests.support.hang import PATIENT_MS
from tests.support.held_clock import HeldClock
from tests.support.turns import until

STATUS = ServiceRequest("POST", "/v3/maintenance/status", b"{}")


@pytest.fixture
async def service() -> AsyncIterator[FakeEtcd]:
    async with FakeEtcd() as found:
        yield found


@pytest.fixture
async def connections() -> AsyncIterator[ServiceConnections]:
    found = ServiceConnections(default_port=1, timeout_ms=PATIENT_MS)
    yield found
    await found.close()


async def test_a_connection_is_used_again(
    service: FakeEtcd, connections: ServiceConnections
) -> None:
    endpoint = await service.listen()
    first = await connections.ask(endpoint, STATUS)
    await service.stop(endpoint)
    assert await connections.ask(endpoint, STATUS) == first


async def test_a_refusal_keeps_the_connection(
    service: FakeEtcd, connections: ServiceConnections
) -> None:
    endpoint = await service.listen()
    with pytest.raises(HttpStatusError):
        await connections.ask(endpoint, ServiceRequest("POST", "/nothing", b"{}"))
    await service.stop(endpoint)
    await connections.ask(endpoint, STATUS)


async def test_what_was_not_answered_may_be_done(
    service: FakeEtcd, connections: ServiceConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = await service.listen()
    service.fail(STATUS.path, LOST)
    with pytest.raises(UnavailableError, match="closed the connection") as caught:
        await connections.ask(endpoint, STATUS)
    assert caught.value.may_be_done
    service.fail(STATUS.path, None)
    clock = HeldClock(monkeypatch)
    asking = asyncio.ensure_future(connections.ask(endpoint, STATUS))
    await until(lambda: service.asked(STATUS.path) == 2)
    clock.advance(PATIENT_MS / 1000)
    with pytest.raises(UnavailableError, match="no answer within 60 s") as caught:
        await asking
    assert caught.value.may_be_done


async def test_what_was_never_asked_is_not_done(
    service: FakeEtcd, connections: ServiceConnections
) -> None:
    endpoint = await service.listen()
    await service.stop(endpoint)
    with pytest.raises(UnavailableError, match="cannot be reached") as caught:
        await connections.ask(endpoint, STATUS)
    assert not caught.value.may_be_done


async def test_a_stream_ends_with_the_engine(
    service: FakeEtcd, connections: ServiceConnections
) -> None:
    endpoint = await service.listen()
    watch = ServiceRequest(
        "POST", "/v3/watch", b'{"create_request":{"key":"","start_revision":"2"}}'
    )
    async with aclosing(connections.stream(endpoint, watch)) as lines:
        assert b"created" in await anext(lines)
        following = asyncio.ensure_future(anext(lines, b""))
        await asyncio.sleep(0)
        await connections.close()
        with pytest.raises(UnavailableError):
            await following
    with pytest.raises(UnavailableError, match="the engine is closed"):
        await connections.ask(endpoint, STATUS)
