"""TLS of what a broker connects to itself."""

import ssl
from pathlib import Path

import pytest

from rockhopper.broker.server.listening.outgoing import PLAIN, Outgoing
from rockhopper.broker.settings.tls_config import TlsConfig, TlsMode
from tests.support.certificates import Authority


def outgoing(authority: Authority) -> tuple[Outgoing, Path]:
    pair = authority.issue()
    config = TlsConfig(mode=TlsMode.ENFORCING, certificate=pair.certificate, key=pair.key)
    return Outgoing(config), pair.certificate


def test_without_settings_it_is_plain() -> None:
    assert PLAIN.options("10.0.0.1") == {}
    assert not Outgoing(TlsConfig(mode=TlsMode.PERMISSIVE)).is_tls


def test_certificates_are_checked_and_names_but_of_this_machine(authority: Authority) -> None:
    made, _ = outgoing(authority)
    there, here = made.options("10.0.0.1")["ssl"], made.options("127.0.0.1")["ssl"]
    assert there.check_hostname
    assert not here.check_hostname
    assert here.verify_mode is there.verify_mode is ssl.CERT_REQUIRED
    assert made.options("10.0.0.1")["ssl"] is there


def test_files_that_have_changed_are_read_again(authority: Authority) -> None:
    made, certificate = outgoing(authority)
    old = made.options("10.0.0.1")["ssl"]
    authority.issue(hosts=("another.example",))
    assert made.options("10.0.0.1")["ssl"] is not old
    newer = made.options("10.0.0.1")["ssl"]
    certificate.write_text("nothing")
    assert made.options("10.0.0.1")["ssl"] is newer


def test_files_that_could_never_be_used_are_named(authority: Authority) -> None:
    made, certificate = outgoing(authority)
    certificate.write_text("nothing")
    with pytest.raises(ConnectionError, match="PEM form"):
        made.options("10.0.0.1")


def test_checking_can_be_left_out() -> None:
    context = Outgoing(TlsConfig(enable=True, client_auth_server=False)).options("h")["ssl"]
    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname
