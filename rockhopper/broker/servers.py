"""Servers: the ports of a broker, the servers that listen on them, and how clients find them.

    httpPort       health pages, metrics and the console (app.py, which knows the broker's health)
    namesrvPort    the embedded name server
    listenPort     remoting; with vipChannelEnabled also two ports below, for old Java clients
    grpcPort       RocketMQ 5 clients
    haListenPort   RocketMQ's slaves

The broker decides when each of them opens and closes: its role and the order of a start matter.
"""

import asyncio
import contextlib
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import structlog

from rockhopper.broker.kernel.families import Family
from rockhopper.broker.kernel.members.guarding import accounts_of
from rockhopper.broker.kernel.parts import BrokerCore
from rockhopper.broker.name_server.advertisement import Advertisement
from rockhopper.broker.name_server.embedded import EmbeddedBroker
from rockhopper.broker.name_server.registration import Registrar
from rockhopper.broker.name_server.service import NameService
from rockhopper.broker.server.listening.listener import Gate
from rockhopper.broker.server.remoting.gate import close_connections_of
from rockhopper.broker.server.remoting.limits import connection_shares
from rockhopper.broker.server.remoting.ports import Ports
from rockhopper.broker.server.remoting.server import Server
from rockhopper.broker.server.remoting.startup import StartError, check_grpc_extra
from rockhopper.broker.settings.advertise import Advertiser, choose_fixed_host
from rockhopper.broker.settings.broker_config import Role
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.users.guard import AccountListener
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.addresses import host_bytes

if TYPE_CHECKING:
    from rockhopper.broker.gateways.grpc.gateway import GrpcGateway
    from rockhopper.broker.replication.rocketmq.master.master import ClassicMaster

log = structlog.get_logger("broker")

ANNOUNCE_TIMEOUT_S = 3.0
VIP_PORTS_BELOW = 2


