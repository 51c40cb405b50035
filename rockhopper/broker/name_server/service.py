"""NameService: the name server's port, embedded in a broker or in its own process."""

import asyncio
import socket
from collections.abc import Callable

import structlog

from rockhopper.broker.name_server.embedded import EmbeddedBroker
from rockhopper.broker.name_server.processors import NameServiceProcessors
from rockhopper.broker.name_server.route_table import RouteTable
from rockhopper.broker.name_server.shared_accounts import SharedAccounts
from rockhopper.broker.name_server.values.kv_config import KeyValueTable
from rockhopper.broker.server.listening.listener import OPEN, Gate
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.dispatcher import Dispatcher
from rockhopper.broker.server.remoting.general_pass import GeneralPass
from rockhopper.broker.server.remoting.server import Server
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.users.access import AccessRules

log = structlog.get_logger("broker.nameserver")


class NameService:
    """A route table, the task that expires its entries, and the server in front of it."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        access: AccessRules,
        connections_max: int,
        now_ms: Callable[[], int],
        local: EmbeddedBroker | None = None,
        accounts: SharedAccounts | None = None,
    ) -> None:
        self._config = config
        self._now_ms = now_ms
        settings = config.name_service
        self.routes = RouteTable(
            local=local,
            expiry_ms=settings.broker_expiry_ms,
            forget_missing_topics=settings.delete_topic_with_registration,
        )
        self.values = KeyValueTable(StoreLayout.from_config(config.store).config / "kvConfig.json")
        processors = NameServiceProcessors(
            config, self.routes, self.values, local=local, now_ms=now_ms, accounts=accounts
        )
        self.dispatcher = Dispatcher(processors.table(), access)
        self.server = Server(
            "nameserver",
            GeneralPass(self.dispatcher),
            connections_max=connections_max,
            access=access,
        )
        self._scan: asyncio.TimerHandle | None = None

    def load(self) -> None:
        """Read the operators' values. Raises CorruptFileError, OSError."""
        self.values.load()

    async def start_on(self, bound: socket.socket, gate: Gate = OPEN) -> None:
        """Listen on a bound socket, which this service then owns."""
        self.values.start_saving()
        await self.server.start_on(bound, gate)
        self._scan_later()

    def _scan_later(self) -> None:
        interval_s = self._config.name_service.scan_interval_ms / 1000
        self._scan = asyncio.get_running_loop().call_later(interval_s, self._expire)

    def _expire(self) -> None:
        for connection in self.routes.expire(self._now_ms()):
            if isinstance(connection, RemotingConnection):
                connection.abort("the broker behind it is silent")
        self._scan_later()

    async def close(self) -> None:
        """Close the port and every connection, and save the operators' values."""
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        await self.server.close()
        await self.values.on_disk()
