"""Every setting of the broker: the default, and its cost; parts have files of their own.

    live_settings.py         settings that may change while the broker runs
    store_config.py          the store's
    nameserver_config.py     the name server's
    following_config.py      of a broker that follows another
    replica_config.py        of a replica of a set
    auth_config.py           users and permissions
    tls_config.py            TLS and the PROXY protocol
    classic_config.py        of a master that RocketMQ's slaves follow

Each field is one key of RocketMQ's broker.conf, or one of ours if the docstring says so. Values
come, later over earlier, from the defaults here, ``-c broker.conf``, the environment
(ROCKHOPPER_<KEY>) and flags: see config_file.py.
"""

import re
from dataclasses import field
from enum import Enum

from rockhopper.broker.settings.advertise import AdvertiseRule, parse_rule
from rockhopper.broker.settings.auth_config import AuthConfig as AuthConfig
from rockhopper.broker.settings.classic_config import ClassicConfig
from rockhopper.broker.settings.following_config import FollowingConfig as FollowingConfig
from rockhopper.broker.settings.live_settings import (
    LivePopSettings,
    LivePullSettings,
    LiveSettings,
    LiveTransactionSettings,
)
from rockhopper.broker.settings.nameserver_config import NameServiceConfig as NameServiceConfig
from rockhopper.broker.settings.replica_config import ReplicaConfig as ReplicaConfig
from rockhopper.broker.settings.setting_fields import (
    SettingError,
    check_fields,
    setting,
    settings_dataclass,
)
from rockhopper.broker.settings.store_config import FlushDiskType as FlushDiskType
from rockhopper.broker.settings.store_config import StoreConfig as StoreConfig
from rockhopper.broker.settings.tls_config import TlsConfig as TlsConfig
from rockhopper.protocol.addresses import split_address
from rockhopper.protocol.names import TRACE_TOPIC


class Role(Enum):
    """The servers that this process runs."""

    ALL = "all"
    BROKER = "broker"
    NAMESERVER = "nameserver"


