"""Either broker with an endpoint for RocketMQ 5 clients, started, killed and started again."""

import json
import os
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rockhopper.broker.settings.rocketmq_keys import REFUSED
from tests.interop import rockhopper
from tests.interop.grpc import apache_proxy
from tests.interop.grpc.apache_proxy import ApacheProxy, Ports
from tests.interop.rockhopper import RockhopperServer
from tests.support.free_ports import free_port

AGAINST_APACHE = os.environ.get("INTEROP_AGAINST") == "apache"
SERVES_TLS = AGAINST_APACHE or find_spec("rockhopper.broker.settings.tls_config") is not None
AUTHENTICATES = AGAINST_APACHE or "authenticationEnabled" not in REFUSED
"""Whether the server under test can, yet."""

SOON = {"transactionTimeOut": "3000", "transactionCheckInterval": "1000"}
"""Check-backs that tests need not wait long for."""


class Certificate(NamedTuple):
    """Files of a certificate that is its own authority."""

    path: Path
    key_path: Path


class User(NamedTuple):
    """Who may do everything, once a server authenticates."""

    name: str
    password: str


def make_certificate(directory: Path) -> Certificate:
    """Write a certificate for 127.0.0.1 and localhost."""
    made = Certificate(directory / "certificate.pem", directory / "key.pem")
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-keyout", str(made.key_path), "-out", str(made.path)]
    subprocess.run(command, check=True, capture_output=True)
    return made


class Endpoint:
    """A server of either make under addresses that it keeps."""

    def __init__(self, directory: Path, certificate: Certificate) -> None:
        self._directory = directory
        self._certificate = certificate
        self._ports = Ports.free()
        self._grpc_port = self._ports.grpc
        self._running: ApacheProxy | RockhopperServer | None = None
        self._lines = {"listenPort": str(free_port(below=[2])), "namesrvPort": str(free_port())}

    @property
    def address(self) -> str:
        """What clients of RocketMQ 5 are given."""
        return f"127.0.0.1:{self._grpc_port}"

    @property
    def nameserver(self) -> str:
        """What remoting clients are given."""
        port = self._ports.namesrv if AGAINST_APACHE else self._lines["namesrvPort"]
        return f"127.0.0.1:{port}"

    def start(self, user: User | None = None) -> None:
        """Start it, on the store of last time if it ran before; with *user*, it authenticates."""
        if AGAINST_APACHE:
            self._start_apache(user)
        else:
            self._start_ours(user)

    def kill(self) -> None:
        """Kill it in the middle of whatever it does."""
        if self._running is not None:
            self._running.kill()
            self._running = None

    def _start_ours(self, user: User | None) -> None:
        settings = {
            **SOON,
            **self._lines,
            "grpcPort": str(self._grpc_port),
            "tlsCertPath": str(self._certificate.path),
            "tlsKeyPath": str(self._certificate.key_path),
            **_authenticating(user),
        }
        self._running = rockhopper.start(self._directory, settings=settings)

    def _start_apache(self, user: User | None) -> None:
        proxy: dict[str, object] = {
            "tlsTestModeEnable": False,
            "tlsCertPath": str(self._certificate.path),
            "tlsKeyPath": str(self._certificate.key_path),
        }
        if user is not None:
            proxy.update(_APACHE_PROVIDERS, authenticationEnabled=True, **_accounts(user))
            proxy["authenticationMetadataProvider"] = _APACHE_PROXY_USERS
        broker = {**SOON, "recallMessageEnable": "true", **_authenticating(user)}
        if user is not None:
            broker.update(_APACHE_PROVIDERS)
        self._running = apache_proxy.start(
            self._directory, settings=broker, proxy_settings=proxy, ports=self._ports
        )


_AUTH = "org.apache.rocketmq.auth.authentication.provider"
_APACHE_PROVIDERS = {
    "authenticationProvider": f"{_AUTH}.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.LocalAuthenticationMetadataProvider",
}

_APACHE_PROXY_USERS = "org.apache.rocketmq.proxy.auth.ProxyAuthenticationMetadataProvider"


def _accounts(user: User) -> dict[str, str]:
    inner = {"accessKey": user.name, "secretKey": user.password}
    return {
        "initAuthenticationUser": json.dumps({"username": user.name, "password": user.password}),
        "innerClientAuthenticationCredentials": json.dumps(inner),
    }


def _authenticating(user: User | None) -> Mapping[str, str]:
    if user is None:
        return {}
    return {"authenticationEnabled": "true", **_accounts(user)}
