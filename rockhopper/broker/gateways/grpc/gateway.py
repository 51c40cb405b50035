"""GrpcGateway: the gRPC gateway of one broker, built from the broker's parts."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from rockhopper.broker.feature import FeaturePart
from rockhopper.broker.gateways.grpc.activities.clients import ClientLifecycle
from rockhopper.broker.gateways.grpc.activities.producing import Producing
from rockhopper.broker.gateways.grpc.activities.pulling import Pulling
from rockhopper.broker.gateways.grpc.activities.routes import BrokerQueues, Routes, RouteSource
from rockhopper.broker.gateways.grpc.call import Call, Rpc
from rockhopper.broker.gateways.grpc.server import GrpcServer
from rockhopper.broker.gateways.grpc.service import GrpcService
from rockhopper.broker.gateways.grpc.sessions import Sessions
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.server.listening.gates import gate_with_tls
from rockhopper.broker.server.listening.listener import Gate
from rockhopper.broker.server.listening.tls import Tls, TlsError
from rockhopper.broker.settings.advertise import Advertiser, choose_fixed_host
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.addresses import join_address, split_address
from rockhopper.protocol.grpc_v2.codes import GrpcStatus
from rockhopper.protocol.grpc_v2.probes import (
    CHECK,
    HEALTH,
    INFOS,
    NOT_SERVING,
    SERVICES,
    SERVING,
    files_of,
)

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


def probes(check_writable: Callable[[], None]) -> dict[str, Rpc]:
    """Return the RPCs of health checks and reflection, by path; they are open to every caller.

    They reveal only whether the broker accepts messages, and messaging.proto: no topic, no client.
    *check_writable* raises StoreError while no messages are accepted.
    """

    def check(call: Call, request: Any) -> None:
        if request.service and request.service not in SERVICES:
            call.connection.fail(call, GrpcStatus.NOT_FOUND, "unknown service")
            return
        try:
            check_writable()
            call.write(CHECK.reply(status=SERVING))
        except StoreError:
            call.write(CHECK.reply(status=NOT_SERVING))
        call.end_call()

    found = {f"/{HEALTH}/{CHECK.name}": Rpc(CHECK, check, None)}
    for service, method in INFOS.items():

        def describe(call: Call, request: Any, reply: Any = method.reply) -> None:
            call.write(_describe_services(reply(original_request=request), request))

        found[f"/{service}/{method.name}"] = Rpc(method, describe, None)
    return found


def _describe_services(reply: Any, request: Any) -> Any:
    reply.valid_host = request.host
    if request.HasField("list_services"):
        for name in SERVICES:
            reply.list_services_response.service.add(name=name)
        return reply
    try:
        if request.HasField("file_by_filename"):
            files = files_of(name=request.file_by_filename)
        else:
            files = files_of(symbol=request.file_containing_symbol)
    except KeyError:
        reply.error_response.error_code = int(GrpcStatus.NOT_FOUND)
        reply.error_response.error_message = "unknown service"
        return reply
    reply.file_descriptor_response.file_descriptor_proto.extend(files)
    return reply


def open_gateway(
    kernel: Kernel,
    features: Mapping[str, FeaturePart],
    access: AccessRules,
    advertiser: Advertiser,
    port: int,
    connections_max: int,
    gate: LeaseGate | None = None,
) -> GrpcGateway:
    """Return the gateway; *port* is its future port. GrpcGateway explains *gate*.

    The gRPC addresses of other brokers are computed: the distance between a broker's gRPC port and
    its listenPort must be the same on all brokers. This holds for the brokers of one process group
    (brokers=N), and for those of a cluster with the same settings.
    """
    own_name = kernel.config.broker_name

    async def brokers_of(topic: str, call: Call) -> list[BrokerQueues]:
        connection = call.connection
        own = advertiser.address_for(
            connection.addresses.peer_host, connection.addresses.local_host
        )
        own_grpc = advertiser.address_for(
            connection.addresses.peer_host, connection.addresses.local_host, port
        )
        found = []
        for each in await kernel.cluster.queues.brokers_of(topic, own):
            is_own = each.broker_name == own_name
            address = own_grpc if is_own else _derive_address(each.address, own, own_grpc)
            found.append(BrokerQueues(*each[:4], address, is_own))
        return found

    return GrpcGateway(kernel, features, access, brokers_of, connections_max, gate)


def _derive_address(address: str, own: str, own_grpc: str) -> str:
    """Return the gRPC address of the broker at *address*."""
    host, port = split_address(address)
    apart = (split_address(own_grpc)[1] or 0) - (split_address(own)[1] or 0)
    return join_address(host, (port or 0) + apart)
