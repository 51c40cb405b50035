"""GrpcGateway: the gRPC gateway of one broker, built from the broker's parts."""

import asyncio
import socket
from collections.abc import Mapping

import structlog

from rockhopper.broker.feature import FeaturePart
from rockhopper.broker.gateways.grpc.activities.clients import ClientLifecycle
from rockhopper.broker.gateways.grpc.activities.producing import Producing
from rockhopper.broker.gateways.grpc.activities.pulling import Pulling
from rockhopper.broker.gateways.grpc.activities.routes import Routes, RouteSource
from rockhopper.broker.gateways.grpc.probing import probes
from rockhopper.broker.gateways.grpc.server import GrpcServer
from rockhopper.broker.gateways.grpc.service import GrpcService
from rockhopper.broker.gateways.grpc.sessions import Sessions
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.server.listening.gates import gate_with_tls
from rockhopper.broker.server.listening.listener import Gate
from rockhopper.broker.server.listening.tls import Tls, TlsError
from rockhopper.broker.settings.advertise import choose_fixed_host
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.users.access import AccessRules

log = structlog.get_logger("broker.grpc")

EXPIRE_INTERVAL_S = 5.0


class GrpcGateway:
    """The gRPC port, its clients, and the functions that serve them."""

    def __init__(
        self,
        kernel: Kernel,
        features: Mapping[str, FeaturePart],
        access: AccessRules,
        route_source: RouteSource,
        connections_max: int,
        gate: LeaseGate | None = None,
    ) -> None:
        """*gate* holds back replies that acknowledge state."""
        config, store = kernel.config, kernel.store
        topics, groups = kernel.tables.topics, kernel.tables.groups
        self.sessions = Sessions(kernel.clock.passed_ms)
        clients = ClientLifecycle(
            config, topics, groups, kernel.consumers, kernel.producers, self.sessions
        )
        producing = Producing(
            config,
            store,
            topics,
            kernel.sender,
            kernel.timer_recall,
            kernel.clock.wall_ms,
        )
        opened = {name: part.open_grpc(self.sessions) for name, part in features.items()}
        self.halves = {name: half for name, half in opened.items() if half is not None}
        """What serves the RPCs of each feature that has some, by its name."""
        service = GrpcService(
            Routes(topics, groups, route_source).rpcs()
            | clients.rpcs()
            | producing.rpcs()
            | Pulling(store, topics, groups, kernel.tables.offsets, kernel.puller).rpcs()
            | {name: rpc for half in self.halves.values() for name, rpc in half.rpcs.items()},
            access,
            producing,
            kernel.request_times,
            gate,
            self.halves.values(),
        )
        service.register_rpcs(probes(store.check_writable))
        self.server = GrpcServer(
            service,
            connections_max=connections_max,
            message_size_bytes_max=config.store.live.message_size_max_bytes,
        )
        self._config = config
        self._tables = store.opened.layout.config
        self._host = choose_fixed_host(config.bind_address, config.broker_ip1)
        self._tls: Tls | None = None
        self._expiry: asyncio.TimerHandle | None = None

    async def start_on(self, bound: socket.socket, gate: Gate) -> None:
        """Listen on a bound socket, which this gateway then owns.

        Most clients use TLS by default, and accept any certificate. So TLS is available here beside
        the plain protocol, even if the settings name no certificate.
        """
        common = gate.tls
        try:
            gate = gate_with_tls(gate, self._config.tls, self._tables, [self._host])
        except (TlsError, OSError) as error:
            log.warning(
                "no certificate: RocketMQ 5 clients must be configured not to use TLS",
                reason=str(error),
            )
        if gate.tls is not None and gate.tls is not common:
            self._tls = gate.tls
            self._tls.start()
        await self.server.start_on(bound, gate)
        self._expire_later()

    def _expire_later(self) -> None:
        self._expiry = asyncio.get_running_loop().call_later(EXPIRE_INTERVAL_S, self._expire)

    def _expire(self) -> None:
        self.sessions.expire()
        self._expire_later()

    def end_user(self, user: str) -> None:
        """Disconnect everything that acts for *user*."""
        self.sessions.end_user(user)
        for connection in list(self.server.connections):
            if connection.identity.user == user:
                connection.abort("its user was changed or deleted")

    async def stop_listening(self) -> None:
        """Accept no more connections; open calls are answered."""
        await self.server.stop_listening()

    async def close(self) -> None:
        """Close every connection."""
        if self._expiry is not None:
            self._expiry.cancel()
        for half in self.halves.values():
            half.close()
        if self._tls is not None:
            self._tls.close()
        await self.server.close()
        self.sessions.close()
