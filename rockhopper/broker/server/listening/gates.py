"""Make the gate of a process from its settings."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rockhopper.broker.server.listening.development_certificate import development_files
from rockhopper.broker.server.listening.listener import OPEN, Gate
from rockhopper.broker.server.listening.proxy_protocol import ProxyProtocol
from rockhopper.broker.server.listening.tls import Tls, TlsFiles
from rockhopper.broker.settings.tls_config import TlsConfig, TlsMode

DEVELOPMENT_DIRECTORY = "tls"
"""Below <store>/config."""


def files_of(
    config: TlsConfig,
    directory: Path,
    names: Iterable[str] = (),
    now_s: Callable[[], float] = time.time,
) -> TlsFiles:
    """Return the certificate of *config*, or a development one below *directory*.

    *directory* is that of the store's tables.

    Raises:
        TlsError: there is none, and none can be made.
        OSError: the new one cannot be stored.
    """
    if config.certificate is None or config.key is None:
        files = development_files(directory / DEVELOPMENT_DIRECTORY, names, now_s)
        return TlsFiles(files.certificate, files.key, "", config.trusted, config.client_auth)
    return TlsFiles(
        config.certificate, config.key, config.key_password, config.trusted, config.client_auth
    )


def gate_of(config: TlsConfig, directory: Path, names: Iterable[str] = ()) -> Gate:
    """Return the common gate of all ports of a process. Raises TlsError, OSError."""
    proxy = ProxyProtocol(config.proxy_networks) if config.proxy_protocol else None
    if not config.is_served:
        return OPEN if proxy is None else Gate(None, proxy)
    tls = Tls(files_of(config, directory, names), is_enforced=config.is_enforced)
    return Gate(tls, proxy)


def gate_with_tls(
    gate: Gate, config: TlsConfig, directory: Path, names: Iterable[str] = ()
) -> Gate:
    """Return *gate* with TLS unless the settings disable it: for clients that expect TLS.

    Raises TlsError, OSError.
    """
    if gate.tls is not None or config.mode is TlsMode.DISABLED:
        return gate
    return Gate(Tls(files_of(config, directory, names)), gate.proxy)
