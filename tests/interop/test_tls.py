"""The official Java client over TLS, as its users switch it on: -Dtls.enable=true."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.bodies import hashes
from tests.interop.conftest import Launcher
from tests.interop.java_client import JavaClient, JavaClientError
from tests.support.certificates import LOCAL, Authority

pytestmark = pytest.mark.interop

COUNT = 200


@contextlib.contextmanager
def java_with(directory: Path, *options: str) -> Iterator[JavaClient]:
    client = JavaClient(directory, options=options)
    try:
        yield client
    finally:
        client.close()


def checking(authority: Authority) -> tuple[str, ...]:
    """What has a Java client check certificates, which it does not by itself."""
    return (
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={authority.ca}",
    )


@pytest.mark.usefixtures("jdk")
@pytest.mark.parametrize("is_checking", [False, True])
def test_it_sends_and_consumes_over_tls(
    launch: Launcher, tmp_path: Path, is_checking: bool
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue(hosts=LOCAL)
    server = launch.rockhopper(
        {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": str(pair.certificate),
            "tls.server.keyPath": str(pair.key),
        }
    )
    address = {"nameserver": server.nameserver, "topic": "Sealed"}
    options = checking(authority) if is_checking else ("-Dtls.enable=true",)
    with java_with(tmp_path / "java", *options) as java:
        java.call("send", **address, count=COUNT, prefix="k")
        consumed = java.call("consume", **address, group="sealed", count=COUNT)
        assert sorted(m["sha1"] for m in consumed["messages"]) == hashes("k", range(COUNT))
        other = authority.issue("other", hosts=LOCAL)
        os.replace(other.key, pair.key)
        os.replace(other.certificate, pair.certificate)
        java.call("send", **address, count=COUNT, prefix="again")


@pytest.mark.usefixtures("jdk")
def test_without_tls_it_is_refused_where_tls_is_enforced(launch: Launcher, tmp_path: Path) -> None:
    server = launch.rockhopper({"tls.server.mode": "enforcing"})
    with java_with(tmp_path / "java") as java, pytest.raises(JavaClientError):
        java.call("topics", nameserver=server.nameserver)
