"""Clients: one for each user, and none once nobody has asked for a while."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from rockhopper.broker.app import Broker
from rockhopper.broker.gateways.console.clients import CLIENTS_MAX, IDLE_S, UserClients, tls_of
from rockhopper.broker.settings.tls_config import TlsConfig, TlsMode
from rockhopper.protocol.signing import Credentials


class Timers:
    """Calls nothing before it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> "_Timer":
        assert delay_s == IDLE_S
        self.waiting.append(callback)
        return _Timer(self, callback)


class _Timer:
    def __init__(self, timers: Timers, callback: Callable[[], None]) -> None:
        self._timers, self._callback = timers, callback

    def cancel(self) -> None:
        if self._callback in self._timers.waiting:
            self._timers.waiting.remove(self._callback)


async def test_a_client_stays_for_the_next_page_and_goes_when_idle(served: Broker) -> None:
    timers = Timers()
    clients = UserClients(None, call_later=timers.call_later)
    before = asyncio.all_tasks()
    async with clients.use(served.nameserver, None) as first:
        assert not timers.waiting
        await first.topics()
    assert len(timers.waiting) == 1
    async with clients.use(served.nameserver, None) as second:
        assert second is first
        assert not timers.waiting
        async with clients.use(served.nameserver, None):
            pass
        assert not timers.waiting  # somebody still asks
    (end,) = timers.waiting
    end()
    assert (len(clients), timers.waiting) == (0, [])
    await clients.close()
    # Nothing of it runs any more.
    assert asyncio.all_tasks() <= before


async def test_each_user_has_his_own_and_there_are_only_so_many(served: Broker) -> None:
    timers = Timers()
    clients = UserClients(None, call_later=timers.call_later)
    for number in range(CLIENTS_MAX + 3):
        async with clients.use(served.nameserver, Credentials(f"user{number}", "x")):
            pass
    assert len(clients) == CLIENTS_MAX
    assert len(timers.waiting) == CLIENTS_MAX
    await clients.close()
    assert timers.waiting == []


def test_brokers_are_spoken_to_as_they_listen() -> None:
    made = Path("/made.pem")
    assert tls_of(TlsConfig(), made) is None
    options = tls_of(TlsConfig(mode=TlsMode.ENFORCING), made)
    assert options is not None
    assert (options.ca, options.certificate) == (made, None)


async def test_pages_of_a_broker_that_demands_tls() -> None:
    async with Broker.temporary({"tlsServerMode": "enforcing"}) as broker:
        site_of = broker.config.tls
        clients = UserClients(tls_of(site_of, _certificate_of(broker)))
        async with clients.use(broker.nameserver, None) as admin:
            (master,) = await admin.masters()
            assert (await admin.broker_status(master.address))["brokerActive"] == "true"
        await clients.close()


def _certificate_of(broker: Broker) -> Path:
    return broker.config.store.root / "config" / "tls" / "certificate.pem"
