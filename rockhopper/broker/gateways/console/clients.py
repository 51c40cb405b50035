"""Clients: Rockhopper clients for the users with an open page; each closes after an idle minute."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from rockhopper.broker.settings.tls_config import ClientAuth, TlsConfig
from rockhopper.client.admin.admin import Admin
from rockhopper.client.network.tls import TlsOptions
from rockhopper.protocol.signing import Credentials
from rockhopper.tasks import run_in_background

IDLE_S = 60.0
CLIENTS_MAX = 16
REQUESTS_AT_ONCE_MAX = 64
"""The limit of requests in flight from one client to a broker.

A broker serves 128 of a connection and refuses more.
"""


class Timer(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the call."""


CallLater = Callable[[float, Callable[[], None]], Timer]


class _UserClient:
    """One client: in use, or waiting for the next page."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self.users = 0
        self.end: Timer | None = None


class UserClients:
    """The open clients by user. Belongs to the event loop."""

    def __init__(
        self,
        tls: TlsOptions | None,
        *,
        idle_s: float = IDLE_S,
        call_later: CallLater | None = None,
    ) -> None:
        self._tls = tls
        self._idle_s = idle_s
        self._call_later = call_later
        self._open: dict[tuple[str, Credentials | None], _UserClient] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.asynccontextmanager
    async def use(
        self, name_services: str, credentials: Credentials | None
    ) -> AsyncIterator[Admin]:
        """Yield the client that uses *credentials*; it stays open for the next page."""
        key = (name_services, credentials)
        client = self._open.get(key)
        if client is None:
            self._make_room()
            admin = Admin(name_services, tls=self._tls or False, credentials=credentials)
            admin.session.pool.at_once_max = REQUESTS_AT_ONCE_MAX
            client = self._open[key] = _UserClient(admin)
            await admin.session.start()
        if client.end is not None:
            client.end.cancel()
            client.end = None
        client.users += 1
        try:
            yield client.admin
        finally:
            client.users -= 1
            if not client.users and self._open.get(key) is client:
                call_later = self._call_later or asyncio.get_running_loop().call_later
                client.end = call_later(self._idle_s, lambda: self._end(key))

    async def close(self) -> None:
        """Close all clients."""
        for key in list(self._open):
            self._end(key)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _make_room(self) -> None:
        idle = [key for key, client in self._open.items() if not client.users]
        if len(self._open) >= CLIENTS_MAX and idle:
            self._end(idle[0])

    def _end(self, key: tuple[str, Credentials | None]) -> None:
        client = self._open.pop(key)
        if client.end is not None:
            client.end.cancel()
        task = run_in_background(client.admin.close(), "closing a client of the console")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def tls_of(config: TlsConfig, certificate: Path | None) -> TlsOptions | None:
    """Return the TLS options for brokers with these settings; *certificate* is this broker's."""
    if not config.is_spoken:
        return None
    shown = config.client_certificate or config.certificate
    is_shown = config.client_auth is not ClientAuth.NONE
    return TlsOptions(
        ca=config.client_trusted or config.trusted or config.certificate or certificate,
        certificate=shown if is_shown else None,
        key=(config.client_key or config.key) if is_shown else None,
        verify=config.client_auth_server,
    )
