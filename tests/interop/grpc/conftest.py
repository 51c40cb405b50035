"""Servers and the programs of the official clients, all of which end with the test or module."""

import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.interop.grpc import topics
from tests.interop.grpc.programs import CLIENTS, Program
from tests.interop.grpc.servers import Certificate, Endpoint, User, make_certificate

NOT_EVERYWHERE = frozenset({"go", "cargo"})
"""Tools that no other suite needs: without them their clients are left out, and that is said."""


def require(missing: list[str], what: str) -> None:
    """Skip, or fail where interop is required, when something is missing."""
    if not missing:
        return
    reason = f"{what} is needed, but not found: {', '.join(missing)}"
    if os.environ.get("INTEROP_REQUIRED") == "1" and not NOT_EVERYWHERE.issuperset(missing):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate that every server of the session shows."""
    require([] if shutil.which("openssl") else ["openssl"], "a certificate")
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def endpoint(
    tmp_path_factory: pytest.TempPathFactory, certificate: Certificate
) -> Iterator[Endpoint]:
    """Our daemon with the topics of every client; Apache's with INTEROP_AGAINST=apache."""
    made = Endpoint(tmp_path_factory.mktemp("endpoint"), certificate)
    made.start()
    try:
        topics.make(made.nameserver, CLIENTS)
        yield made
    finally:
        made.kill()


class Programs:
    """One program per client, each of which does its jobs one after another."""

    def __init__(self, directory: Path, address: str, certificate: Certificate) -> None:
        """*address* is that of the endpoint, or of several, with semicolons between them."""
        self._directory = directory
        self._address = address
        self._certificate = certificate
        self._programs: dict[str, Program] = {}
        self._lanes = {
            name: ThreadPoolExecutor(1) for name in CLIENTS if not CLIENTS[name].missing_tools()
        }

    def begin(self, client: str, op: str, scenario: str, **job: object) -> "Future[Any] | None":
        """Begin a job with the topic and group of *scenario*; None where a tool is missing."""
        if client not in self._lanes:
            return None
        named = {
            "endpoint": self._address,
            "topic": topics.topic_of(client, scenario),
            "group": topics.group_of(client, scenario),
        }
        return self._lanes[client].submit(self._call, client, op, {**named, **job})

    def close(self) -> None:
        """End them all."""
        for lane in self._lanes.values():
            lane.shutdown(wait=False, cancel_futures=True)
        for program in self._programs.values():
            program.close()

    def _call(self, client: str, op: str, job: Mapping[str, Any]) -> Any:
        if client not in self._programs:
            self._programs[client] = Program(client, self._directory, self._certificate.path)
        return self._programs[client].call(op, **job)


@pytest.fixture(scope="module")
def programs(
    tmp_path_factory: pytest.TempPathFactory, endpoint: Endpoint, certificate: Certificate
) -> Iterator[Programs]:
    """The official clients, connected to nothing yet."""
    made = Programs(tmp_path_factory.mktemp("programs"), endpoint.address, certificate)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest) -> str:
    """The name of one client after another whose tools are here."""
    name = str(request.param)
    require(CLIENTS[name].missing_tools(), f"the {name} client")
    return name


@pytest.fixture(scope="session")
def user() -> User:
    """Who may do everything on a server that authenticates."""
    return User("rockhopper-root", "an-open-secret-of-tests")
