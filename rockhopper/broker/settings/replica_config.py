"""The settings of a replica set: defaults and costs. See docs/replication.md."""

import re
import ssl
import stat
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from rockhopper.broker.settings.auth_config import HIDDEN
from rockhopper.broker.settings.setting_fields import (
    SettingError,
    check_fields,
    setting,
    settings_dataclass,
)
from rockhopper.protocol.addresses import split_address

REPLICA_ID_MAX = 1000
_ENGINES = (
    "expected etcd://host:2379,host:2379 (etcds:// with TLS), kubernetes://namespace/lease or "
    "static:///directory; set etcd's user with haEngineUser and haEnginePasswordFile"
)
_PASSWORD = re.compile(r"^([^:]*:/*).*@", re.DOTALL)


class HaMode(Enum):
    """What an acknowledgement waits for."""

    SYNC = "sync"
    ASYNC = "async"
    CLASSIC = "classic"


class EngineAddress(NamedTuple):
    """A consensus engine as haEngine names it."""

    scheme: str
    """``etcd``, ``etcds``, ``kubernetes`` or ``static``."""
    place: str
    """The part behind it: endpoints, ``namespace/lease``, or the path of a directory."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Of etcd: ``host:port``, or ``host`` alone."""
        return tuple(each.strip() for each in self.place.split(",") if each.strip())


