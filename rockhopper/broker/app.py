"""Broker: all parts of one broker process, and the order in which they start and stop.

Start                                           Stop
    tables read (nothing is written yet)            ports take no more connections
    store: lock, recovery, catch-up                 parked pulls answered
    tables corrected by what the store holds        unregistered elsewhere
    ports: health, name server, broker             connections closed
    registration elsewhere, delayed messages        tables saved
                                                    store flushed and closed, last

A broker that follows another opens its store and its port as described in
replication/rocketmq/slave, and starts as above once it takes over.
"""

import asyncio
import contextlib
import dataclasses
import shutil
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import structlog

from rockhopper.broker.feature import Feature
from rockhopper.broker.features.bulk_pull.feature import BulkPullFeature
from rockhopper.broker.features.light_queues.feature import LightQueueFeature
from rockhopper.broker.features.pop.feature import PopFeature
from rockhopper.broker.features.priority.feature import PriorityFeature
from rockhopper.broker.features.request_reply.feature import RequestReplyFeature
from rockhopper.broker.features.sinks.feature import SinkFeature
from rockhopper.broker.features.static_topics.feature import StaticTopicFeature
from rockhopper.broker.features.transactions.feature import TransactionFeature
from rockhopper.broker.gateways.console.console import Console
from rockhopper.broker.hot.hot_pass import HotPass
from rockhopper.broker.kernel.families import Family
from rockhopper.broker.kernel.members.guarding import (
    accounts_of,
    guard_of,
    guard_with,
    tell_about_guard,
)
from rockhopper.broker.kernel.metrics.broker_metrics import MetricsPage
from rockhopper.broker.kernel.metrics.tls_metrics import tls_families
from rockhopper.broker.kernel.parts import BrokerCore
from rockhopper.broker.name_server.advertisement import ALONE, Advertisement
from rockhopper.broker.name_server.embedded import EmbeddedBroker
from rockhopper.broker.name_server.followed_master import FollowError
from rockhopper.broker.name_server.registration import Registrar
from rockhopper.broker.name_server.service import NameService
from rockhopper.broker.observing import log as logging
from rockhopper.broker.observing.stats import SAMPLE_INTERVAL_MS, BrokerStats
from rockhopper.broker.processor_table import build_table
from rockhopper.broker.replication.rocketmq.master.master import ClassicMaster
from rockhopper.broker.replication.rocketmq.master.processors import ClassicProcessors
from rockhopper.broker.replication.rocketmq.slave.follower import FORCE_HINT, SlaveFollower
from rockhopper.broker.replication.rocketmq.slave.processors import Takeover, slave_server
from rockhopper.broker.replication.roles.follower_reads import FollowerReads
from rockhopper.broker.replication.roles.joining import (
    JoinError,
    member_of,
    membership_of,
    see_alone,
)
from rockhopper.broker.replication.roles.passing_on import PassingOn
from rockhopper.broker.replication.roles.processors import ReplicaProcessors, following_server
from rockhopper.broker.replication.roles.set_member import SetMember, SwitchError
from rockhopper.broker.replication.roles.store_period import OpenAs
from rockhopper.broker.server.listening.outgoing import Outgoing
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.remoting.dispatcher import Dispatcher
from rockhopper.broker.server.remoting.gate import close_connections_of
from rockhopper.broker.server.remoting.handover import Handover, MasterFinder
from rockhopper.broker.server.remoting.health import HealthServer
from rockhopper.broker.server.remoting.http import Page
from rockhopper.broker.server.remoting.limits import compute_mapped_files_max, connection_shares
from rockhopper.broker.server.remoting.ports import Ports
from rockhopper.broker.server.remoting.server import Server
from rockhopper.broker.server.remoting.startup import (
    StartError,
    check_grpc_extra,
    store_errors_explained,
)
from rockhopper.broker.settings.advertise import Advertiser, choose_fixed_host
from rockhopper.broker.settings.broker_config import BrokerConfig, Role
from rockhopper.broker.settings.config_file import apply_live, build_config, check_keys
from rockhopper.broker.settings.live_settings import FlushDiskType
from rockhopper.broker.settings.setting_fields import format_value
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.disk import make_directories
from rockhopper.broker.store.files.errors import StoreError, StoreFailedError
from rockhopper.broker.store.files.lock_file import StoreLock
from rockhopper.broker.store.files.store_directories import check_single
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.store.safe_point import StoreListener
from rockhopper.broker.users.guard import Guard
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol import compiled
from rockhopper.protocol.addresses import host_bytes
from rockhopper.tasks import end_tasks, run_in_background