class BrokerRole(Enum):
    """RocketMQ's replication roles. The engine of a set decides which replica leads: see haMode."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"


def parse_address(text: str) -> str:
    """Return *text* if it is host:port. Raises ValueError with the allowed form."""
    host, port = split_address(text)
    if not host or port is None or not 0 < port < 65536:
        raise ValueError(f"{text!r} is not an address: expected host:port, separated by ;")
    return text


@settings_dataclass(frozen=True)
class BrokerConfig:
    """The process: its names, its ports, its permissions."""

    live: LiveSettings = field(default_factory=LiveSettings)
    pull: LivePullSettings = field(default_factory=LivePullSettings)
    pop: LivePopSettings = field(default_factory=LivePopSettings)
    transactions: LiveTransactionSettings = field(default_factory=LiveTransactionSettings)
    store: StoreConfig = field(default_factory=StoreConfig)
    name_service: NameServiceConfig = NameServiceConfig()
    following: FollowingConfig = FollowingConfig()
    replication: ReplicaConfig = ReplicaConfig()
    classic: ClassicConfig = ClassicConfig()
    auth: AuthConfig = AuthConfig()
    tls: TlsConfig = TlsConfig()

    role: Role = setting("role", Role.ALL)
    """Ours. What this process serves. ``all``: a broker with an embedded name server; ``broker``
    or ``nameserver``: only one of them, for several brokers under one name server."""

    broker_name: str = setting("brokerName", "broker-a")
    """The broker's name in routes. Two brokers that register with the same name server need
    different names."""

    cluster_name: str = setting("brokerClusterName", "DefaultCluster")
    """The cluster name that admin tools show."""

    broker_id: int = setting("brokerId", 0, least=0, most=0)
    """Always 0. In a replica set, haReplicaId identifies the replica, and the engine decides which
    one leads."""

    broker_role: BrokerRole = setting("brokerRole", BrokerRole.ASYNC_MASTER)
    """Without haEngine, SYNC_MASTER waits for no replica, unless haMode=classic: then it waits for
    inSyncReplicas. With haEngine and without haMode, ASYNC_MASTER means haMode=async, and
    SYNC_MASTER means haMode=sync with minInSyncReplicas=1."""

    brokers: int = setting("brokers", 1, least=0, most=64)
    """Ours. How many brokers run side by side under one parent process. They are named
    brokerName-0, -1 …, and each has its own directory below storePathRootDir and its own port, 20
    apart from listenPort on. 0 starts one for each core.

    Cost: memory and a separate commit log for each broker.
    """

    bind_address: str = setting("bindAddress", "127.0.0.1")
    """The address on which all ports listen.

    Cost: none on loopback. On any other address, every host that reaches the ports has access,
    unless users are on.
    """

    listen_port: int = setting("listenPort", 10911, least=0, most=65535)
    """The broker's port; 0 picks a free one and logs it in the first line."""

    vip_channel_enabled: bool = setting("vipChannelEnabled", False)
    """Ours, named as in the clients. Whether the broker also listens two ports below listenPort
    (10909), unless listenPort is 0. Java clients before 4.5.1 send, commit and look up their group
    there by default. If another process holds the port, the broker logs a warning.

    Cost: one more port.
    """

    namesrv_port: int = setting("namesrvPort", 9876, least=0, most=65535)
    """Ours. The name server's port; 0 picks a free one."""

    http_port: int = setting("httpPort", 9464, least=-1, most=65535)
    """Ours. The port of /healthz, /readyz, /metrics and the console; 0 picks a free one, -1 opens
    none.

    Cost: none while idle. A scrape of /metrics takes a few milliseconds; with many queues, up to a
    quarter of a second of one core, see metricsQueuesMax.
    """

    console_enable: bool = setting("consoleEnable", True)
    """Ours. Whether httpPort serves the web console, /console/.

    Cost: none until a browser opens it; then some memory.
    """

    console_hosts: tuple[str, ...] = setting("consoleHosts", ())
    """Ours. Host names that may reach the console and /metrics, separated by ``;``. Addresses,
    localhost, this host's name, brokerIP1 and the names in advertise are always allowed. All others
    are refused, which prevents DNS rebinding: a foreign name that points here could read what the
    broker serves to a browser."""

    grpc_port: int = setting("grpcPort", -1, least=-1, most=65535)
    """Ours. The port of RocketMQ 5 clients, 8081 by convention; it needs the extra ``[grpc]``. 0
    picks a free one, -1 opens none. With brokers=N each broker has its own port, 20 apart, and a
    client that connects to the first one learns the others.

    Cost: the memory of protobuf, and more processor time for each request than RocketMQ 4's
    protocol.
    """

    namesrv_addr: tuple[str, ...] = setting("namesrvAddr", (), element=parse_address)
    """Other name servers to register with, as host:port separated by ``;``."""

    broker_ip1: str = setting("brokerIP1", "")
    """The host that routes and registrations name. Empty: each client gets the address at which it
    reached the name server, see advertise."""

    published_on: str = setting("publishedOn", "")
    """Ours. In a container: the host's address on which the ports are published. With ``127.0.0.1``
    the start does not warn that the ports are open to other hosts. It opens and closes no port."""

    advertise: tuple[AdvertiseRule, ...] = setting(
        "advertise", (), separator=",", element=parse_rule
    )
    """Ours. Which address each client gets: ``network=host:port`` separated by ``,``; the first
    match wins. ``gateway`` and ``subnet`` mean the container's gateway and network, ``self`` the
    address that a client connected to. Takes precedence over brokerIP1."""

    remote_admin: bool = setting("remoteAdmin", False)
    """Ours. Whether the broker serves administrative requests from other hosts.

    Cost: safety: without authenticationEnabled, every host that reaches the port may delete topics.
    """

    cluster_topic_enable: bool = setting("clusterTopicEnable", True)
    """Whether clients may use the topic that is named like the cluster."""

    broker_topic_enable: bool = setting("brokerTopicEnable", True)
    """Whether clients may use the topic that is named like the broker."""

    trace_topic_enable: bool = setting("traceTopicEnable", False)
    """Create the topic for clients' message traces at the start.

    Cost: none by itself; a client that traces sends about one extra message for every few.
    """

    trace_topic_name: str = setting("msgTraceTopicName", TRACE_TOPIC)
    """The topic to which clients send their traces."""

    trace_on: bool = setting("traceOn", True)
    """Tell producers to send traces.

    Cost: none here; for the traces themselves see traceTopicEnable.
    """

    sink_staged_bytes_max: int = setting("sinkStagedBytesMax", 4 << 30, least=1 << 20, most=1 << 50)
    """Ours. How many bytes jobs may stage for sinks (exactly-once batches) before they publish
    them. Beyond that, a stage request is refused like a send to a full disk.

    Cost: at most that much of the store's disk.
    """

    sink_staged_expire_ms: int = setting(
        "sinkStagedExpireMs", 3_600_000, least=1000, most=30 * 86_400_000
    )
    """Ours. Staged parts are deleted when no job has added to them or published them for this long:
    a killed job leaves such parts.

    Cost: a long time keeps the parts of a killed job on the disk for longer; a short one deletes
    those of a slow job.
    """

    region_id: str = setting("regionId", "DefaultRegion")
    """The region that send answers name."""

    timer_wheel_enable: bool = setting("timerWheelEnable", True)
    """Whether producers may set a delivery time, and remoting clients may pop.

    Pending timer messages are delivered either way.
    """

    timer_max_delay_s: int = setting("timerMaxDelaySec", 259_200, least=1, most=100 * 31_557_600)
    """The longest delay that a producer may request.

    Cost: a message that waits longer than two thirds of fileReservedTime is appended to the commit
    log again, once in each such time.
    """

    timer_precision_ms: int = setting("timerPrecisionMs", 1000, least=100, most=1000)
    """The precision with which RocketMQ wrote the timer messages that it left pending: 100, 200,
    500 or 1000. This broker delivers its own timer messages to the millisecond."""

    offsets_flush_interval_ms: int = setting(
        "flushConsumerOffsetInterval", 5000, least=10, most=3_600_000
    )
    """How often committed offsets go to disk. After a crash, consumers repeat at most this much.

    Cost: a small disk write for each interval with a commit.
    """

    offsets_version_step: int = setting("consumerOffsetUpdateVersionStep", 500, least=1)
    """After how many commits the version of the offset table increases."""

    register_interval_ms: int = setting("registerNameServerPeriod", 30_000, least=100, most=60_000)
    """How often this broker registers with the name servers of namesrvAddr. Topic changes are
    registered at once.

    Cost: one request with all topics for each name server.
    """

    register_timeout_ms: int = setting("registerBrokerTimeoutMills", 24_000, least=10, most=600_000)
    """How long one registration may take."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.following.follow_master and (self.brokers != 1 or self.role is Role.NAMESERVER):
            raise SettingError(
                "followMaster", self.following.follow_master, "only a single broker can follow one"
            )
        self._check_replica()
        self._check_master()
        for key, name in (
            ("brokerName", self.broker_name),
            ("brokerClusterName", self.cluster_name),
        ):
            if not re.fullmatch(r"[\w.%|-]{1,127}", name, re.ASCII):
                raise SettingError(
                    key, name, "letters, digits, '_', '-', '%', '|', '.' are allowed"
                )

    def _check_replica(self) -> None:
        engine = self.replication.engine
        if not engine:
            return
        if self.brokers != 1:
            raise SettingError(
                "haEngine",
                engine,
                f"brokers={self.brokers} in one process, none of which can be a replica: start "
                "one process for each replica (brokers=1), with its own store and listenPort",
            )
        if self.role is Role.NAMESERVER:
            raise SettingError(
                "haEngine",
                engine,
                "a process with only a name server has no replicas: remove it, or set role",
            )
        if self.following.follow_master:
            raise SettingError(
                "haEngine",
                engine,
                f"this broker follows followMaster={self.following.follow_master}: take over first "
                "(rockhopper ha takeover), then start it with haEngine and without followMaster",
            )

    @property
    def added_properties(self) -> bytes:
        """The properties that the broker adds to every message, in stored form."""
        trace = "true" if self.trace_on else "false"
        return (
            f"MSG_REGION\x01{self.region_id}\x02TRACE_ON\x01{trace}\x02"
            f"CLUSTER\x01{self.cluster_name}\x02"
        ).encode()

    @property
    def is_replicated(self) -> bool:
        """Whether other brokers copy this broker's log, and depend on its flush mode."""
        return bool(
            self.replication.engine
            or self.replication.serves_slaves
            or self.following.follow_master
        )

    @property
    def acknowledging_slaves(self) -> int:
        """How many slaves must have a message before it is acknowledged."""
        is_sync = self.broker_role is BrokerRole.SYNC_MASTER and self.replication.serves_slaves
        return self.classic.in_sync_replicas - 1 if is_sync else 0

    def _check_master(self) -> None:
        replication = self.replication
        if not replication.serves_slaves:
            return
        key, value = "haMode", replication.mode.value
        if self.brokers != 1:
            raise SettingError(
                key, value, f"brokers={self.brokers} in one process, none of which can have slaves"
            )
        if self.role is Role.NAMESERVER:
            raise SettingError(
                key, value, "a process with only a name server has no slaves: remove it"
            )
        if self.following.follow_master:
            raise SettingError(
                key,
                value,
                "this broker follows a master, and only a master can have slaves: remove haMode "
                "or followMaster",
            )
        least, count = replication.min_in_sync_replicas, self.classic.in_sync_replicas
        if least > max(count, 1) and self.broker_role is BrokerRole.SYNC_MASTER:
            raise SettingError(
                "minInSyncReplicas",
                least,
                f"sends wait for only inSyncReplicas={count}: raise that as well",
            )

    def slave_warnings(self) -> list[str]:
        """Return warnings about a master's settings."""
        count = self.classic.in_sync_replicas
        if self.replication.serves_slaves:
            found = [
                "haMode=classic: every host that reaches haListenPort gets every message and may "
                "acknowledge in place of a slave; allow only the slaves to reach it"
            ]
            if count > 1 and not self.acknowledging_slaves:
                found.append(f"only a SYNC_MASTER waits for inSyncReplicas={count}: set brokerRole")
            return found
        if count > 1 and not self.replication.is_replica:
            return [f"inSyncReplicas={count} has no effect without haMode=classic"]
        return []
