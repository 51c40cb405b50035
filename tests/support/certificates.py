"""Certificates for tests: a CA, and the certificates that it issues."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOCAL = ("localhost", "127.0.0.1")


class Pair(NamedTuple):
    """The files of a certificate and its key."""

    certificate: Path
    key: Path

    def options(self) -> list[str]:
        """Return the options with which a daemon uses it."""
        return [f"--set=tlsCertPath={self.certificate}", f"--set=tlsKeyPath={self.key}"]


class Authority:
    """A CA that writes its certificates to *directory*."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        certificate = self._signed(self._name, self._key, (), 30, is_ca=True)
        self.ca = directory / f"{name}.pem"
        self.ca.write_bytes(_pem(certificate))

    def issue(
        self,
        name: str = "broker",
        hosts: tuple[str, ...] = LOCAL,
        days: int = 30,
        password: bytes = b"",
    ) -> Pair:
        """Issue a certificate for *hosts*; with *days* below 0 it has already expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        pair.certificate.write_bytes(_pem(self._signed(_name(name), key, hosts, days)))
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password)
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        pair.key.write_bytes(key.private_bytes(pem, form, encryption))
        return pair

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        hosts: tuple[str, ...],
        days: int,
        *,
        is_ca: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=60))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(_usage(is_ca=is_ca), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
