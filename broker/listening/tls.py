"""Tls: the certificate of a process, and what its ports and connections make of it.

Files are looked at every five seconds, by size and time of change, and read again when one of them
is another: a new pair counts from the next handshake on, and connections that are open keep theirs.
A pair that cannot be used (half of it replaced as yet, an unreadable key) is said once, and the old
one stays.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from rockhopper.broker.listening.certificate_times import CertificateError, expiry_s
from rockhopper.broker.listening.handshakes import Handshakes
from rockhopper.broker.settings.tls_config import ClientAuth

log = structlog.get_logger("broker.tls")

LOOK_INTERVAL_S = 5.0
_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


class TlsError(Exception):
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

    def stamp(self) -> tuple[tuple[int, int], ...]:
        """What changes when one of the files does."""
        return tuple(map(file_stamp, filter(None, (self.certificate, self.key, self.trusted))))


class Tls:
    """The server's side for all ports of a process."""

    def __init__(self, files: TlsFiles, *, is_enforced: bool = False) -> None:
        """Read the files. Raises TlsError."""
        self.files = files
        self.is_enforced = is_enforced
        """Whether a connection without TLS is refused."""
        self.handshakes = Handshakes()
        self.expires_at_s = 0.0
        """When the certificate ends, in seconds of the epoch."""
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
        self._stamp: tuple[tuple[int, int], ...] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._read(((),))

    def context(self, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
        """What the next handshake uses that may agree on one of *alpn*. Raises TlsError."""
        found = self._contexts.get(alpn)
        if found is None:
            found = self._contexts[alpn] = server_context(self.files, alpn)
        return found

    def _read(self, alpns: tuple[tuple[str, ...], ...]) -> None:
        self._stamp = self.files.stamp()
        contexts = {alpn: server_context(self.files, alpn) for alpn in alpns}
        expires_at_s = certificate_expiry_s(self.files.certificate)
        self._contexts, self.expires_at_s = contexts, expires_at_s

    def reload(self) -> bool:
        """Read the files again if one is another; return whether there is a new certificate.

        What cannot be used is logged, and the old one stays until the files change again.
        """
        if self.files.stamp() == self._stamp:
            return False
        try:
            self._read(tuple(self._contexts))
        except TlsError as error:
            log.error("the certificate stays the old one", reason=str(error))
            return False
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


def file_stamp(path: Path) -> tuple[int, int]:
    """Time of change and size; −1 when there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return -1, -1
    return status.st_mtime_ns, status.st_size


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


def certificate_expiry_s(path: Path) -> float:
    """When the first certificate of *path* ends. Raises TlsError."""
    try:
        return expiry_s(path.read_text("ascii", "replace"))
    except CertificateError as error:
        raise TlsError(f"the certificate {path} cannot be read: {error}") from error
    except OSError as error:
        raise TlsError(_unreadable(path, error)) from error


def see_readable(path: Path) -> None:
    """See that a file can be opened. Raises TlsError."""
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise TlsError(_unreadable(path, error)) from error


def _unreadable(path: Path, error: OSError) -> str:
    return (
        f"{path} cannot be read ({error.strerror or error}): correct the path, or let this user "
        "read it"
    )


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
