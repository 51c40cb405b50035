"""Servers: the ports that the settings name, the address that clients get, and who is let in."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.server.remoting.startup import StartError
from rockhopper.protocol.codes import RequestCode
from tests.support.direct import pull_fields, route, send
from tests.support.free_ports import free_port
from tests.support.hang import HANG_S
from tests.support.wire import WireClient


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary() as broker:
        yield broker


async def test_only_the_ports_of_the_settings_are_bound() -> None:
    broker = Broker.temporary({"role": "broker", "httpPort": -1})
    broker.servers.bind()
    try:
        ports = broker.servers.ports
        assert ports.number("listenPort") > 0
        assert (ports.number("namesrvPort"), ports.number("grpcPort")) == (0, 0)
        assert ports.number("haListenPort") == 0
        assert ports.address("httpPort") == ""
    finally:
        broker.servers.ports.close()


async def test_a_port_in_use_is_refused_before_anything_else_happens() -> None:
    async with Broker.temporary() as other:
        port = other.servers.ports.number("listenPort")
        broker = Broker.temporary({"listenPort": port})
        with pytest.raises(StartError, match="listenPort"):
            broker.servers.bind()
        broker.servers.ports.close()


async def test_connections_are_counted_by_port(broker: Broker) -> None:
    servers = broker.servers
    assert servers.connection_counts() == {"broker": 0, "nameserver": 0}
    async with WireClient(broker.address) as client:
        await client.ask(RequestCode.PULL_MESSAGE, pull_fields("orders", 0))
        assert servers.connection_counts() == {"broker": 1, "nameserver": 0}
    assert list(servers.tls_families()) == []
    await servers.close_grpc()


async def test_nobody_connects_once_they_listen_no_more(broker: Broker) -> None:
    await send(broker.address, "orders", b"hello")
    await broker.servers.stop_listening()
    with pytest.raises(ConnectionRefusedError):
        await route(broker.nameserver, "orders")
    with pytest.raises(ConnectionRefusedError):
        await send(broker.address, "orders", b"hello")


async def test_a_rule_of_the_settings_decides_the_address_once_it_is_advertised() -> None:
    port = free_port()
    broker = Broker.temporary({"advertise": f"any=198.51.100.7:{port}"})
    broker.servers.bind()
    try:
        broker.servers.open_gate()
        broker.servers.advertise()
        assert broker.servers.own_address == f"198.51.100.7:{port}"
    finally:
        broker.servers.ports.close()


async def test_without_other_name_servers_there_is_nobody_to_wait_for(broker: Broker) -> None:
    broker.servers.announce_soon()
    async with asyncio.timeout(HANG_S):
        await broker.servers.announce()
        await broker.servers.unregister()
