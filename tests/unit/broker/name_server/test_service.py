"""NameService: it looks for silent brokers again and again, until it is closed."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.name_server.service import NameService
from rockhopper.broker.name_server.values.kv_config import KeyValueTable
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.codes import RequestCode
from tests.support.held_clock import HeldClock
from tests.support.name_server import BODY, FIELDS
from tests.support.peers import Clock
from tests.support.wire import WireClient


@pytest.fixture
def config(tmp_path: Path) -> BrokerConfig:
    return build_config({"storePathRootDir": str(tmp_path)})


@pytest.fixture
def bound() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@pytest.fixture
async def service(
    config: BrokerConfig, bound: socket.socket, clock: Clock
) -> AsyncIterator[NameService]:
    access = AccessRules(remote_admin=False)
    made = NameService(config, access=access, connections_max=9, now_ms=clock)
    await made.start_on(bound)
    yield made
    await made.close()


async def test_a_broker_that_falls_silent_leaves_the_routes_and_is_disconnected(
    config: BrokerConfig,
    bound: socket.socket,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    service: NameService,
) -> None:
    settings, address = config.name_service, "{}:{}".format(*bound.getsockname())
    async with WireClient(address) as broker:
        await broker.ask(RequestCode.REGISTER_BROKER, FIELDS, BODY)
        timers = HeldClock(monkeypatch)
        for passed_ms, is_known in ((settings.broker_expiry_ms, True), (1, False)):
            clock.advance(passed_ms)
            timers.advance(settings.scan_interval_ms / 1000)
            for _ in range(2):
                await asyncio.sleep(0)
            assert (service.routes.route("orders", "") is not None) == is_known
        await broker.task


async def test_closing_saves_the_operators_values_and_looks_for_no_silent_broker(
    config: BrokerConfig,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    service: NameService,
) -> None:
    scans: list[int] = []
    monkeypatch.setattr(service.routes, "expire", scans.append)
    timers = HeldClock(monkeypatch)
    service.values.set_value("N", "k", "v")
    await service.close()
    timers.advance(config.name_service.scan_interval_ms / 1000)
    for _ in range(2):
        await asyncio.sleep(0)
    assert scans == []
    again = KeyValueTable(StoreLayout.from_config(config.store).config / "kvConfig.json")
    again.load()
    assert again.get("N", "k") == "v"
