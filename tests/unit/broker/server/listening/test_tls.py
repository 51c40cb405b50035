"""The certificate of a process: what is refused, and what happens when its files change."""

import os
import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.server.listening.tls import Tls, TlsError, TlsFiles
from rockhopper.broker.settings.tls_config import ClientAuth
from tests.support.certificates import Authority


def test_tls_older_than_1_2_is_not_spoken_and_alpn_only_where_it_is_wanted(
    authority: Authority,
) -> None:
    tls = Tls(TlsFiles(*authority.issue()))
    assert tls.context().minimum_version is ssl.TLSVersion.TLSv1_2
    assert tls.context(("h2",)) is not tls.context()
    assert tls.context(("h2",)) is tls.context(("h2",))


def test_a_client_must_show_a_certificate_where_that_is_required(authority: Authority) -> None:
    files = TlsFiles(*authority.issue(), "", authority.ca, ClientAuth.REQUIRE)
    assert Tls(files).context().verify_mode is ssl.CERT_REQUIRED


def test_what_cannot_be_used_is_said_in_a_sentence(authority: Authority, tmp_path: Path) -> None:
    one, other = authority.issue("one"), authority.issue("other")
    with pytest.raises(TlsError, match="does not belong to the certificate"):
        Tls(TlsFiles(one.certificate, other.key))
    with pytest.raises(TlsError, match="cannot be read"):
        Tls(TlsFiles(tmp_path / "nowhere", one.key))
    with pytest.raises(TlsError, match="PEM form"):
        Tls(TlsFiles(one.key, one.key))
    with pytest.raises(TlsError, match="no certificates in PEM"):
        Tls(TlsFiles(*one, "", one.key))


def test_an_encrypted_key_needs_its_password(authority: Authority) -> None:
    pair = authority.issue(password=b"opensesame")
    Tls(TlsFiles(*pair, "opensesame"))
    with pytest.raises(TlsError, match="tlsKeyPassword"):
        Tls(TlsFiles(*pair))
    with pytest.raises(TlsError, match="tlsKeyPassword") as caught:
        Tls(TlsFiles(*pair, "barley"))
    assert "barley" not in str(caught.value)


def test_a_new_pair_counts_from_then_on(authority: Authority) -> None:
    pair = authority.issue(days=10)
    tls = Tls(TlsFiles(*pair))
    old, ended_s = tls.context(), tls.expires_at_s
    assert not tls.reload()
    authority.issue(days=20)
    assert tls.reload()
    assert tls.context() is not old
    assert tls.expires_at_s > ended_s


def test_half_a_new_pair_leaves_the_old_one_and_is_said_once(authority: Authority) -> None:
    pair = authority.issue()
    tls = Tls(TlsFiles(*pair))
    tls.context(("h2",))
    old = tls.context(), tls.context(("h2",))
    other = authority.issue("other")
    os.replace(other.certificate, pair.certificate)
    with capture_logs() as lines:
        assert not tls.reload()
        assert not tls.reload()
    assert [line["log_level"] for line in lines] == ["error"]
    assert (tls.context(), tls.context(("h2",))) == old
    os.replace(other.key, pair.key)
    assert tls.reload()
    assert tls.context(("h2",)) is not old[1]


def test_a_file_that_has_gone_leaves_the_old_one(authority: Authority) -> None:
    pair = authority.issue()
    tls = Tls(TlsFiles(*pair))
    pair.key.unlink()
    assert not tls.reload()
    tls.context()
