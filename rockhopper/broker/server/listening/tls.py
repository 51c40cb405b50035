"""Tls: the certificate of a process, and the contexts of its ports and connections.

The files are checked every five seconds. A new pair applies from the next handshake on; open
connections keep theirs. If a pair cannot be used (only half of it is replaced yet, the key is
unreadable, the certificate has expired), the old one stays: see RenewedFiles.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import structlog

from rockhopper.broker.server.listening.handshakes import Handshakes
from rockhopper.broker.server.listening.renewed_files import (
    RenewedFiles,
    UnusableFileError,
    unreadable,
)
from rockhopper.broker.settings.tls_config import ClientAuth

log = structlog.get_logger("broker.tls")

LOOK_INTERVAL_S = 5.0
_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


class TlsError(UnusableFileError):
    """A certificate or its key cannot be used; the message says what to do."""


class TlsFiles(NamedTuple):
    """The paths of the server's certificate files."""

    certificate: Path
    key: Path
    key_password: str = ""
    trusted: Path | None = None
    """The CAs of clients' certificates."""
    client_auth: ClientAuth = ClientAuth.NONE

    @property
    def paths(self) -> list[Path]:
        """All paths."""
        return [path for path in (self.certificate, self.key, self.trusted) if path is not None]


class Tls:
    """The server side of TLS, for all ports of a process."""

    def __init__(
        self,
        files: TlsFiles,
        *,
        is_enforced: bool = False,
        now_s: Callable[[], float] = time.time,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the files. Raises TlsError; the clocks are RenewedFiles'."""
        self.files = files
        self.is_enforced = is_enforced
        """Whether a connection without TLS is rejected."""
        self.handshakes = Handshakes()
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {(): server_context(files)}
        self._renewed = RenewedFiles(
            files.paths,
            lambda: {alpn: server_context(files, alpn) for alpn in self._contexts},
            certificate=files.certificate,
            now_s=now_s,
            steady_s=steady_s,
        )
        self._timer: asyncio.TimerHandle | None = None
        try:
            self._contexts = self._renewed.current()
        except UnusableFileError as error:
            raise TlsError(str(error)) from error

    @property
    def expires_at_s(self) -> float:
        """When the certificate expires, in seconds of the epoch."""
        return self._renewed.expires_at_s

    def context(self, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
        """Return the context for the next handshake that may agree on one of *alpn*.

        Raises TlsError.
        """
        found = self._contexts.get(alpn)
        if found is None:
            found = self._contexts[alpn] = server_context(self.files, alpn)
        return found

    def reload(self) -> bool:
        """Read the files again if they may have changed; return whether the certificate is new."""
        if not self._renewed.look():
            return False
        self._contexts = self._renewed.current()
        log.info("TLS uses the new certificate", path=str(self.files.certificate))
        return True

    def start(self) -> None:
        """Start to check the files, until ``close``."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._look)

    def _look(self) -> None:
        self.reload()
        self.start()

    def close(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def server_context(files: TlsFiles, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and newer with the certificate of *files*. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_pair(context, files.certificate, files.key, files.key_password)
    if files.trusted is not None:
        load_trusted(context, files.trusted)
    context.verify_mode = _VERIFY[files.client_auth]
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def load_pair(context: ssl.SSLContext, certificate: Path, key: Path, password: str) -> None:
    """Load a certificate into *context*. Raises TlsError."""
    # Without a function OpenSSL asks on the terminal.
    asked: Callable[[], str] = lambda: password  # noqa: E731
    for path in (certificate, key):
        see_readable(path)
    try:
        context.load_cert_chain(certificate, key, asked)
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(_pair_sentence(certificate, key, str(error), password)) from error


def load_trusted(context: ssl.SSLContext, path: Path) -> None:
    """Make *context* trust certificates signed by those of *path*. Raises TlsError."""
    see_readable(path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(f"{path} holds no certificates in PEM form ({error})") from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def see_readable(path: Path) -> None:
    """Check that a file can be opened. Raises TlsError."""
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise TlsError(unreadable(path, error)) from error


def _pair_sentence(certificate: Path, key: Path, reason: str, password: str) -> str:
    if "KEY_VALUES_MISMATCH" in reason:
        return f"the key {key} does not belong to the certificate {certificate}: name a pair"
    if "ENCRYPTED" in key.read_text("ascii", "replace"):
        what = "does not open it" if password else "is needed"
        return f"the key {key} is encrypted, and tlsKeyPassword {what}"
    return (
        f"the certificate {certificate} and the key {key} cannot be used ({reason}): both must be "
        "in PEM form"
    )
