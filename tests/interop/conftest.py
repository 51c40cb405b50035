"""Servers and foreign clients for the interop tests; all processes end with the test or session."""

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.interop import apache, etcd, node, rockhopper
from tests.interop.apache import ApacheServer
from tests.interop.etcd import EtcdCluster
from tests.interop.java_client import JavaClient
from tests.interop.rockhopper import RockhopperServer

Server = ApacheServer | RockhopperServer


class Launcher:
    """Starts servers in directories of their own, and kills those that still run at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: list[Server] = []

    def apache(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        topics: Sequence[str] = (),
        broker_port: int | None = 0,
        namesrv_port: int | None = 0,
    ) -> ApacheServer:
        """Start Apache's server; see apache.start."""
        server = apache.start(
            self._next_directory("apache"),
            settings=settings,
            topics=topics,
            broker_port=broker_port,
            namesrv_port=namesrv_port,
        )
        self._servers.append(server)
        return server

    def rockhopper(self, settings: Mapping[str, str] | None = None) -> RockhopperServer:
        """Start our daemon; see rockhopper.start."""
        server = rockhopper.start(self._next_directory("rockhopper"), settings=settings)
        self._servers.append(server)
        return server

    def kill_all(self) -> None:
        """End whatever still runs."""
        for server in self._servers:
            server.kill()

    def _next_directory(self, name: str) -> Path:
        return self._directory / f"{len(self._servers)}-{name}"


@contextlib.contextmanager
def launching(directory: Path) -> Iterator[Launcher]:
    """A launcher whose servers end with the block."""
    launcher = Launcher(directory)
    try:
        yield launcher
    finally:
        launcher.kill_all()


def _require(missing: list[str], what: str) -> None:
    if not missing:
        return
    reason = f"{what} is needed, but not found: {', '.join(missing)}"
    if os.environ.get("INTEROP_REQUIRED") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def jdk() -> None:
    """Skip, or fail where interop is required, without a JDK and Maven; else build once."""
    _require(apache.missing_tools(), "a JDK with Maven")
    apache.build()


@pytest.fixture(scope="session")
def npm() -> None:
    """Skip, or fail where interop is required, without Node; else install ali-ons once."""
    _require(node.missing_tools(), "Node with npm")
    node.install()


@pytest.fixture(scope="session")
def java(jdk: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    """The official Java client."""
    client = JavaClient(tmp_path_factory.mktemp("java"))
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launcher]:
    """Start servers for one test."""
    with launching(tmp_path) as launcher:
        yield launcher


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Our daemon, one for all tests of a module.

    INTEROP_AGAINST=apache puts Apache's broker in its place, which shows whether a test asks for
    what the reference does.
    """
    with launching(tmp_path_factory.mktemp("broker")) as launcher:
        if os.environ.get("INTEROP_AGAINST") == "apache":
            yield launcher.apache(apache.SMALL_FILES)
        else:
            yield launcher.rockhopper(apache.SMALL_FILES)


@pytest.fixture(scope="module")
def apache_server(jdk: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    """Apache's name server and broker, one for all tests of a module."""
    with launching(tmp_path_factory.mktemp("apache")) as launcher:
        yield launcher.apache(apache.SMALL_FILES)


@contextlib.contextmanager
def _started(cluster: EtcdCluster) -> Iterator[EtcdCluster]:
    try:
        asyncio.run(cluster.start())
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture(scope="session")
def etcd_server() -> None:
    """Skip, or fail where interop is required, without an etcd."""
    _require(etcd.missing_tools(), "an etcd (see tests/interop/etcd.py)")


@pytest.fixture(scope="module")
def etcd_cluster(
    etcd_server: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EtcdCluster]:
    """Three processes, one cluster for all tests of a module; who kills a member starts it anew."""
    with _started(EtcdCluster(tmp_path_factory.mktemp("etcd"), 3)) as cluster:
        yield cluster


@pytest.fixture
def single_etcd(etcd_server: None, tmp_path: Path) -> Iterator[EtcdCluster]:
    """A cluster of one process, for one test."""
    with _started(EtcdCluster(tmp_path / "etcd", 1)) as cluster:
        yield cluster


@pytest.fixture
def tls_etcd(etcd_server: None, tmp_path: Path) -> Iterator[EtcdCluster]:
    """The same, by TLS only."""
    with _started(EtcdCluster(tmp_path / "etcd", 1, is_tls=True)) as cluster:
        yield cluster
