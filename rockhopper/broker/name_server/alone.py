"""NameServer: a process that runs a name server without a broker."""

import asyncio
import secrets

from rockhopper.broker.gateways.console.console import Console
from rockhopper.broker.kernel.members.guarding import guard_of, guard_with, tell_about_guard
from rockhopper.broker.kernel.tables.accounts import AclTable, UserTable
from rockhopper.broker.name_server.route_table import RouteTable
from rockhopper.broker.name_server.service import NameService
from rockhopper.broker.name_server.shared_accounts import SharedAccounts
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.remoting.gate import close_connections_of
from rockhopper.broker.server.remoting.health import state_page
from rockhopper.broker.server.remoting.http import HttpServer, Page, PageReaders, ServedPage
from rockhopper.broker.server.remoting.limits import connection_shares
from rockhopper.broker.server.remoting.ports import Ports
from rockhopper.broker.server.remoting.startup import StartError, store_errors_explained
from rockhopper.broker.settings.advertise import choose_fixed_host
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.users.accounts import User
from rockhopper.broker.users.guard import AccountListener
from rockhopper.protocol.signing import Credentials

INNER_USER = "rockhopper.inner"


class NameServer(AccountListener):
    """A process that answers which brokers serve a topic."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.failed = asyncio.Event()
        self._ports = Ports(config.bind_address)
        self.guard = guard_of(config)
        """Checks who may use this server."""
        directory = StoreLayout.from_config(config.store).config
        now_ms = BrokerClock().wall_ms
        self._users = UserTable(directory / "users.json", now_ms=now_ms)
        self._acls = AclTable(directory / "acls.json", now_ms=now_ms)
        self._shared = SharedAccounts(self.guard)
        self._service = NameService(
            config,
            access=self.guard,
            accounts=self._shared if config.auth.authentication_enabled else None,
            connections_max=connection_shares(with_store=False, with_name_service=False)[0],
            now_ms=BrokerClock().steady_ms,
        )
        page = ServedPage(self._page, PageReaders.BALANCERS)
        self.guard.listeners.append(self)
        self._console = Console(config, self.guard, lambda: self.address, self._ports.certificate)
        self._http = HttpServer(
            {"/healthz": page, "/readyz": page},
            self.guard,
            self._console.applications(),
            self._console.knows_name,
        )

    def user_changed(self, name: str) -> None:
        """Close the connections of a user."""
        close_connections_of(name, [self._service.server])

    def prepare(self) -> None:
        """Bind the ports, so that ``addresses`` are known. Raises StartError."""
        self._ports.bind("httpPort", self.config.http_port)
        self._ports.bind("namesrvPort", self.config.namesrv_port)

    async def start(self) -> None:
        """Start serving. Raises StartError, and then leaves nothing open."""
        try:
            self.prepare()
            config = self.config
            host = choose_fixed_host(config.bind_address, config.broker_ip1)
            self._ports.open_gate(config.tls, StoreLayout.from_config(config.store), [host])
            with store_errors_explained(self.config.store.root):
                self._service.load()
                self._users.load()
                self._acls.load()
                guard_with(self.guard, self._users, self._acls, self.config)
                self._shared.set_own_accounts(self._users.users, self._acls.rules)
            tell_about_guard(self.config)
            await self._ports.listen("httpPort", self._http.start_on)
            await self._ports.listen("namesrvPort", self._service.start_on)
        except StartError:
            await self.stop()
            raise

    async def announce(self) -> None:
        """Do nothing: a name server registers nowhere."""

    async def stop(self) -> None:
        """Close every connection. Raises OSError if values could not be saved."""
        try:
            await self._http.close()
            await self._console.close()
            await self._service.close()
        finally:
            self._ports.close_gate()
            self._ports.close()

    def hurry(self) -> None:
        """Do nothing: ``stop`` does not wait for clients."""

    def inner_user(self) -> Credentials:
        """Return the account by which brokers of the same owner register.

        It is a stored Super user. Raises OSError.
        """
        user = self._users.users.get(INNER_USER)
        if user is None or not (user.is_super and user.is_enabled):
            user = User(INNER_USER, secrets.token_urlsafe(), is_super=True)
            self._users.store_user(user)
            self._users.save()
        return Credentials(user.name, user.secret)

    @property
    def routes(self) -> RouteTable:
        """The registered brokers and their topics."""
        return self._service.routes

    @property
    def address(self) -> str:
        """The address of the name server, host:port."""
        return self._ports.address("namesrvPort")

    def facts(self) -> dict[str, str]:
        """Return the facts for the first log lines."""
        http = self._ports.address("httpPort") or "none"
        return {"nameserver": self.address, "http": http, **self._ports.listening()}

    def outcome(self) -> dict[str, int]:
        """Return nothing: a name server has no store."""
        return {}

    async def _page(self) -> Page:
        return state_page(None)
