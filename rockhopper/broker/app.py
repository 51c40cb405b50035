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
import socket
from collections.abc import Callable, Mapping
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
from rockhopper.broker.kernel.members.guarding import (
    guard_of,
    guard_with,
    tell_about_guard,
)
from rockhopper.broker.kernel.metrics.broker_metrics import MetricsPage
from rockhopper.broker.kernel.parts import BrokerCore
from rockhopper.broker.name_server.advertisement import ALONE, Advertisement
from rockhopper.broker.name_server.followed_master import FollowError
from rockhopper.broker.observing import log as logging
from rockhopper.broker.observing.stats import SAMPLE_INTERVAL_MS, BrokerStats
from rockhopper.broker.processor_table import build_table
from rockhopper.broker.replication.election.leaving import see_alone
from rockhopper.broker.replication.rocketmq.slave.following_file import find_master
from rockhopper.broker.replication.roles.passing_on import PassingOn
from rockhopper.broker.server.listening.outgoing import Outgoing
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.loop.garbage import pause_collections
from rockhopper.broker.server.remoting.dispatcher import Dispatcher
from rockhopper.broker.server.remoting.handover import Handover, MasterFinder
from rockhopper.broker.server.remoting.health import HealthServer
from rockhopper.broker.server.remoting.http import Page
from rockhopper.broker.server.remoting.limits import compute_mapped_files_max
from rockhopper.broker.server.remoting.server import Server
from rockhopper.broker.server.remoting.startup import StartError, store_errors_explained
from rockhopper.broker.servers import Servers
from rockhopper.broker.settings.broker_config import BrokerConfig
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
from rockhopper.protocol import compiled
from rockhopper.tasks import end_tasks, run_in_background

if TYPE_CHECKING:
    # A broker that is neither a replica, nor a master or slave of RocketMQ's, imports none of it.
    from rockhopper.broker.replication.rocketmq.slave.follower import SlaveFollower
    from rockhopper.broker.replication.rocketmq.slave.processors import Takeover
    from rockhopper.broker.replication.roles.set_member import SetMember

log = structlog.get_logger("broker")