@settings_dataclass(frozen=True)
class ReplicaConfig:
    """The replica set of this broker, if it has one."""

    engine: str = setting("haEngine", "")
    """Ours. What decides which replica leads: ``etcd://h1:2379,h2:2379`` (``etcds`` with TLS),
    ``kubernetes://namespace/lease``, or ``static:///directory`` for a set that an operator
    switches. Empty: this broker is not a replica.

    Cost: every message on the disks of all replicas, and an etcd or Kubernetes to run.
    """

    engine_prefix: str = setting("haEnginePrefix", "/rockhopper")
    """Ours. The prefix of all sets' keys in etcd."""

    engine_user: str = setting("haEngineUser", "")
    """Ours. The user in etcd; empty for an etcd without users."""

    engine_password_file: Path | None = setting("haEnginePasswordFile", None)
    """Ours. A file with that user's password."""

    engine_ca_file: Path | None = setting("haEngineCaFile", None)
    """Ours. The CA certificates that verify the engine's certificate. Empty: the system's; in
    Kubernetes that of the pod's service account."""

    engine_cert_file: Path | None = setting("haEngineCertFile", None)
    """Ours. This broker's certificate for etcd, with haEngineKeyFile."""

    engine_key_file: Path | None = setting("haEngineKeyFile", None)
    """Ours. The key of haEngineCertFile."""

    replica_id: int = setting("haReplicaId", 0, least=0, most=REPLICA_ID_MAX)
    """Ours. The number of this replica in its set, from 1 on; no two replicas may share one."""

    replicas: int = setting("haReplicas", 0, least=0, most=REPLICA_ID_MAX)
    """Ours, or RocketMQ's totalReplicas. How many replicas the set has; 0: not known."""

    min_in_sync_replicas: int = setting("minInSyncReplicas", 0, least=0, most=REPLICA_ID_MAX)
    """How many replicas must have a message before it is acknowledged, and the fewest that count as
    in sync. 0: 2 of three or more, 1 of two. With 1, messages that only one surviving replica took
    are lost with it. With 2 of two, sends stop when either is away.

    Cost: with more than one, a round trip to the other replicas for each send; fewer replicas may
    be away before sends stop.
    """

    unclean_after_power_cut: bool = setting("uncleanAfterPowerCut", False)
    """Ours. Whether a set resumes by itself after a power cut of all in-sync replicas, under
    ASYNC_FLUSH: once all haReplicas are back, the one with the longest log leads. ``false``: an
    operator decides, by ``rockhopper ha elect --unclean``.

    Cost: true: messages that are on no disk are lost, and no operator has seen it.
    """

    mode: HaMode = setting("haMode", HaMode.SYNC)
    """Ours. ``sync`` acknowledges a message when all in-sync replicas have it. ``async``
    acknowledges it when the master has it: a failover may lose the newest messages. ``classic``,
    without haEngine: RocketMQ's slaves follow this broker on haListenPort, which has no
    authentication. Every host that reaches that port gets every message: allow only the slaves.

    Cost: sync: a round trip to the other replicas for each send. async: a failover may lose the
    newest messages. classic: readers are not authenticated.
    """

    lease_ms: int = setting("haLeaseTtl", 4000, least=1000, most=60_000)
    """Ours. How long a dead master blocks an election when its process cannot be seen to be dead.
    Safety never depends on a time. etcd rounds it up to seconds.

    Cost: a long lease leaves a set without a master for longer when a machine dies; a short one
    changes masters when the network or the engine hesitates.
    """

    leave_set: bool = setting("haLeaveSet", False)
    """Ours. ``--leave-set``: serve the store of a replica without haEngine. Its log begins a
    history of its own, and its set does not accept messages that it takes alone.

    Cost: before it rejoins the set, either its store or the others' must be replaced.
    """

    priority: int = setting("haPriority", 0, least=-1000, most=1000)
    """Ours. When two replicas have equally long logs, the one with the larger number is elected."""

    secret_file: Path | None = setting("haSecretFile", None)
    """Ours. A file with a secret that all replicas of the set share: each proves to the others that
    it knows the secret. Empty: a replica trusts every process that is announced in the engine.

    Cost: none; without it, every process that can write to the engine passes for a replica.
    """

    listen_port: int = setting("haListenPort", 0, least=0, most=65535)
    """The port for the other replicas. 0: the one after listenPort, which is RocketMQ's default."""

    address: str = setting("haAddress", "")
    """Ours. The host at which the other replicas reach this one. Empty: brokerIP1, or the address
    of this machine."""

    state_interval_ms: int = setting("haStateInterval", 100, least=1, most=60_000)
    """Ours. How soon committed offsets and similar state reach the other replicas. After a
    failover, consumers repeat at most this much. The broker sends them after half this time.

    Cost: a record in the log for each interval with a commit.
    """

    splice_ms: int = setting("haSpliceTime", 90_000, least=0, most=3_600_000)
    """Ours. For how long after a planned switch the old master forwards its clients' requests to
    the new one. The default is three times the interval at which clients refresh their route.

    Cost: each request of such a client goes through two brokers.
    """

    drain_ms: int = setting("haDrainTime", 5000, least=0, most=3_600_000)
    """Ours. For how long, at most, a master that is stopped (SIGTERM) forwards its clients to the
    new master. Set it to a few seconds less than the supervisor's stop timeout. 0: no forwarding.

    Cost: a stop takes up to this much longer.
    """

    first_start_ms: int = setting("haFirstStartWait", 5000, least=0, most=600_000)
    """Ours. How long the first start of a set waits for a replica with a longer log.

    Cost: the first start of a set takes this much longer.
    """

    register_slaves: bool = setting("haRegisterSlaves", True)
    """Ours. Whether replicas that do not lead register with name servers. Consumers then send them
    heartbeats, so that a new master knows its groups at once.

    Cost: a connection and heartbeats from each consumer to each replica.
    """

    slave_timeout_ms: int = setting("slaveTimeout", 3000, least=1, most=600_000)
    """How long a send waits for the in-sync replicas before it gets FLUSH_SLAVE_TIMEOUT: the
    message is stored, but perhaps not on all of them.

    Cost: how long a send waits for a replica that hangs.
    """

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.is_replica:
            return
        if self.serves_slaves:
            raise SettingError(
                "haMode",
                self.mode.value,
                "RocketMQ's slaves work only without an engine: remove haEngine, or set haMode "
                "to sync or async",
            )
        parse_engine(self.engine)
        self._check_numbers()
        if (self.engine_cert_file is None) is not (self.engine_key_file is None):
            raise SettingError(
                "haEngineCertFile",
                self.engine_cert_file,
                "a certificate needs its key: set haEngineKeyFile as well, or neither",
            )
        if self.engine_user and self.engine_password_file is None:
            raise SettingError(
                "haEngineUser", self.engine_user, "its password is needed: set haEnginePasswordFile"
            )
        if split_address(self.address)[1] is not None:
            raise SettingError(
                "haAddress",
                self.address,
                "expected a host without a port: the port is haListenPort",
            )

    def _check_numbers(self) -> None:
        if self.replica_id == 0:
            raise SettingError(
                "haReplicaId",
                0,
                "haEngine needs it: 1, 2, 3 …, a different number for each replica of the set",
            )
        if self.replicas and self.replica_id > self.replicas:
            raise SettingError(
                "haReplicaId",
                self.replica_id,
                f"the set has haReplicas={self.replicas}: expected a number from 1 to "
                f"{self.replicas}",
            )
        if self.replicas and self.min_in_sync_replicas > self.replicas:
            raise SettingError(
                "minInSyncReplicas",
                self.min_in_sync_replicas,
                f"the set has haReplicas={self.replicas}, so no message could ever be "
                f"acknowledged: expected a number from 1 to {self.replicas}",
            )

        if self.unclean_after_power_cut and not self.replicas:
            raise SettingError(
                "uncleanAfterPowerCut",
                "true",
                "a set resumes by itself only when all its replicas are back: set haReplicas to "
                "their number",
            )

    @property
    def is_replica(self) -> bool:
        """Whether this broker is part of a set."""
        return bool(self.engine)

    @property
    def serves_slaves(self) -> bool:
        """Whether this broker is a master that RocketMQ's slaves follow."""
        return self.mode is HaMode.CLASSIC

    @property
    def engine_address(self) -> EngineAddress:
        """The parsed haEngine; only of a replica."""
        return parse_engine(self.engine)

    @property
    def floor(self) -> int:
        """How many replicas must have a message: minInSyncReplicas, or its default."""
        return self.min_in_sync_replicas or (2 if self.replicas >= 3 else 1)

    def ha_port(self, listen_port: int) -> int:
        """Return the port for other replicas, given the broker's own; 0 is a free one."""
        return self.listen_port or (listen_port + 1 if listen_port else 0)

    def engine_password(self) -> str:
        """Return the content of haEnginePasswordFile; empty without one. Raises SettingError."""
        path = self.engine_password_file
        return read_secret("haEnginePasswordFile", path).decode(errors="replace") if path else ""

    def engine_tls(self, default_ca_file: Path | None = None) -> ssl.SSLContext | None:
        """Return the TLS context for the engine; None without TLS.

        *default_ca_file* replaces the system's certificates.

        Raises:
            SettingError: one of its files cannot be used.
        """
        is_wanted = self.engine_address.scheme in ("etcds", "kubernetes")
        if not (is_wanted or self.engine_ca_file or self.engine_cert_file):
            return None
        key, path = "haEngineCaFile", self.engine_ca_file or default_ca_file
        try:
            context = ssl.create_default_context(cafile=path)
            if self.engine_cert_file is not None:
                key, path = "haEngineCertFile", self.engine_cert_file
                context.load_cert_chain(self.engine_cert_file, self.engine_key_file)
        except OSError as error:
            reason = f"it is not a usable certificate ({error.strerror or error}): PEM is needed"
            raise SettingError(key, path, reason) from None
        return context

    def notes(self) -> list[str]:
        """Return the notes about a replica's settings that the broker logs at its start."""
        if not self.is_replica:
            return []
        default = "" if self.min_in_sync_replicas else ", the default"
        of_how_many = f" of {self.replicas}" if self.replicas else " (haReplicas is not set)"
        return [
            f"replica {self.replica_id}{of_how_many} of a set, haMode={self.mode.value}: "
            f"minInSyncReplicas={self.floor}{default}; the effective value is logged when it is "
            "known"
        ]

    def warnings(self) -> list[str]:
        """Return warnings about files and settings that an operator should change.

        Raises:
            SettingError: a file that a setting names cannot be read.
        """
        if not self.is_replica:
            return []
        found = []
        for key, path in (
            ("haSecretFile", self.secret_file),
            ("haEnginePasswordFile", self.engine_password_file),
            ("haEngineKeyFile", self.engine_key_file),
        ):
            if path is not None:
                read_secret(key, path)
                if path.stat().st_mode & stat.S_IROTH:
                    found.append(f"setting {key}={path}: every user can read it: chmod 600 {path}")
        self.engine_tls()
        if self.secret_file is None:
            found.append(
                "haSecretFile is not set: every process that can write to the engine passes for "
                "a replica and gets all messages; set it, or allow only the replicas to reach "
                "haListenPort"
            )
        return found


