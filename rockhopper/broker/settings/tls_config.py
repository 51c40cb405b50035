"""TLS and the PROXY protocol, for every port of a process and for its outgoing connections.

The keys are RocketMQ's ``tls.*`` (its JVM properties, or those of the file tls.config.file), spelt
like the other settings: tls.server.mode is tlsServerMode.
"""

import ipaddress
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from rockhopper.broker.settings.setting_fields import (
    SettingError,
    check_fields,
    setting,
    settings_dataclass,
)
from rockhopper.paths import expand_home
from rockhopper.protocol.bodies.properties_text import decode_properties_text
from rockhopper.protocol.errors import MalformedBodyError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class TlsMode(Enum):
    """Whether a port uses TLS."""

    AUTO = "auto"
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(Enum):
    """Whether clients present certificates."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@settings_dataclass(frozen=True)
class TlsConfig:
    """The protection of connections."""

    mode: TlsMode = setting("tlsServerMode", TlsMode.AUTO)
    """``permissive`` accepts connections with and without TLS on one port, ``enforcing`` only those
    with it, ``disabled`` only those without. ``auto`` is permissive when a certificate is named,
    and disabled otherwise, except for gRPC, which always accepts both.

    Cost: with TLS, processor time for each byte and a handshake for each connection; connections
    without it cost nothing more.
    """

    certificate: Path | None = setting("tlsCertPath", None)
    """The certificate in PEM form, followed by its intermediate certificates. When the mode needs a
    certificate and none is named, the broker creates one for development, in config/tls of the
    store."""

    key: Path | None = setting("tlsKeyPath", None)
    """The key of tlsCertPath, in PEM form. The broker reads both again when they change."""

    key_password: str = setting("tlsKeyPassword", "")
    """The password of an encrypted key. A plain key that only the broker's user can read is better.

    Cost: safety: the password is in the settings.
    """

    trusted: Path | None = setting("tlsTrustCertPath", None)
    """The CAs of client certificates, in PEM form."""

    client_auth: ClientAuth = setting("tlsClientAuth", ClientAuth.NONE)
    """Whether clients must present a certificate of tlsTrustCertPath: none, optional or require.

    Cost: require shuts out clients that have no certificate.
    """

    enable: bool = setting("tlsEnable", False)
    """Whether this process uses TLS towards the name servers, masters and replicas that it
    connects to. With tlsServerMode=enforcing it always does.

    Cost: processor time for each byte, as for tlsServerMode.
    """

    client_certificate: Path | None = setting("tlsClientCertPath", None)
    """The certificate that this process presents to these servers; empty: tlsCertPath."""

    client_key: Path | None = setting("tlsClientKeyPath", None)
    """The key of tlsClientCertPath."""

    client_key_password: str = setting("tlsClientKeyPassword", "")
    """The password of that key, if it is encrypted.

    Cost: safety: the password is in the settings.
    """

    client_trusted: Path | None = setting("tlsClientTrustCertPath", None)
    """The CAs of these servers' certificates; empty: tlsTrustCertPath, or else tlsCertPath itself,
    which all brokers of a cluster may share."""

    client_auth_server: bool = setting("tlsClientAuthServer", True)
    """Whether this process verifies these servers' certificates.

    Cost: false: safety, it allows a man in the middle.
    """

    proxy_protocol: bool = setting("proxyProtocol", False)
    """Ours. Whether connections from proxyProtocolFrom may begin with a header of the PROXY
    protocol (1 or 2), which names the real client."""

    proxy_networks: tuple[Network, ...] = setting(
        "proxyProtocolFrom", (), separator=",", element=ipaddress.ip_network
    )
    """Ours. The balancers' addresses or networks, separated by ``,``.

    Cost: safety: a host that connects from there can claim any client address.
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
        """Whether ports accept TLS."""
        if self.mode is TlsMode.AUTO:
            return self.certificate is not None
        return self.mode is not TlsMode.DISABLED

    @property
    def is_enforced(self) -> bool:
        """Whether ports accept only TLS."""
        return self.mode is TlsMode.ENFORCING

    @property
    def is_spoken(self) -> bool:
        """Whether this process uses TLS towards others."""
        return self.enable or self.is_enforced


def _check_pair(first: str, certificate: Path | None, second: str, key: Path | None) -> None:
    given = certificate or key
    if given is not None and (certificate is None or key is None):
        there, missing = (first, second) if key is None else (second, first)
        raise SettingError(
            there, given, f"{missing} is needed too: a certificate and its key go together"
        )


SECRETS = ("tlsKeyPassword", "tlsClientKeyPassword")
"""Settings whose values are never shown."""

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
# Here a named server certificate always replaces a generated one, and the chain of a client's
# certificate is always checked.
_IMPLIED = frozenset({"tls.test.mode.enable", "tls.server.authClient"})


def rename_tls_keys(texts: Mapping[str, str]) -> dict[str, str]:
    """Return *texts* with RocketMQ's TLS keys replaced by ours, which take precedence."""
    full = {key: text for key, text in texts.items() if key not in _IMPLIED}
    for key, ours in TLS_SPELLINGS.items():
        if key in full:
            full.setdefault(ours, full.pop(key))
    return full


def with_tls_file(texts: Mapping[str, str]) -> dict[str, str]:
    """Return *texts* with the entries of the TLS file they name; their own entries take precedence.

    Raises:
        SettingError: the file cannot be read.
    """
    full = dict(texts)
    named = full.pop(TLS_FILE, "").strip()
    return rename_tls_keys(_of_file(named)) | full if named else full


def _of_file(name: str) -> dict[str, str]:
    try:
        return decode_properties_text(expand_home(name).read_bytes())
    except OSError as error:
        raise SettingError(TLS_FILE, name, f"it cannot be read ({error.strerror})") from None
    except MalformedBodyError as error:
        raise SettingError(TLS_FILE, name, str(error)) from None