LAST_FLUSH_TIMEOUT_S = 5.0
SUBSCRIPTIONS_SAVE_INTERVAL_MS = 1000
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
    feature_list = FEATURES
    takeover: "Takeover"
    """The way to end following; it exists once this broker has followed."""

    def __init__(self, config: BrokerConfig, http_socket: socket.socket | None = None) -> None:
        """*http_socket* is a bound socket for the HTTP port; it replaces httpPort."""
        if not structlog.is_configured():
            logging.configure("warning")
        self.config = config
        self.clock = BrokerClock()
        self.stats = BrokerStats(now_ms=self.clock.steady_ms)
        self.metrics_page = MetricsPage()
        self.access = guard_of(config)
        self.servers = Servers(self, self.advertisement, http_socket)
        self.access.listeners.append(self.servers)
        self.failed = asyncio.Event()
        """Set when the store has failed: stop the process, with an exit code for failure."""
        self._timers: list[asyncio.TimerHandle] = []
        self._undo = contextlib.AsyncExitStack()
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
        return self.servers.ports.address("listenPort")

    @property
    def nameserver(self) -> str:
        """host:port of the name server, as this machine reaches it."""
        return self.servers.ports.address("namesrvPort") or ";".join(self.config.namesrv_addr)

    @property
    def grpc_address(self) -> str:
        """host:port for gRPC clients; empty if grpcPort is -1."""
        return self.servers.ports.address("grpcPort")

    @property
    def http_address(self) -> str:
        """host:port of /healthz, /readyz, /metrics and the console; empty if httpPort is -1."""
        return self.servers.ports.address("httpPort")

    def facts(self) -> dict[str, str]:
        """The fields of the first log lines."""
        return {
            "broker": self.address,
            "nameserver": self.nameserver or "none",
            "http": self.http_address or "none",
            **self.servers.ports.listening(),
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
        self.servers.bind()
        if self._settings_at_start is None:
            layout = StoreLayout.from_config(config.store)
            with store_errors_explained(config.store.root):
                check_single(config.store)
                make_directories(layout.root)
                StoreLock(layout.root, layout.lock, layout.abort, is_check=True).release()

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
        self._undo.callback(self.servers.ports.close)
        self.prepare()
        tell_about_guard(self.config)
        if self._settings_at_start is not None:
            self._use_temporary_directory()
        config = self.config
        self._undo.callback(self.servers.ports.close_gate)
        self.servers.open_gate()
        if await self._follow():
            return
        if config.replication.is_replica:
            await self._join_set()
            return
        with store_errors_explained(config.store.root), pause_collections():
            see_alone(config)
            self.load_tables()
            self.servers.load_name_service()
            self.open_store(self.servers.store_host, mapped_files_max=compute_mapped_files_max())
        self._build()
        if config.replication.serves_slaves:
            from rockhopper.broker.replication.rocketmq.master.master import ClassicMaster

            self.servers.master = ClassicMaster(self.store, config)
        self._make_server()
        await self.store.start()
        self._undo.push_async_callback(self.store.close)
        self.servers.open_master(self._undo)
        self._undo.push_async_callback(self.parts.close)
        with store_errors_explained(config.store.root):
            await self.parts.open()
        await self._open_ports()
        self._is_ready = True

    def load_tables(self) -> None:
        """Load as BrokerCore does, and guard the ports by users. Raises SettingError as well."""
        super().load_tables()
        guard_with(self.access, self.tables.users, self.tables.acls, self.config)

    def _build(self) -> None:
        self.build(
            self.servers.store_host,
            name_service=self.servers.name_service,
            call_later=asyncio.get_running_loop().call_later,
        )
        self.access.retry_owners = self.kernel.retry_owners

    async def _follow(self) -> bool:
        """Follow if configured; return False if the store is this broker's own, or becomes it here.

        Raises:
            StartError: the broker cannot follow, or must not.
        """
        following = self.config.following
        master = find_master(self.config)
        if master is None:
            return False
        from rockhopper.broker.replication.rocketmq.slave.follower import FORCE_HINT, SlaveFollower
        from rockhopper.broker.replication.rocketmq.slave.processors import Takeover

        if not hasattr(self, "takeover"):
            self.takeover = Takeover(self)
        if self.takeover.has_begun:
            return False
        follower = SlaveFollower(self, master)
        self._undo.push_async_callback(self._stop_following)
        try:
            with store_errors_explained(self.config.store.root):
                if following.follow_master or not following.force_takeover:
                    self.follower = follower
                    await follower.open(self.servers.store_host, compute_mapped_files_max())
                if not following.follow_master:
                    await follower.take_over(force=following.force_takeover)
        except FollowError as error:
            if following.follow_master:
                raise StartError(str(error)) from error
            raise StartError(f"this store follows another broker. {error}; {FORCE_HINT}") from error
        if following.follow_master:
            await self._serve_as_slave(follower)
            return True
        self.follower = None
        return False

    async def _serve_as_slave(self, follower: "SlaveFollower") -> None:
        from rockhopper.broker.replication.rocketmq.slave.processors import slave_server

        servers = self.servers
        servers.remoting = slave_server(
            follower, self.takeover, self.access, servers.connections_max
        )
        self.store.listeners.add(self)
        self._undo.push_async_callback(servers.remoting.close)
        self._every(WATCH_INTERVAL_MS, self.store.look_after_files)
        await self._open_health_port()
        await servers.listen()
        self._is_ready = True

    async def _join_set(self) -> None:
        """Start as a replica of a set; from now on ``member`` decides which ports are open.

        Raises:
            StartError: its settings, its store or its ports cannot be used.
        """
        from rockhopper.broker.replication.roles.joining import (
            JoinError,
            member_of,
            membership_of,
        )
        from rockhopper.broker.replication.roles.store_period import OpenAs

        config, servers = self.config, self.servers
        servers.advertise()
        open_as = OpenAs(servers.store_host, compute_mapped_files_max())
        try:
            self.member = member_of(self, self, open_as)
            membership = membership_of(
                config,
                servers.ports.number("listenPort"),
                servers.own_address,
                servers.host,
                servers.ports.gate,
            )
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
        ha_port = self.servers.ports.number("haListenPort")
        return Advertisement(slaves_port=ha_port) if ha_port else ALONE

    # What a replica opens for its clients, from role to role: see ClientPorts.

    def load_names(self) -> None:
        """See ClientPorts."""
        self.servers.load_name_service()

    async def open_names(self, undo: contextlib.AsyncExitStack) -> None:
        """See ClientPorts."""
        self.servers.ports.take_again("namesrvPort")
        await self.servers.open_name_service(undo)
        registrar = self.servers.make_registrar()
        undo.push_async_callback(registrar.stop)
        registrar.start()

    async def refuse(self, undo: contextlib.AsyncExitStack) -> None:
        """See ClientPorts."""
        from rockhopper.broker.replication.roles.follower_reads import FollowerReads
        from rockhopper.broker.replication.roles.processors import (
            ReplicaProcessors,
            following_server,
        )

        assert self.member is not None
        reads = FollowerReads(self) if self.config.pull.slave_read else None
        if reads is not None:
            undo.callback(reads.stop)
        processors, servers = ReplicaProcessors(self.member, self.store, reads), self.servers
        servers.remoting = following_server(processors, self.access, servers.connections_max)
        self._passing_on.begin_to_refuse(servers.remoting, self._replica_codes())
        self.store.listeners.add(self)
        undo.callback(self._cancel_timers)
        self._every(WATCH_INTERVAL_MS, self.store.look_after_files)
        undo.push_async_callback(self._close_server)
        self._passing_on.let_in_by(servers.remoting)
        await servers.listen_again()

    async def _close_server(self) -> None:
        await self.servers.remoting.close()

    async def build_parts(self) -> None:
        """See ClientPorts."""
        self._passing_on.recall(self.servers.remoting)
        await self.servers.remoting.close()
        self._cancel_timers()
        self._build()

    async def serve(self, undo: contextlib.AsyncExitStack, begin: Callable[[], None]) -> None:
        """See ClientPorts."""
        self._make_server()
        undo.push_async_callback(self.parts.close)
        await self.parts.open()
        begin()
        await self._open_broker_port(undo)

    def hold_clients(self) -> Handover:
        """See ClientPorts."""
        return self._passing_on.hold(self.servers.remoting)

    async def pass_on(self, handed_off: Handover, finder: MasterFinder) -> None:
        """See ClientPorts."""
        await self._passing_on.pass_on(handed_off, finder, self._replica_codes())

    def _replica_codes(self) -> frozenset[int]:
        if self.member is None:
            return frozenset()
        from rockhopper.broker.replication.roles.processors import ReplicaProcessors

        return frozenset(ReplicaProcessors(self.member, self.store).rows())

    def advertisement_changed(self) -> None:
        """See ClientPorts."""
        self.servers.announce_soon()

    def cannot_go_on(self) -> None:
        """See ClientPorts."""
        self.failed.set()

    async def _stop_following(self) -> None:
        follower, self.follower = self.follower, None
        if follower is not None:
            await follower.close()

    def _use_temporary_directory(self) -> None:
        import shutil  # with tempfile, half a megabyte that other brokers do not need
        import tempfile

        root = Path(tempfile.mkdtemp(prefix="rockhopper-"))
        self._undo.callback(shutil.rmtree, root, ignore_errors=True)
        store = dataclasses.replace(self.config.store, root=root)
        self.config = dataclasses.replace(self.config, store=store)

    def _make_server(self) -> None:
        table, servers = build_table(self), self.servers
        if servers.master is not None:
            from rockhopper.broker.replication.rocketmq.master.processors import ClassicProcessors

            ha_port = servers.ports.number("haListenPort")
            classic = ClassicProcessors(servers.master, self.store, servers.address_for, ha_port)
            table |= classic.rows(table)
        if self.member is not None:
            from rockhopper.broker.replication.roles.processors import ReplicaProcessors

            table = ReplicaProcessors(self.member, self.store).leading_rows(table)
        dispatcher = Dispatcher(table, self.access, self.kernel.request_times, self._lease_gate)
        hot_pass = HotPass(self.kernel, self.features.values(), dispatcher)
        servers.remoting = Server(
            "broker", hot_pass, connections_max=servers.connections_max, access=self.access
        )
        self.store.listeners.add(self)

    @property
    def _lease_gate(self) -> LeaseGate | None:
        return None if self.member is None else self.member.gate

    async def _open_ports(self) -> None:
        """Open the ports, in the order health, name server, broker."""
        self.servers.advertise()
        await self._open_health_port()
        await self.servers.open_name_service(self._undo)
        registrar = self.servers.make_registrar()
        await self._open_broker_port(self._undo)
        registrar.start()

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
            undo.push_async_callback(self.servers.close_grpc)
        undo.push_async_callback(self._stop_serving)
        if not self._passing_on.come_home(self.servers.remoting):
            await self.servers.listen()
        await self.servers.open_other_ports(self._lease_gate)

    async def _open_health_port(self) -> None:
        ports = self.servers.ports
        console = Console(self.config, self.access, lambda: self.nameserver, ports.certificate)
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
        await ports.listen("httpPort", health.start_on)

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

    async def _drain(self, member: "SetMember") -> None:
        from rockhopper.broker.replication.roles.set_member import SwitchError

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
        await self.servers.stop_listening()
        self.parts.stop()
        await self.servers.unregister()
        if self.store.failure is None and self.member is None:
            # Sends that wait for the disk get their answers before their connections go.
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(LAST_FLUSH_TIMEOUT_S):
                    await self.store.safe_point.wait(self.store.log.written_offset)
        await self.servers.remoting.close()

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

    async def announce(self) -> None:
        """Return when other name servers have the current topics, or are unreachable."""
        await self.servers.announce()

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
        if (names := self.servers.name_service) is not None:
            names.values.clear()
            names.routes.set_write_wiped(self.config.broker_name, wiped=False)
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
        others = chain(of_set, self.servers.tls_families())
        if self.member is not None and not self.member.is_serving:
            return await self.metrics_page.render_following(self.config, others, is_ready=is_ready)
        return await self.metrics_page.render_serving(
            self.kernel,
            self.features.values(),
            self.servers.connection_counts(),
            others,
            is_ready=is_ready,
        )


def _known_to_the_hot_path(config: BrokerConfig) -> tuple[int, int, int, bool, bool]:
    return (
        config.live.broker_permission,
        config.live.accept_send_from_ms,
        config.store.live.message_size_max_bytes,
        config.transactions.reject_transaction_message,
        config.pull.property_filter,
    )
