"""Tls: the certificate of a process, and what its ports and connections make of it.

Files are looked at every five seconds: a new pair counts from the next handshake on, and
connections that are open keep theirs. A pair that cannot be used (half of it replaced as yet, an
unreadable key, a certificate that has ended) leaves the old one: see RenewedFiles.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    """A certificate or its key cannot be used; str() is a sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the server's side is kept."""

    certificate: Path
    key: Path
    key_password: str = ""
    trusted: Path | None = None
    """The CAs of clients' certificates."""
    client_auth: ClientAuth = ClientAuth.NONE

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        return [path for path in (self.certificate, self.key, self.trusted) if path is not None]


class Tls:
    """The server's side for all ports of a process."""

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
        """Whether a connection without TLS is refused."""
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
        """When the certificate ends, in seconds of the epoch."""
        return self._renewed.expires_at_s

    def context(self, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
        """What the next handshake uses that may agree on one of *alpn*. Raises TlsError."""
        found = self._contexts.get(alpn)
        if found is None:
            found = self._contexts[alpn] = server_context(self.files, alpn)
        return found

    def reload(self) -> bool:
        """Read the files again if they may be others; return whether there is a new certificate."""
        if not self._renewed.look():
            return False
        self._contexts = self._renewed.current()
        log.info("TLS uses the new certificate", path=str(self.files.certificate))
        return True

    def start(self) -> None:
        """Look at the files from now on, until ``close``."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._look)

    def _look(self) -> None:
        self.reload()
        self.start()

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def server_context(files: TlsFiles, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    """A context for TLS 1.2 and newer with the certificate of *files*. Raises TlsError."""
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
    """Have *context* show a certificate. Raises TlsError."""
    # Without a function OpenSSL asks on the terminal.
    asked: Callable[[], str] = lambda: password  # noqa: E731
    for path in (certificate, key):
        see_readable(path)
    try:
        context.load_cert_chain(certificate, key, asked)
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(_pair_sentence(certificate, key, str(error), password)) from error


def load_trusted(context: ssl.SSLContext, path: Path) -> None:
    """Have *context* trust what the certificates of *path* have signed. Raises TlsError."""
    see_readable(path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(f"{path} holds no certificates in PEM form ({error})") from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def see_readable(path: Path) -> None:
    """See that a file can be opened. Raises TlsError."""
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise TlsError(unreadable(path, error)) from error


def _pair_sentence(certificate: Path, key: Path, reason: str, password: str) -> str:
    if "KEY_VALUES_MISMATCH" in reason:
        return f"the key {key} is not that of the certificate {certificate}: name a pair"
    if "ENCRYPTED" in key.read_text("ascii", "replace"):
        what = "does not open it" if password else "is needed"
        return f"the key {key} is encrypted, and tlsKeyPassword {what}"
    return (
        f"the certificate {certificate} and the key {key} cannot be used ({reason}): both must be "
        "in PEM form"
    )
