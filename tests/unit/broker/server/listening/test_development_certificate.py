"""The certificate that is made where none is named."""

import stat
import sys
import time
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from rockhopper.broker.server.listening.development_certificate import DAYS, development_files
from rockhopper.broker.server.listening.tls import TlsError


def names_of(path: Path) -> set[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(each.value) for each in names}


def test_it_names_this_machine_and_its_key_is_for_its_user_alone(tmp_path: Path) -> None:
    with capture_logs() as lines:
        files = development_files(tmp_path / "tls", ["10.1.2.3", "broker.example"])
    wanted = {"localhost", "127.0.0.1", "::1", "10.1.2.3", "broker.example"}
    assert wanted <= names_of(files.certificate)
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert lines[0]["path"] == str(files.certificate)
    assert len(lines[0]["sha256"]) == 64


def test_it_is_made_once(tmp_path: Path) -> None:
    made = development_files(tmp_path, []).certificate.read_bytes()
    assert development_files(tmp_path, []).certificate.read_bytes() == made


@pytest.mark.parametrize("name", ["certificate.pem", "key.pem"])
def test_a_damaged_one_is_made_anew_and_that_is_said(tmp_path: Path, name: str) -> None:
    development_files(tmp_path, [])
    (tmp_path / name).write_bytes(b"half of it")
    with capture_logs() as lines:
        development_files(tmp_path, [])
    assert "creating a new" in lines[0]["event"]
    with capture_logs() as lines:
        development_files(tmp_path, [])
    assert len(lines) == 1


def test_one_that_has_ended_is_made_anew(tmp_path: Path) -> None:
    long_ago_s = time.time() - (DAYS + 1) * 86_400
    made = development_files(tmp_path, [], lambda: long_ago_s).certificate.read_bytes()
    assert development_files(tmp_path, []).certificate.read_bytes() != made


def test_what_is_missing_to_make_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(TlsError, match=r"rockhopper-mq\[tls\]"):
        development_files(tmp_path, [])
