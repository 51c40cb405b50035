"""From settings to what every port has connections pass."""

import ipaddress
from pathlib import Path

from rockhopper.broker.server.listening.gates import gate_of, gate_with_tls
from rockhopper.broker.server.listening.listener import OPEN
from rockhopper.broker.settings.tls_config import ClientAuth, TlsConfig, TlsMode
from tests.support.certificates import Authority


def test_without_settings_nothing_is_passed_and_nothing_made(tmp_path: Path) -> None:
    assert gate_of(TlsConfig(), tmp_path) is OPEN
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_that_is_named_is_used(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue()
    config = TlsConfig(
        certificate=pair.certificate,
        key=pair.key,
        trusted=authority.ca,
        client_auth=ClientAuth.OPTIONAL,
    )
    tls = gate_of(config, tmp_path).tls
    assert tls is not None
    assert tls.files.certificate == pair.certificate
    assert not tls.is_enforced


def test_where_none_is_named_one_is_made(authority: Authority, tmp_path: Path) -> None:
    config = TlsConfig(mode=TlsMode.ENFORCING, trusted=authority.ca, client_auth=ClientAuth.REQUIRE)
    tls = gate_of(config, tmp_path).tls
    assert tls is not None
    assert tls.is_enforced
    assert tls.files.certificate.parent == tmp_path / "tls"
    assert (tls.files.trusted, tls.files.client_auth) == (authority.ca, ClientAuth.REQUIRE)


def test_a_proxy_is_trusted_without_tls_as_well(tmp_path: Path) -> None:
    networks = (ipaddress.ip_network("10.0.0.0/8"),)
    gate = gate_of(TlsConfig(proxy_protocol=True, proxy_networks=networks), tmp_path)
    assert gate.tls is None
    assert gate.proxy is not None
    assert gate.proxy.trusts("10.1.1.1")


def test_clients_that_speak_tls_by_default_find_it_unless_it_is_disabled(tmp_path: Path) -> None:
    made = gate_with_tls(OPEN, TlsConfig(), tmp_path)
    assert made.tls is not None
    assert not made.tls.is_enforced
    assert gate_with_tls(made, TlsConfig(), tmp_path) is made
    assert gate_with_tls(OPEN, TlsConfig(mode=TlsMode.DISABLED), tmp_path) is OPEN