def parse_engine(text: str) -> EngineAddress:
    """Parse haEngine. Raises SettingError."""
    scheme, separator, place = text.partition("://")
    address = EngineAddress(scheme.lower(), place)
    if not separator or not _CHECKS.get(address.scheme, _is_unknown)(address):
        raise SettingError("haEngine", _PASSWORD.sub(rf"\1{HIDDEN}@", text), _ENGINES)
    return address


def _is_unknown(_address: EngineAddress) -> bool:
    return False


def _are_endpoints(address: EngineAddress) -> bool:
    places = [split_address(endpoint) for endpoint in address.endpoints]
    return bool(places) and all(
        host and "/" not in host and "@" not in host and (port is None or 0 < port < 65536)
        for host, port in places
    )


def _is_lease(address: EngineAddress) -> bool:
    parts = address.place.split("/")
    return len(parts) == 2 and all(
        part.replace("-", "").replace(".", "").isalnum() and part == part.lower() for part in parts
    )


def _is_directory(address: EngineAddress) -> bool:
    return Path(address.place).is_absolute()


_CHECKS = {
    "etcd": _are_endpoints,
    "etcds": _are_endpoints,
    "kubernetes": _is_lease,
    "static": _is_directory,
}


def read_secret(key: str, path: Path) -> bytes:
    """Return the content of the file that setting *key* names, without the line end.

    Raises:
        SettingError: it cannot be read, or is empty.
    """
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise SettingError(
            key,
            path,
            f"it cannot be read ({error.strerror}): it must be a file that this user can read",
        ) from None
    if not secret:
        raise SettingError(key, path, "the file is empty: write the secret into it")
    return secret


def translate_replica_settings(texts: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return *texts* with RocketMQ's brokerRole and totalReplicas as set settings, and warnings.

    Without haEngine they have no effect. Our own keys take precedence.
    """
    full = dict(texts)
    if not full.get("haEngine", "").strip():
        return full, []
    if "totalReplicas" in full:
        full.setdefault("haReplicas", full["totalReplicas"])
    role = full.get("brokerRole", "").strip().upper()
    if "haMode" in full or role not in ("SYNC_MASTER", "ASYNC_MASTER"):
        return full, []
    if role == "ASYNC_MASTER":
        full["haMode"] = "async"
        meaning = "haMode=async: a failover may lose the newest messages"
    else:
        full["haMode"] = "sync"
        full.setdefault("minInSyncReplicas", "1")
        meaning = f"haMode=sync and minInSyncReplicas={full['minInSyncReplicas']}"
    return full, [f"brokerRole={role} is interpreted as {meaning}; set haMode to be explicit"]
