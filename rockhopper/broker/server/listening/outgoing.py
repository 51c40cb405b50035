"""Outgoing: TLS of the broker's connections to name servers, masters and replicas.

Its certificate and trusted CAs are loaded again whenever the files change. A connection to this
machine needs no name in the certificate: no other machine answers on a loopback address.
"""

import ssl
from pathlib import Path
from typing import Any

from rockhopper.broker.server.listening.handshakes import HANDSHAKE_TIMEOUT_S, SHUTDOWN_TIMEOUT_S
from rockhopper.broker.server.listening.renewed_files import RenewedFiles, UnusableFileError
from rockhopper.broker.server.listening.tls import load_pair, load_trusted
from rockhopper.broker.settings.tls_config import TlsConfig
from rockhopper.protocol.addresses import is_loopback


class Outgoing:
    """The outgoing TLS configuration of one process."""

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._renewed = RenewedFiles(
            self._files(),
            lambda: [self._make(with_name=with_name) for with_name in (False, True)],
            certificate=self._pair()[0],
        )

    @property
    def is_tls(self) -> bool:
        """Whether outgoing connections use TLS."""
        return self._config.is_spoken

    def options(self, host: str) -> dict[str, Any]:
        """Return the arguments for ``create_connection`` to *host*, besides the address.

        Raises:
            OSError: a file of the settings cannot be used; the sentence says which.
        """
        if not self.is_tls:
            return {}
        return {
            "ssl": self._context(with_name=not is_loopback(host)),
            "server_hostname": host.partition("%")[0],
            "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S,
            "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_S,
        }

    def _context(self, *, with_name: bool) -> ssl.SSLContext:
        try:
            return self._renewed.current()[with_name]
        except UnusableFileError as error:
            # In either case the caller cannot connect to that address.
            raise ConnectionError(str(error)) from error

    def _pair(self) -> tuple[Path | None, Path | None, str]:
        config = self._config
        if config.client_certificate is not None:
            return config.client_certificate, config.client_key, config.client_key_password
        return config.certificate, config.key, config.key_password

    def _find_trusted(self) -> Path | None:
        config = self._config
        return config.client_trusted or config.trusted or config.certificate

    def _files(self) -> list[Path]:
        certificate, key, _ = self._pair()
        return [path for path in (certificate, key, self._find_trusted()) if path is not None]

    def _make(self, *, with_name: bool) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = with_name and self._config.client_auth_server
        if not self._config.client_auth_server:
            context.verify_mode = ssl.CERT_NONE
        certificate, key, password = self._pair()
        if certificate is not None and key is not None:
            load_pair(context, certificate, key, password)
        trusted = self._find_trusted()
        if trusted is not None:
            load_trusted(context, trusted)
        return context


PLAIN = Outgoing(TlsConfig())
"""Without TLS."""
