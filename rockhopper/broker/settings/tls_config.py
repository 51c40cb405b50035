"""TLS and the PROXY protocol, for every port of a process and for what it connects to itself.

The keys are RocketMQ's ``tls.*`` (its JVM properties, or those of the file tls.config.file) spelt
as the other settings are: tls.server.mode is tlsServerMode.
"""

# ruff: noqa: RUF009  (setting() makes fields; it is no shared mutable default)

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rockhopper.broker.settings.setting_fields import SettingError, check_fields, setting
from rockhopper.paths import expand_home
from rockhopper.protocol.bodies.properties_text import decode_properties_text
from rockhopper.protocol.errors import MalformedBodyError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class TlsMode(Enum):
    """Whether a port speaks TLS."""

    AUTO = "auto"
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(Enum):
    """Whether clients show certificates."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, kw_only=True)
class TlsConfig:
    """How connections are protected."""

    mode: TlsMode = setting("tlsServerMode", TlsMode.AUTO)
    """``permissive`` takes connections with TLS and without on one port, ``enforcing`` only those
    with it, ``disabled`` only those without. ``auto`` is permissive once a certificate is named,
    and disabled until then, but for gRPC, where TLS is always there beside the rest.

    Cost: with TLS, the processor's time for each byte and a handshake for each connection; what
    goes without it stays as it was.
    """

    certificate: Path | None = setting("tlsCertPath", None)
    """The certificate, with those between it and its CA behind it, in PEM form. Where the mode asks
    for one and none is named, one for development is made, below config/tls of the store."""

    key: Path | None = setting("tlsKeyPath", None)
    """The key of tlsCertPath, in PEM form. Both are read again when they change."""

    key_password: str = setting("tlsKeyPassword", "")
    """What opens an encrypted key. Better leave the key plain and readable to this user alone.

    Cost: safety: it stands in the settings.
    """

    trusted: Path | None = setting("tlsTrustCertPath", None)
    """The CAs whose certificates clients may show, in PEM form."""

    client_auth: ClientAuth = setting("tlsClientAuth", ClientAuth.NONE)
    """Whether clients must show a certificate of tlsTrustCertPath: none, optional or require.

    Cost: require shuts out clients that have no certificate.
    """

    enable: bool = setting("tlsEnable", False)
    """Whether this process speaks TLS to the name services, masters and replicas that it
    connects to. With tlsServerMode=enforcing it does in any case.

    Cost: the processor's time for each byte, as of tlsServerMode.
    """

    client_certificate: Path | None = setting("tlsClientCertPath", None)
    """The certificate that this process shows to those; empty: tlsCertPath."""

    client_key: Path | None = setting("tlsClientKeyPath", None)
    """The key of tlsClientCertPath."""

    client_key_password: str = setting("tlsClientKeyPassword", "")
    """What opens that key, if it is encrypted.

    Cost: safety: it stands in the settings.
    """

    client_trusted: Path | None = setting("tlsClientTrustCertPath", None)
    """The CAs that those must be of; empty: tlsTrustCertPath, or else tlsCertPath itself, which all
    brokers of a cluster may share."""

    client_auth_server: bool = setting("tlsClientAuthServer", True)
    """Whether certificates of those are checked.

    Cost: false: safety, for it lets anybody in between.
    """

    proxy_protocol: bool = setting("proxyProtocol", False)
    """Ours. Whether connections from proxyProtocolFrom may begin with a header of the PROXY
    protocol (1 or 2), which says whose they are."""

    proxy_networks: tuple[Network, ...] = setting(
        "proxyProtocolFrom", (), separator=",", element=ipaddress.ip_network
    )
    """Ours. The balancers' addresses or networks, with ``,`` between.

    Cost: safety: whoever connects from there can pretend to be anybody.
    """

    def __post_init__(self) -> None:
        check_fields(self)
        _check_pair("tlsCertPath", self.certificate, "tlsKeyPath", self.key)
        _check_pair(
            "tlsClientCertPath", self.client_certificate, "tlsClientKeyPath", self.client_key
        )
        if self.client_auth is not ClientAuth.NONE and self.trusted is None:
            raise SettingError(
                "tlsClientAuth",
                self.client_auth,
                "tlsTrustCertPath is needed, with the CAs of the clients' certificates",
            )
        if self.proxy_protocol and not self.proxy_networks:
            raise SettingError(
                "proxyProtocol",
                True,
                "proxyProtocolFrom is needed, with the addresses of the balancers",
            )

    @property
    def is_served(self) -> bool:
        """Whether ports speak TLS."""
        if self.mode is TlsMode.AUTO:
            return self.certificate is not None
        return self.mode is not TlsMode.DISABLED

    @property
    def is_enforced(self) -> bool:
        """Whether ports speak nothing else."""
        return self.mode is TlsMode.ENFORCING

    @property
    def is_spoken(self) -> bool:
        """Whether this process speaks TLS to others."""
        return self.enable or self.is_enforced


def _check_pair(first: str, certificate: Path | None, second: str, key: Path | None) -> None:
    given = certificate or key
    if given is not None and (certificate is None or key is None):
        there, missing = (first, second) if key is None else (second, first)
        raise SettingError(
            there, given, f"{missing} is needed too: a certificate and its key go together"
        )


SECRETS = ("tlsKeyPassword", "tlsClientKeyPassword")
"""Settings whose values are shown to nobody."""

TLS_FILE = "tls.config.file"
TLS_SPELLINGS = {
    "tls.server.mode": "tlsServerMode",
    "tls.server.certPath": "tlsCertPath",
    "tls.server.keyPath": "tlsKeyPath",
    "tls.server.keyPassword": "tlsKeyPassword",
    "tls.server.trustCertPath": "tlsTrustCertPath",
    "tls.server.need.client.auth": "tlsClientAuth",
    "tls.enable": "tlsEnable",
    "tls.client.certPath": "tlsClientCertPath",
    "tls.client.keyPath": "tlsClientKeyPath",
    "tls.client.keyPassword": "tlsClientKeyPassword",
    "tls.client.trustCertPath": "tlsClientTrustCertPath",
    "tls.client.authServer": "tlsClientAuthServer",
}
# A server's own certificate in place of a made one is what naming it means here; and the chain of a
# client's certificate is always checked.
_IMPLIED = frozenset({"tls.test.mode.enable", "tls.server.authClient"})


def in_our_spelling(texts: Mapping[str, str]) -> dict[str, str]:
    """*texts* with RocketMQ's keys for TLS under ours, which count before."""
    full = {key: text for key, text in texts.items() if key not in _IMPLIED}
    for key, ours in TLS_SPELLINGS.items():
        if key in full:
            full.setdefault(ours, full.pop(key))
    return full


def with_tls_file(texts: Mapping[str, str]) -> dict[str, str]:
    """*texts* with what the file has that they name; what they say themselves counts before.

    Raises:
        SettingError: the file cannot be read.
    """
    full = dict(texts)
    named = full.pop(TLS_FILE, "").strip()
    return in_our_spelling(_of_file(named)) | full if named else full


def _of_file(name: str) -> dict[str, str]:
    try:
        return decode_properties_text(expand_home(name).read_bytes())
    except OSError as error:
        raise SettingError(TLS_FILE, name, f"it cannot be read ({error.strerror})") from None
    except MalformedBodyError as error:
        raise SettingError(TLS_FILE, name, str(error)) from None