if TYPE_CHECKING:
    from rockhopper.broker.gateways.grpc.gateway import GrpcGateway

log = structlog.get_logger("broker")

ANNOUNCE_TIMEOUT_S = 3.0
LAST_FLUSH_TIMEOUT_S = 5.0
SUBSCRIPTIONS_SAVE_INTERVAL_MS = 1000
VIP_PORTS_BELOW = 2
# Half a second: a store whose files were removed must stop acknowledging within one second.
WATCH_INTERVAL_MS = 500

# Settings for tests: the broker starts fast and uses little disk space.
TEMPORARY_SETTINGS = {
    "listenPort": "0",
    "namesrvPort": "0",
    "httpPort": "0",
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 6000),
    "mapperFileSizeBatchConsumeQueue": str(46 * 1000),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
}


FEATURES: tuple[Feature, ...] = (
    PopFeature(),
    StaticTopicFeature(),
    RequestReplyFeature(),
    BulkPullFeature(),
    SinkFeature(),
    LightQueueFeature(),
    PriorityFeature(),
    TransactionFeature(),
)
"""Every feature, each behind those that it requires. ``make deletable`` takes one out."""


class Broker(BrokerCore, StoreListener):
    """A broker, by default with an embedded name server.

    Its parts are public, so that processors and tests can use them. Everything belongs to the event
    loop in which ``start`` was called.
    """

    access: Guard
    server: Server
    feature_list = FEATURES

    def __init__(self, config: BrokerConfig, http_socket: socket.socket | None = None) -> None:
        """*http_socket* is a bound socket for the HTTP port; it replaces httpPort."""
        if not structlog.is_configured():
            logging.configure("warning")
        self.config = config
        self.clock = BrokerClock()
        self.stats = BrokerStats(now_ms=self.clock.steady_ms)
        self.metrics_page = MetricsPage()
        self.access = guard_of(config)
        self.access.authenticator.on_change.append(self._end_user)
        self.access.on_change.append(self.advertisement_changed)
        self.name_service: NameService | None = None
        self.grpc: GrpcGateway | None = None
        """None unless the broker serves RocketMQ 5 clients."""
        self.failed = asyncio.Event()
        """Set when the store has failed: stop the process, with an exit code for failure."""
        self._ports = Ports(config.bind_address)
        if http_socket is not None:
            self._ports.adopt("httpPort", http_socket)
        self._registration: Registrar | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._undo = contextlib.AsyncExitStack()
        self._instance = uuid.uuid4().hex
        self._advertiser = Advertiser((), broker_ip1="", port=0, route_table="")
        self._is_ready = False
        self._settings_at_start: BrokerConfig | None = None
        """The settings to which ``purge`` returns; None unless the broker is temporary."""
        self.follower: SlaveFollower | None = None
        """None unless this broker follows another."""
        self.member: SetMember | None = None
        """None unless this broker is a replica of a set."""
        self._passing_on = PassingOn(
            Outgoing(config.tls), config.auth.inner, config.replication.splice_ms
        )
        self.master: ClassicMaster | None = None
        """None unless RocketMQ's slaves may follow this broker."""
        self._shares = 0, 0
        self._store_host = b""
        self.takeover = Takeover(self)

    @classmethod
    def temporary(cls, settings: Mapping[str, object] | None = None) -> "Broker":
        """A broker for tests: free ports, and a store that is removed at the end.

        *settings* have RocketMQ's names: ``{"autoCreateTopic": "off"}``.

        Raises:
            SettingError: a setting does not exist, or has an invalid value.
        """
        texts = {key: format_value(value) for key, value in (settings or {}).items()}
        check_keys(texts)
        broker = cls(build_config(TEMPORARY_SETTINGS | texts))
        broker._settings_at_start = build_config(TEMPORARY_SETTINGS | texts)
        return broker

    async def __aenter__(self) -> "Broker":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """host:port of the broker, as this machine reaches it."""
        return self._ports.address("listenPort")

    @property
    def nameserver(self) -> str:
        """host:port of the name server, as this machine reaches it."""
        return self._ports.address("namesrvPort") or ";".join(self.config.namesrv_addr)

    @property
    def grpc_address(self) -> str:
        """host:port for gRPC clients; empty if grpcPort is -1."""
        return self._ports.address("grpcPort")

    @property
    def http_address(self) -> str:
        """host:port of /healthz, /readyz, /metrics and the console; empty if httpPort is -1."""
        return self._ports.address("httpPort")

    def facts(self) -> dict[str, str]:
        """The fields of the first log lines."""
        return {
            "broker": self.address,
            "nameserver": self.nameserver or "none",
            "http": self.http_address or "none",
            **self._ports.listening(),
            **({"grpc": self.grpc_address} if self.grpc_address else {}),
            "store": str(self.config.store.root),
            "compiled": compiled.extent(),
        }

    def outcome(self) -> dict[str, int]:
        """The end of the store's log, after ``stop``."""
        return {"log_end": self.store.safe_point.high_watermark}

    def prepare(self) -> None:
        """Bind the ports, so that ``addresses`` are known, and check that the store is not in use.

        The broker serves no client yet.

        Raises:
            StartError: a port or the store is not available.
        """
        config = self.config
        self._ports.bind("httpPort", config.http_port)
        if config.role is Role.ALL:
            self._ports.bind("namesrvPort", config.namesrv_port)
        self._ports.bind("listenPort", config.listen_port)
        if config.grpc_port >= 0:
            check_grpc_extra()
            self._ports.bind("grpcPort", config.grpc_port)
        if config.replication.serves_slaves:
            self._ports.bind("haListenPort", config.replication.ha_port(config.listen_port))
        if self._settings_at_start is None:
            layout = StoreLayout.from_config(config.store)
            with store_errors_explained(config.store.root):
                check_single(config.store)
                make_directories(layout.root)
                StoreLock(layout.root, layout.lock, layout.abort).release()

    async def start(self) -> None:
        """Open the store and the ports; the broker serves every request when this returns.

        Raises:
            StartError: the start failed; the message says what to do. Nothing is left open.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self._undo.callback(self._ports.close)
        self.prepare()
        tell_about_guard(self.config)
        if self._settings_at_start is not None:
            self._use_temporary_directory()
        config = self.config
        host = choose_fixed_host(config.bind_address, config.broker_ip1)
        self._undo.callback(self._ports.close_gate)
        self._ports.open_gate(config.tls, StoreLayout.from_config(config.store), [host])
        store_host = self._store_host = host_bytes(host, self._ports.number("listenPort"))
        broker_share, name_share = self._shares = connection_shares(
            with_store=True,
            with_name_service=config.role is Role.ALL,
            ports=1 if config.grpc_port < 0 else 2,
        )
        if await self._follow(store_host, broker_share):
            return
        if config.replication.is_replica:
            await self._join_set(host)
            return
        with store_errors_explained(config.store.root):
            see_alone(config)
            self.load_tables()
            if config.role is Role.ALL:
                self.name_service = self._make_name_service(name_share)
            self.open_store(store_host, mapped_files_max=compute_mapped_files_max())
        self._build(store_host)
        if config.replication.serves_slaves:
            self.master = ClassicMaster(self.store, config)
        self._make_server(store_host, broker_share)
        await self.store.start()
        self._undo.push_async_callback(self.store.close)
        if self.master is not None:
            self.master.open()
            self._undo.push_async_callback(self._let_slaves_go)
        self._undo.push_async_callback(self.parts.close)
        with store_errors_explained(config.store.root):
            await self.parts.open()
        await self._open_ports()
        self._is_ready = True

    def load_tables(self) -> None:
        """Load as BrokerCore does, and guard the ports by users. Raises SettingError as well."""
        super().load_tables()
        guard_with(self.access, self.tables.users, self.tables.acls, self.config)

    def _end_user(self, name: str) -> None:
        servers = [self.server] if hasattr(self, "server") else []
        if self.name_service is not None:
            servers.append(self.name_service.server)
        close_connections_of(name, servers)
        if self.grpc is not None:
            self.grpc.end_user(name)

    def _build(self, store_host: bytes) -> None:
        self.build(
            store_host,
            name_service=self.name_service,
            call_later=asyncio.get_running_loop().call_later,
        )
        self.access.retry_owners = self.kernel.retry_owners

    async def _follow(self, store_host: bytes, connections_max: int) -> bool:
        """Follow if configured; return False if the store is this broker's own, or becomes it here.

        Raises:
            StartError: the broker cannot follow, or must not.
        """
        following = self.config.following
        follower = None if self.takeover.has_begun else SlaveFollower.make_if_wanted(self)
        if follower is None:
            return False
        self._undo.push_async_callback(self._stop_following)
        try:
            with store_errors_explained(self.config.store.root):
                if following.follow_master or not following.force_takeover:
                    self.follower = follower
                    await follower.open(store_host, compute_mapped_files_max())
                if not following.follow_master:
                    await follower.take_over(force=following.force_takeover)
        except FollowError as error:
            if following.follow_master:
                raise StartError(str(error)) from error
            raise StartError(f"this store follows another broker. {error}; {FORCE_HINT}") from error
        if following.follow_master:
            await self._serve_as_slave(follower, connections_max)
            return True
        self.follower = None
        return False

    async def _serve_as_slave(self, follower: SlaveFollower, connections_max: int) -> None:
        self.server = slave_server(follower, self.takeover, self.access, connections_max)
        self.store.listeners.add(self)
        self._undo.push_async_callback(self.server.close)
        self._every(WATCH_INTERVAL_MS, self.store.look_after_files)
        await self._open_health_port()
        await self._ports.listen("listenPort", self.server.start_on)
        self._is_ready = True

    async def _join_set(self, host: str) -> None:
        """Start as a replica of a set; from now on ``member`` decides which ports are open.

        Raises:
            StartError: its settings, its store or its ports cannot be used.
        """
        config, port = self.config, self._ports.number("listenPort")
        self._advertiser = Advertiser(config.advertise, broker_ip1=config.broker_ip1, port=port)
        address = self._advertiser.address_for("0.0.0.0", host)
        open_as = OpenAs(self._store_host, compute_mapped_files_max())
        try:
            self.member = member_of(self, self, open_as)
            membership = membership_of(config, port, address, host, self._ports.gate)
        except JoinError as error:
            raise StartError(str(error)) from error
        self._undo.push_async_callback(self._leave_set)
        await self._open_health_port()
        with store_errors_explained(config.store.root):
            await self.member.open(membership)
        self._is_ready = True

    async def _leave_set(self) -> None:
        self._passing_on.stop()
        self._passing_on.send_away()
        if self.member is not None:
            await self.member.close()
            self.member = None

    def advertisement(self) -> Advertisement:
        """Return the facts about this broker that name servers publish."""
        if self.member is not None:
            return self.member.advertisement()
        ha_port = self._ports.number("haListenPort")
        return Advertisement(slaves_port=ha_port) if ha_port else ALONE

    # What a replica opens for its clients, from role to role: see ClientPorts.

    def load_names(self) -> None:
        """See ClientPorts."""
        if self.config.role is Role.ALL:
            self.name_service = self._make_name_service(self._shares[1])

    async def open_names(self, undo: contextlib.AsyncExitStack) -> None:
        """See ClientPorts."""
        if self.name_service is not None:
            self._ports.take_again("namesrvPort")
            undo.push_async_callback(self.name_service.close)
            await self._ports.listen("namesrvPort", self.name_service.start_on)
        registration = self._registration = self._make_registration()
        undo.push_async_callback(registration.stop)
        registration.start()

    async def refuse(self, undo: contextlib.AsyncExitStack) -> None:
        """See ClientPorts."""
        assert self.member is not None
        reads = FollowerReads(self) if self.config.live.slave_read else None
        if reads is not None:
            undo.callback(reads.stop)
        processors = ReplicaProcessors(self.member, self.store, reads)
        self.server = following_server(processors, self.access, self._shares[0])
        self._passing_on.begin_to_refuse(self.server, self._replica_codes())
        self.store.listeners.add(self)
        undo.callback(self._cancel_timers)
        self._every(WATCH_INTERVAL_MS, self.store.look_after_files)
        undo.push_async_callback(self._close_server)
        self._passing_on.let_in_by(self.server)
        if not self.server.listens_on(self._ports.number("listenPort")):
            self._ports.take_again("listenPort")
            await self._ports.listen("listenPort", self.server.start_on)

    async def _close_server(self) -> None:
        await self.server.close()

    async def build_parts(self) -> None:
        """See ClientPorts."""
        self._passing_on.recall(self.server)
        await self.server.close()
        self._cancel_timers()
        self._build(self._store_host)

    async def serve(self, undo: contextlib.AsyncExitStack, begin: Callable[[], None]) -> None:
        """See ClientPorts."""
        self._make_server(self._store_host, self._shares[0])
        undo.push_async_callback(self.parts.close)
        await self.parts.open()
        begin()
        await self._open_broker_port(undo)

    def hold_clients(self) -> Handover:
        """See ClientPorts."""
        return self._passing_on.hold(self.server)

    async def pass_on(self, handed_off: Handover, finder: MasterFinder) -> None:
        """See ClientPorts."""
        await self._passing_on.pass_on(handed_off, finder, self._replica_codes())

    def _replica_codes(self) -> frozenset[int]:
        if self.member is None:
            return frozenset()
        return frozenset(ReplicaProcessors(self.member, self.store).rows())

    def advertisement_changed(self) -> None:
        """See ClientPorts."""
        if self._registration is not None:
            self._registration.announce_soon()

    def cannot_go_on(self) -> None:
        """See ClientPorts."""
        self.failed.set()

    async def _let_slaves_go(self) -> None:
        master, self.master = self.master, None
        if master is not None:
            await master.close()

    async def _stop_following(self) -> None:
        follower, self.follower = self.follower, None
        if follower is not None:
            await follower.close()

    def _use_temporary_directory(self) -> None:
        root = Path(tempfile.mkdtemp(prefix="rockhopper-"))
        self._undo.callback(shutil.rmtree, root, ignore_errors=True)
        store = dataclasses.replace(self.config.store, root=root)
        self.config = dataclasses.replace(self.config, store=store)

    def _make_server(self, store_host: bytes, connections_max: int) -> None:
        table = build_table(self)
        if self.master is not None:
            ha_port = self._ports.number("haListenPort")
            classic = ClassicProcessors(self.master, self.store, self._address_for, ha_port)
            table |= classic.rows(table)
        if self.member is not None:
            table = ReplicaProcessors(self.member, self.store).leading_rows(table)
        dispatcher = Dispatcher(table, self.access, self.kernel.request_times, self._lease_gate)
        hot_pass = HotPass(self.kernel, self.features.values(), dispatcher)
        self.server = Server(
            "broker", hot_pass, connections_max=connections_max, access=self.access
        )
        self.store.listeners.add(self)

    @property
    def _lease_gate(self) -> LeaseGate | None:
        return None if self.member is None else self.member.gate

    def _make_name_service(self, connections_max: int) -> NameService:
        config = self.config
        service = NameService(
            config,
            access=self.access,
            connections_max=connections_max,
            now_ms=self.clock.steady_ms,
            local=EmbeddedBroker(
                config.cluster_name,
                config.broker_name,
                self._instance,
                topics=self.tables.topics,
                permission=lambda: self.config.live.broker_permission,
                address_for=self._address_for,
                may_have_group=self._may_have_group,
                advertisement=self.advertisement,
            ),
        )
        service.load()
        self.tables.include_names(service.values)
        return service

    async def _open_ports(self) -> None:
        """Open the ports, in the order health, name server, broker."""
        config, port = self.config, self._ports.number("listenPort")
        self._advertiser = Advertiser(config.advertise, broker_ip1=config.broker_ip1, port=port)
        await self._open_health_port()
        if self.name_service is not None:
            self._undo.push_async_callback(self.name_service.close)
            await self._ports.listen("namesrvPort", self.name_service.start_on)
        registration = self._registration = self._make_registration()
        await self._open_broker_port(self._undo)
        registration.start()

    def _make_registration(self) -> Registrar:
        port, replication = self._ports.number("listenPort"), self.config.replication
        return Registrar(
            self.config,
            self.tables.topics,
            self._advertiser,
            instance=self._instance,
            ha_port=self._ports.number("haListenPort") or replication.ha_port(port),
            advertisement=self.advertisement,
            accounts=self._accounts if self.config.auth.authentication_enabled else None,
        )

    def _accounts(self) -> bytes:
        return accounts_of(self.tables.users, self.tables.acls)

    async def _open_broker_port(self, undo: contextlib.AsyncExitStack) -> None:
        """Start the parts and admit clients, until *undo*."""
        config = self.config
        self.parts.start()
        continues = self.member is not None and self.member.continues_history
        self.tables.catalog.history.start_run(self.kernel.log_end_at_start, continues=continues)
        self._every(SAMPLE_INTERVAL_MS, self.parts.expire)
        self._take_samples(undo)
        self._every(WATCH_INTERVAL_MS, self.store.look_after_files)
        self.metrics_page.start()
        undo.callback(self.metrics_page.stop)
        self._every(config.offsets_flush_interval_ms, self.tables.offsets.save_soon)
        self._every(SUBSCRIPTIONS_SAVE_INTERVAL_MS, self.tables.subscriptions.save_soon)
        if config.grpc_port >= 0:
            undo.push_async_callback(self._close_grpc)
        undo.push_async_callback(self._stop_serving)
        if not self._passing_on.come_home(self.server):
            await self._ports.listen("listenPort", self.server.start_on)
        if config.grpc_port >= 0:
            await self._open_grpc()
        wants_vips = config.vip_channel_enabled or self.master is not None
        if wants_vips and config.listen_port > VIP_PORTS_BELOW:
            await self._listen_for_vips(config.listen_port - VIP_PORTS_BELOW)
        if self.master is not None:
            await self._ports.listen("haListenPort", self.master.start_on)

    async def _open_grpc(self) -> None:
        # gRPC's modules are imported only if its port is enabled.
        from rockhopper.broker.gateways.grpc.opening import open_gateway

        self._ports.take_again("grpcPort")
        port = self._ports.number("grpcPort")
        self.grpc = open_gateway(
            self.kernel,
            self.features,
            self.access,
            self._advertiser,
            port,
            self._shares[0],
            self._lease_gate,
        )
        await self._ports.listen("grpcPort", self.grpc.start_on)

    async def _close_grpc(self) -> None:
        grpc, self.grpc = self.grpc, None
        if grpc is not None:
            await grpc.close()

    async def _open_health_port(self) -> None:
        console = Console(
            self.config, self.access, lambda: self.nameserver, self._ports.certificate
        )
        self._undo.push_async_callback(console.close)
        health = HealthServer(
            self.why_not_healthy,
            self.why_not_ready,
            self.metrics,
            self.access,
            console.applications(),
            console.knows_name,
        )
        self._undo.push_async_callback(health.close)
        await self._ports.listen("httpPort", health.start_on)

    async def _listen_for_vips(self, port: int) -> None:
        if self.server.listens_on(port):
            return
        try:
            self._ports.take_again("vipChannelEnabled")
            self._ports.bind("vipChannelEnabled", port)
            await self._ports.listen("vipChannelEnabled", self.server.start_on)
        except StartError as error:
            log.warning(
                "Java clients before 4.5.1 cannot send, and RocketMQ's slaves get no topics, "
                "because the port two below listenPort cannot be opened: free it, or set "
                "vipChannelEnabled=false",
                port=port,
                reason=str(error.__cause__),
            )

    async def stop(self) -> None:
        """Answer waiting requests, save everything and close; a second call does nothing.

        A replica that leads first hands over, and forwards its clients for haDrainTime or until
        ``hurry``.

        Raises:
            OSError: a table could not be saved. Everything is closed nevertheless.
        """
        self._is_ready = False
        if self.member is not None:
            await self._drain(self.member)
        self._cancel_timers()
        undo, self._undo = self._undo, contextlib.AsyncExitStack()
        await undo.aclose()

    def hurry(self) -> None:
        """Make ``stop`` wait for no more clients."""
        self._passing_on.hurry()

    async def _drain(self, member: SetMember) -> None:
        if not member.is_serving:
            return
        try:
            successor_id = await member.switch(None)
        except SwitchError as error:
            log.warning("stopping without a handover", reason=str(error))
            return
        log.info("handing clients over before stopping", id=successor_id)
        await self._passing_on.drain(self.config.replication.drain_ms / 1000)

    async def _stop_serving(self) -> None:
        self.server.stop_listening()
        if self.name_service is not None:
            self.name_service.server.stop_listening()
        if self.grpc is not None:
            self.grpc.stop_listening()
        self.parts.stop()
        if self._registration is not None:
            await self._registration.stop()
        if self.store.failure is None and self.member is None:
            # Sends that wait for the disk get their answers before their connections go.
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(LAST_FLUSH_TIMEOUT_S):
                    await self.store.safe_point.wait(self.store.log.written_offset)
        await self.server.close()

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _every(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Call *action* again and again until the broker stops."""
        loop = asyncio.get_running_loop()
        index = len(self._timers)

        def run() -> None:
            self._timers[index] = loop.call_later(interval_ms / 1000, run)
            action()

        self._timers.append(loop.call_later(interval_ms / 1000, run))

    def _take_samples(self, undo: contextlib.AsyncExitStack) -> None:
        sampling: list[asyncio.Task[None]] = []

        def sample() -> None:
            sampling[:] = [run_in_background(self.sample(), "sampling")]

        self._every(SAMPLE_INTERVAL_MS, sample)
        undo.callback(lambda: end_tasks(sampling))

    def store_failed(self, error: StoreFailedError) -> None:
        """See StoreListener."""
        if self.store.is_lost:
            self.tables.stop_saving()
        self.failed.set()

    def _may_have_group(self, group: str) -> bool:
        return group in self.tables.groups or self.config.live.auto_create_subscription_group

    def _address_for(self, connection: Peer) -> str:
        return self._advertiser.address_for(
            connection.addresses.peer_host, connection.addresses.local_host
        )

    async def announce(self) -> None:
        """Return when other name servers have the current topics, or are unreachable."""
        if self._registration is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANNOUNCE_TIMEOUT_S):
                    await self._registration.wait_until_announced()

    def change_config(self, config: BrokerConfig) -> None:
        """Apply the settings of *config* that may change at runtime."""
        before = _known_to_the_hot_path(self.config)
        apply_live(self.config, config)
        self.store.safe_point.flush_each(config.store.flush_disk_type is FlushDiskType.SYNC)
        delayed = self.kernel.scheduled.delayed
        if delayed.levels.change(config.live.delay_levels):
            delayed.levels_changed()
        self.tables.topics.seed_system_topics()
        if before != _known_to_the_hot_path(self.config):
            # Routes and the hot path cache values computed for each topic.
            self.tables.topics.touch()

    def purge(self) -> None:
        """Empty a temporary broker for the next test; connections stay open.

        Deletes topics, groups, offsets, messages and changed settings.

        Raises:
            RuntimeError: the broker is not temporary, or is not running.
        """
        if self._settings_at_start is None:
            raise RuntimeError(
                "purge() deletes everything that a broker stores, so only Broker.temporary() has "
                "it; to empty one topic, use `rockhopper topic purge`"
            )
        if not self._is_ready:
            raise RuntimeError("this broker is not running: start it before purge()")
        self.change_config(self._settings_at_start)
        if self.name_service is not None:
            self.name_service.values.clear()
            self.name_service.routes.set_write_wiped(self.config.broker_name, wiped=False)
        self.parts.purge()

    def why_not_healthy(self) -> str | None:
        """Why this process should be restarted; None if it is healthy."""
        failure = self.store.failure
        return str(failure) if failure is not None else None

    def why_not_ready(self) -> str | None:
        """Why the broker accepts no messages now; None if it does."""
        if not self._is_ready:
            return "the broker is starting or stopping"
        if self.follower is not None:
            return self.follower.state()
        if self.member is not None and (why := self.member.why_not_ready()):
            return why
        if self.member is not None and not self.member.is_serving:
            return None
        try:
            self.store.check_writable()
        except StoreError as error:
            return str(error)
        return None

    async def metrics(self) -> Page:
        """The page that Prometheus scrapes."""
        if self.follower is not None:
            return Page(self.follower.metrics())
        is_ready = self.why_not_ready() is None
        of_set = () if self.member is None else tuple(self.member.metrics())
        others = chain(of_set, self._tls_families())
        if self.member is not None and not self.member.is_serving:
            return await self.metrics_page.render_following(self.config, others, is_ready=is_ready)
        return await self.metrics_page.render_serving(
            self.kernel,
            self.features.values(),
            self.connection_counts(),
            others,
            is_ready=is_ready,
        )

    def _tls_families(self) -> Iterator[Family]:
        counts = {self.server.name: self.server.tls_count} if hasattr(self, "server") else {}
        if self.name_service is not None:
            counts[self.name_service.server.name] = self.name_service.server.tls_count
        if self.grpc is not None:
            counts[self.grpc.server.name] = self.grpc.server.tls_count
        return tls_families(self._ports.gate, counts)

    def connection_counts(self) -> dict[str, int]:
        """Open connections by port."""
        counts = {"broker": len(self.server.connections)}
        if self.name_service is not None:
            counts["nameserver"] = len(self.name_service.server.connections)
        if self.grpc is not None:
            counts["grpc"] = len(self.grpc.server.connections)
        return counts


def _known_to_the_hot_path(config: BrokerConfig) -> tuple[int, int, int, bool, bool]:
    return (
        config.live.broker_permission,
        config.live.accept_send_from_ms,
        config.store.live.message_size_max_bytes,
        config.live.reject_transaction_message,
        config.live.property_filter,
    )
