"""NameServer: a name service without a broker, for several brokers elsewhere."""

import asyncio

from broker.advertise import is_loopback, join_address
from broker.config import BrokerConfig
from broker.health import state_page
from broker.http import HttpServer, Page
from broker.json_table import wall_clock_ms
from broker.limits import connection_shares
from broker.nameserver.route_table import RouteTable
from broker.nameserver.service import NameService
from broker.server import Connection
from broker.startup import StartError, port_error
from broker.store.errors import StoreError


class NameServer:
    """One process that answers where topics are."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.failed = asyncio.Event()
        self._service = NameService(
            lambda: config,
            may_administer=self._may_administer,
            connections_max=connection_shares(with_name_service=False)[0],
            now_ms=wall_clock_ms,
        )
        self._http = HttpServer({"/healthz": self._page, "/readyz": self._page})

    async def start(self) -> None:
        """Open the ports.  Raises StartError."""
        config = self.config
        try:
            self._service.load()
        except (StoreError, OSError) as error:
            raise StartError(str(error)) from error
        host = config.bind_address
        if config.http_port >= 0:
            try:
                await self._http.start(host, config.http_port)
            except OSError as error:
                raise port_error("httpPort", host, config.http_port, error) from error
        try:
            await self._service.start(host, config.namesrv_port)
        except OSError as error:
            await self._http.close()
            raise port_error("namesrvPort", host, config.namesrv_port, error) from error

    async def stop(self) -> None:
        """Close every connection.  Raises OSError when values could not be saved."""
        await self._http.close()
        await self._service.close()

    @property
    def routes(self) -> RouteTable:
        """Who is registered."""
        return self._service.routes

    @property
    def address(self) -> str:
        """host:port of the name service."""
        return join_address(self.config.bind_address, self._service.port)

    def addresses(self) -> dict[str, str]:
        """What the first log line names."""
        return {"nameserver": self.address, "http": str(self._http.port or "none")}

    async def _page(self) -> Page:
        return state_page(None)

    def _may_administer(self, connection: Connection) -> bool:
        return self.config.remote_admin or is_loopback(connection.peer_host)
