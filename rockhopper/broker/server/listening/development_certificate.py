"""A development certificate: made once, so that TLS works before there is a real one.

    <directory>/certificate.pem     EC P-256, self-signed, valid for 825 days
    <directory>/key.pem             its key, readable by this user alone

It names this machine, its loopback addresses and the advertised address. If it has expired, or its
files are damaged, a new one is made.
"""

import hashlib
import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from rockhopper.broker.server.listening.renewed_files import UnusableFileError, certificate_expiry_s
from rockhopper.broker.server.listening.tls import TlsError, TlsFiles, server_context
from rockhopper.broker.store.files.disk import make_directories, write_atomically

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

log = structlog.get_logger("broker.tls")

DAYS = 825
NEEDED = (
    "TLS needs a certificate: name one with tlsCertPath and tlsKeyPath, or let the broker create "
    "one for development: pip install 'rockhopper-mq[tls]'"
)
_KEY_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
_NAMES = ("localhost", "127.0.0.1", "::1")


def development_files(
    directory: Path, names: Iterable[str], now_s: Callable[[], float] = time.time
) -> TlsFiles:
    """Return the certificate in *directory*; make it unless a usable one exists.

    *names* are hosts and addresses to include, in addition to those of this machine.

    Raises:
        TlsError: it cannot be made; the sentence says what to install or to name.
        OSError: it cannot be stored.
    """
    files = TlsFiles(directory / "certificate.pem", directory / "key.pem")
    problem = _problem(files, now_s())
    if problem:
        if files.certificate.exists():
            log.warning("creating a new development certificate", reason=problem)
        _make(files, names, now_s())
    log.warning(
        "TLS uses a self-signed development certificate: name your own with tlsCertPath and "
        "tlsKeyPath",
        path=str(files.certificate),
        sha256=_fingerprint(files.certificate),
    )
    return files


def _problem(files: TlsFiles, now_s: float) -> str:
    """Return why the files cannot be used; blank if they can."""
    try:
        server_context(files)
        expires_at_s = certificate_expiry_s(files.certificate)
    except UnusableFileError as error:
        return str(error)
    return "it has expired" if expires_at_s <= now_s else ""


def _make(files: TlsFiles, names: Iterable[str], now_s: float) -> None:
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise TlsError(NEEDED) from error
    key = ec.generate_private_key(ec.SECP256R1())
    begun = _builder([*_NAMES, socket.gethostname(), *names], now_s)
    certificate = _add_identity(begun, key.public_key()).sign(key, hashes.SHA256())
    make_directories(files.key.parent)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = key.private_bytes(pem, pkcs8, serialization.NoEncryption())
    # The key first: a certificate without its key would look like a damaged pair.
    _write_private(files.key, private)
    write_atomically(files.certificate, certificate.public_bytes(pem))


def _builder(names: list[str], now_s: float) -> "x509.CertificateBuilder":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rockhopper")])
    # Clocks of clients may be behind.
    begin = datetime.fromtimestamp(now_s, UTC) - timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=DAYS))
        .add_extension(
            x509.SubjectAlternativeName([_general_name(each) for each in dict.fromkeys(names)]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )


def _add_identity(
    builder: "x509.CertificateBuilder", key: "ec.EllipticCurvePublicKey"
) -> "x509.CertificateBuilder":
    """Add what CPython 3.13 and later ask of every certificate (VERIFY_X509_STRICT)."""
    from cryptography import x509

    usage = dict.fromkeys(_KEY_USAGES, False) | {"digital_signature": True}
    return (
        builder.public_key(key)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key), critical=False)
    )


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name.partition("%")[0]))
    except ValueError:
        return x509.DNSName(name.encode("idna").decode("ascii"))


def _write_private(path: Path, data: bytes) -> None:
    """``write_atomically`` for a file that no other user may read at any moment."""
    old = os.umask(0o077)
    try:
        path.unlink(missing_ok=True)
        write_atomically(path, data)
    finally:
        os.umask(old)


def _fingerprint(path: Path) -> str:
    text = path.read_text("ascii")
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text)).hexdigest()