class Servers(AccountListener):
    """The servers of one broker. Belongs to the event loop."""

    remoting: Server
    """Serves listenPort; a new one for each role of the broker."""

    def __init__(
        self,
        core: BrokerCore,
        advertisement: Callable[[], Advertisement],
        http_socket: socket.socket | None = None,
    ) -> None:
        """*advertisement* returns the facts about the broker that name servers publish."""
        self._core = core
        self._advertisement = advertisement
        self.ports = Ports(core.config.bind_address)
        if http_socket is not None:
            self.ports.adopt("httpPort", http_socket)
        self.host = ""
        """The one address of this machine in stored messages, once ``open_gate`` was called."""
        self.name_service: NameService | None = None
        """None unless the broker has a name server."""
        self.grpc: GrpcGateway | None = None
        """None unless the broker serves RocketMQ 5 clients."""
        self.master: ClassicMaster | None = None
        """None unless RocketMQ's slaves may follow this broker."""
        self._advertiser = Advertiser((), broker_ip1="", port=0, route_table="")
        self._registrar: Registrar | None = None
        self._instance = uuid.uuid4().hex

    def bind(self) -> None:
        """Bind all ports of the settings. Raises StartError."""
        config, ports = self._core.config, self.ports
        ports.bind("httpPort", config.http_port)
        if config.role is Role.ALL:
            ports.bind("namesrvPort", config.namesrv_port)
        ports.bind("listenPort", config.listen_port)
        if config.grpc_port >= 0:
            check_grpc_extra()
            ports.bind("grpcPort", config.grpc_port)
        if config.replication.serves_slaves:
            ports.bind("haListenPort", config.replication.ha_port(config.listen_port))

    def open_gate(self) -> None:
        """Load the certificate of the ports, if TLS is configured. Raises StartError."""
        config = self._core.config
        self.host = choose_fixed_host(config.bind_address, config.broker_ip1)
        self.ports.open_gate(config.tls, StoreLayout.from_config(config.store), [self.host])

    @property
    def store_host(self) -> bytes:
        """The broker's address in the format of records."""
        return host_bytes(self.host, self.ports.number("listenPort"))

    @property
    def connections_max(self) -> int:
        """The limit of connections of each port for clients."""
        return self._connection_shares()[0]

    def _connection_shares(self) -> tuple[int, int]:
        config = self._core.config
        return connection_shares(
            with_store=True,
            with_name_service=config.role is Role.ALL,
            ports=1 if config.grpc_port < 0 else 2,
        )

    # The addresses of this broker, and its registration with name servers.

    def advertise(self) -> None:
        """Give clients addresses by the settings from now on; the ports must be bound."""
        config, port = self._core.config, self.ports.number("listenPort")
        self._advertiser = Advertiser(config.advertise, broker_ip1=config.broker_ip1, port=port)

    @property
    def own_address(self) -> str:
        """The advertised address for this machine."""
        return self._advertiser.address_for("0.0.0.0", self.host)

    def address_for(self, peer: Peer) -> str:
        """Return the advertised address for *peer*."""
        return self._advertiser.address_for(peer.addresses.peer_host, peer.addresses.local_host)

    def make_registrar(self) -> Registrar:
        """Return the registrar of the present tables, which the caller starts and stops."""
        config, tables = self._core.config, self._core.tables
        port = self.ports.number("listenPort")
        self._registrar = Registrar(
            config,
            tables.topics,
            self._advertiser,
            instance=self._instance,
            ha_port=self.ports.number("haListenPort") or config.replication.ha_port(port),
            advertisement=self._advertisement,
            accounts=self._accounts if config.auth.authentication_enabled else None,
        )
        return self._registrar

    def _accounts(self) -> bytes:
        return accounts_of(self._core.tables.users, self._core.tables.acls)

    def announce_soon(self) -> None:
        """Register again soon, because the advertisement has changed."""
        if self._registrar is not None:
            self._registrar.announce_soon()

    async def announce(self) -> None:
        """Return when other name servers have the current topics, or are unreachable."""
        if self._registrar is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANNOUNCE_TIMEOUT_S):
                    await self._registrar.wait_until_announced()

    async def unregister(self) -> None:
        """Unregister from name servers, and stop."""
        if self._registrar is not None:
            await self._registrar.stop()

    # The name server.

    def load_name_service(self) -> None:
        """Create the name server for the present tables, if the settings want one.

        Raises StoreError, OSError: a file of it cannot be read.
        """
        core, config = self._core, self._core.config
        if config.role is not Role.ALL:
            return
        service = NameService(
            config,
            access=core.access,
            connections_max=self._connection_shares()[1],
            now_ms=core.clock.steady_ms,
            local=EmbeddedBroker(
                config.cluster_name,
                config.broker_name,
                self._instance,
                topics=core.tables.topics,
                permission=lambda: core.config.live.broker_permission,
                address_for=self.address_for,
                may_have_group=self._may_have_group,
                advertisement=self._advertisement,
            ),
        )
        service.load()
        core.tables.include_names(service.values)
        self.name_service = service

    def _may_have_group(self, group: str) -> bool:
        core = self._core
        return group in core.tables.groups or core.config.live.auto_create_subscription_group

    async def open_name_service(self, undo: contextlib.AsyncExitStack) -> None:
        """Answer routes, if there is a name server, until *undo*. Raises StartError."""
        if self.name_service is not None:
            undo.push_async_callback(self.name_service.close)
            await self.ports.listen("namesrvPort", self.name_service.start_on)

    # The ports for clients.

    async def listen(self) -> None:
        """Admit clients to the remoting server. Raises StartError."""
        await self.ports.listen("listenPort", self.remoting.start_on)

    async def listen_again(self) -> None:
        """Admit clients, unless the server has inherited their port. Raises StartError."""
        if not self.remoting.listens_on(self.ports.number("listenPort")):
            self.ports.take_again("listenPort")
            await self.listen()

    async def open_other_ports(self, gate: LeaseGate | None) -> None:
        """Open the other ports of a broker that serves clients. Raises StartError.

        GrpcGateway explains *gate*.
        """
        config = self._core.config
        if config.grpc_port >= 0:
            await self._open_grpc(gate)
        wants_vips = config.vip_channel_enabled or self.master is not None
        if wants_vips and config.listen_port > VIP_PORTS_BELOW:
            await self._listen_for_vips(config.listen_port - VIP_PORTS_BELOW)
        if self.master is not None:
            await self.ports.listen("haListenPort", self.master.start_on)

    async def _open_grpc(self, gate: LeaseGate | None) -> None:
        # gRPC's modules are imported only if its port is enabled.
        from rockhopper.broker.gateways.grpc.gateway import open_gateway

        core = self._core
        self.ports.take_again("grpcPort")
        self.grpc = open_gateway(
            core.kernel,
            core.features,
            core.access,
            self._advertiser,
            self.ports.number("grpcPort"),
            self.connections_max,
            gate,
        )
        await self.ports.listen("grpcPort", self.grpc.start_on)

    async def close_grpc(self) -> None:
        """Close the gRPC port, if it is open."""
        grpc, self.grpc = self.grpc, None
        if grpc is not None:
            await grpc.close()

    async def _listen_for_vips(self, port: int) -> None:
        if self.remoting.listens_on(port):
            return
        try:
            self.ports.take_again("vipChannelEnabled")
            self.ports.bind("vipChannelEnabled", port)
            await self.ports.listen("vipChannelEnabled", self.remoting.start_on)
        except StartError as error:
            log.warning(
                "Java clients before 4.5.1 cannot send, and RocketMQ's slaves get no topics, "
                "because the port two below listenPort cannot be opened: free it, or set "
                "vipChannelEnabled=false",
                port=port,
                reason=str(error.__cause__),
            )

    def open_master(self, undo: contextlib.AsyncExitStack) -> None:
        """Make the store wait for slaves, if there may be any, until *undo*."""
        if self.master is not None:
            self.master.open()
            undo.push_async_callback(self._close_master)

    async def _close_master(self) -> None:
        master, self.master = self.master, None
        if master is not None:
            await master.close()

    async def stop_listening(self) -> None:
        """Accept no more connections for clients."""
        await self.remoting.stop_listening()
        if self.name_service is not None:
            await self.name_service.server.stop_listening()
        if self.grpc is not None:
            await self.grpc.stop_listening()

    # The connections.

    def accounts_changed(self) -> None:
        """Share the accounts with name servers soon."""
        self.announce_soon()

    def user_changed(self, name: str) -> None:
        """Close the connections of a user that was changed or deleted."""
        servers = [self.remoting] if hasattr(self, "remoting") else []
        if self.name_service is not None:
            servers.append(self.name_service.server)
        close_connections_of(name, servers)
        if self.grpc is not None:
            self.grpc.end_user(name)

    def connection_counts(self) -> dict[str, int]:
        """Return the number of open connections by port."""
        counts = {"broker": len(self.remoting.connections)}
        if self.name_service is not None:
            counts["nameserver"] = len(self.name_service.server.connections)
        if self.grpc is not None:
            counts["grpc"] = len(self.grpc.server.connections)
        return counts

    def tls_families(self) -> Iterator[Family]:
        """Return the metrics of TLS; none without it."""
        counts = {self.remoting.name: self.remoting.tls_count} if hasattr(self, "remoting") else {}
        if self.name_service is not None:
            counts[self.name_service.server.name] = self.name_service.server.tls_count
        if self.grpc is not None:
            counts[self.grpc.server.name] = self.grpc.server.tls_count
        return tls_families(self.ports.gate, counts)


def tls_families(gate: Gate, connections: Mapping[str, int]) -> Iterator[Family]:
    """Yield the metrics of *gate* if it has TLS; TLS *connections* are counted by port."""
    tls = gate.tls
    if tls is None:
        return
    opened = Family("gauge", "rockhopper_tls_connections", "Open TLS connections", "server")
    for name, count in connections.items():
        opened.add_sample(count, name)
    yield opened
    yield Family(
        "counter", "rockhopper_tls_handshakes_failed_total", "Failed TLS handshakes"
    ).add_sample(tls.handshakes.failures.count)
    yield Family(
        "gauge", "rockhopper_tls_handshakes_under_way", "TLS handshakes in progress or waiting"
    ).add_sample(tls.handshakes.count)
    yield Family(
        "gauge",
        "rockhopper_tls_certificate_expires_seconds",
        "Expiry time of the certificate, as a Unix time",
    ).add_sample(tls.expires_at_s)
