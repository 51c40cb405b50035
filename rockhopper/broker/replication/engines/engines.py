"""Creates the consensus engine that a broker's settings name.

Protocols describe the settings it needs, because the replication packages do not import the
configuration.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from rockhopper.broker.replication.engines.consensus.connections import Tls
from rockhopper.broker.replication.engines.consensus.record_engine import RecordEngine
from rockhopper.broker.replication.engines.engine import Engine
from rockhopper.broker.replication.engines.etcd.engine import EtcdEngine
from rockhopper.broker.replication.engines.etcd.gateway import EtcdAccess, EtcdGateway
from rockhopper.broker.replication.engines.kubernetes import api as kubernetes
from rockhopper.broker.replication.engines.kubernetes.api import KubernetesApi
from rockhopper.broker.replication.engines.kubernetes.leases import SetLeases
from rockhopper.broker.replication.engines.kubernetes.pod_role import PodRole
from rockhopper.broker.replication.engines.static.electing import set_path
from rockhopper.broker.replication.engines.static.set_directory import SetDirectory
from rockhopper.broker.server.listening.renewed_files import RenewedFiles

KUBERNETES = "kubernetes"

NowMs = Callable[[], float]


class ParsedAddress(Protocol):
    """The address in haEngine."""

    @property
    def scheme(self) -> str:
        """The kind of engine."""

    @property
    def place(self) -> str:
        """The part behind the scheme."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The same part as separate endpoints."""


class EngineSettings(Protocol):
    """The engine settings of a ReplicaConfig."""

    @property
    def engine_address(self) -> ParsedAddress:
        """The kind of engine and its address."""

    @property
    def engine_prefix(self) -> str:
        """The prefix of its keys."""

    @property
    def engine_user(self) -> str:
        """The user name for the engine."""

    @property
    def lease_ms(self) -> int:
        """The duration of a master's lease."""

    @property
    def engine_password_file(self) -> Path | None:
        """The file with that user's password."""

    @property
    def engine_ca_file(self) -> Path | None:
        """The CA certificates that verify the engine."""

    @property
    def engine_cert_file(self) -> Path | None:
        """The client certificate of this process."""

    @property
    def engine_key_file(self) -> Path | None:
        """The key of that certificate."""

    def engine_password(self) -> str:
        """Return that user's password, as the file contains it now."""

    def engine_tls(self, default_ca_file: Path | None = None) -> ssl.SSLContext | None:
        """Return the TLS context for the current files, or None."""


class SetSettings(Protocol):
    """The settings of a set within a BrokerConfig."""

    @property
    def cluster_name(self) -> str:
        """The cluster of the set."""

    @property
    def broker_name(self) -> str:
        """The broker name that all its replicas share."""

    @property
    def replication(self) -> EngineSettings:
        """The settings of its engine."""


def engine_for(config: SetSettings, now_ms: NowMs) -> Engine:
    """Return the engine of a broker that is a replica; this sends no request.

    *now_ms* is a monotonic clock.

    Raises:
        SettingError: a file that a setting names cannot be used.
        EngineError: the engine is Kubernetes, and this process does not run in a pod.
    """
    return _MAKERS[config.replication.engine_address.scheme](config, now_ms)


def pod_role_for(config: SetSettings, environment: Mapping[str, str]) -> PodRole | None:
    """Return an object that labels this pod with its role.

    Return None outside of Kubernetes, or without POD_NAME. Raises as ``engine_for``.
    """
    address, pod = config.replication.engine_address, environment.get("POD_NAME")
    if address.scheme != KUBERNETES or not pod:
        return None
    namespace = address.place.partition("/")[0]
    return PodRole(_kubernetes_api(config, environment), namespace, pod)


def _etcd(config: SetSettings, _now_ms: NowMs) -> Engine:
    settings = config.replication
    access = EtcdAccess(
        settings.engine_address.endpoints,
        settings.engine_user,
        _password(settings),
        _tls(settings),
    )
    prefix = f"{settings.engine_prefix.rstrip('/')}/{config.cluster_name}/{config.broker_name}/"
    return EtcdEngine(EtcdGateway(access), prefix, lease_ms=settings.lease_ms)


def _static(config: SetSettings, now_ms: NowMs) -> Engine:
    settings = config.replication
    path = set_path(settings.engine_address.place, config.cluster_name, config.broker_name)
    return RecordEngine(
        SetDirectory(path), now_ms=now_ms, lease_ms=settings.lease_ms, is_by_operator=True
    )


def _kubernetes(config: SetSettings, now_ms: NowMs) -> Engine:
    lease_ms = config.replication.lease_ms
    namespace, _, lease = config.replication.engine_address.place.partition("/")
    leases = SetLeases(_kubernetes_api(config, os.environ), namespace, lease, lease_ms=lease_ms)
    return RecordEngine(leases, now_ms=now_ms, lease_ms=lease_ms)


def _kubernetes_api(config: SetSettings, environment: Mapping[str, str]) -> KubernetesApi:
    endpoint = kubernetes.endpoint_in_pod(environment)
    tls = _tls(config.replication, kubernetes.CA_FILE)
    return KubernetesApi(kubernetes.KubernetesAccess(endpoint, kubernetes.TOKEN_FILE, tls))


def _password(settings: EngineSettings) -> Callable[[], str]:
    paths = [path for path in (settings.engine_password_file,) if path is not None]
    password = RenewedFiles(paths, settings.engine_password)
    password.current()
    return password.current


def _tls(settings: EngineSettings, default_ca_file: Path | None = None) -> Tls:
    files = (
        settings.engine_ca_file or default_ca_file,
        settings.engine_cert_file,
        settings.engine_key_file,
    )
    tls = RenewedFiles(
        [path for path in files if path is not None],
        lambda: settings.engine_tls(default_ca_file),
        certificate=settings.engine_cert_file,
    )
    tls.current()
    return tls.current


_MAKERS: dict[str, Callable[[SetSettings, NowMs], Engine]] = {
    "etcd": _etcd,
    "etcds": _etcd,
    "static": _static,
    KUBERNETES: _kubernetes,
}
