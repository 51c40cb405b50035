"""RenewedFiles: the content of files that are replaced while the broker runs, as certificates.

The files are read again when the stamp of one changes, or when the last read failed. So a renewed
key that this user cannot read is loaded once its mode is corrected. Until then the former content
stays in use, and the reason is logged once a minute.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from rockhopper.broker.server.listening.certificate_times import CertificateError, expiry_s

log = structlog.get_logger("broker.tls")

SAME_COMPLAINT_S = 60.0

Value = TypeVar("Value")
Stamp = tuple[int, ...]


class UnusableFileError(Exception):
    """A file has the wrong content; the message says what to do."""


class RenewedFiles(Generic[Value]):
    """The value that *read* makes from some files; belongs to one event loop."""

    def __init__(
        self,
        paths: Sequence[Path],
        read: Callable[[], Value],
        *,
        certificate: Path | None = None,
        now_s: Callable[[], float] = time.time,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """*read* raises OSError, ValueError or UnusableFileError for unusable files.

        A *certificate* that has expired by *now_s* never replaces a valid one.
        """
        self._paths = paths
        self._read = read
        self._certificate = certificate
        self._now_s = now_s
        self._steady_s = steady_s
        self._found: list[Value] = []
        self._stamps: tuple[Stamp, ...] | None = None
        self._told_at_s: float | None = None
        self.expires_at_s = 0.0
        """When the certificate expires, in seconds of the epoch."""

    def current(self) -> Value:
        """Return the newest value that could be read; raises as ``look``."""
        self.look()
        return self._found[0]

    def look(self) -> bool:
        """Read the files if they may have changed; return whether there is a new value.

        Raises:
            OSError, ValueError, UnusableFileError: no read has succeeded yet.
        """
        stamps = self._read_stamps()
        if self._found and stamps == self._stamps:
            return False
        try:
            value, expires_at_s = self._read(), self._expiry_s()
        except (OSError, ValueError, UnusableFileError) as error:
            if not self._found:
                raise
            self._stamps = None
            self._complain(str(error))
            return False
        self._found, self.expires_at_s = [value], expires_at_s
        # If one was replaced meanwhile, the files are read again.
        self._stamps = stamps if self._read_stamps() == stamps else None
        self._told_at_s = None
        return True

    def _read_stamps(self) -> tuple[Stamp, ...]:
        return tuple(map(file_stamp, self._paths))

    def _expiry_s(self) -> float:
        if self._certificate is None:
            return 0.0
        expires_at_s = certificate_expiry_s(self._certificate)
        if self._found and expires_at_s <= self._now_s() < self.expires_at_s:
            raise UnusableFileError(f"the certificate {self._certificate} has expired")
        return expires_at_s

    def _complain(self, reason: str) -> None:
        now_s = self._steady_s()
        if self._told_at_s is None or now_s - self._told_at_s >= SAME_COMPLAINT_S:
            self._told_at_s = now_s
            paths = ", ".join(map(str, self._paths))
            log.error(
                "changed files cannot be loaded: their old content stays in use",
                paths=paths,
                reason=reason,
            )


def current(value: Value | Callable[[], Value]) -> Value:
    """Return the value; if it is a callable, its result."""
    return value() if callable(value) else value


def file_stamp(path: Path) -> Stamp:
    """Return a stamp of a file's content, mode and owner; empty if there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


def certificate_expiry_s(path: Path) -> float:
    """Return when the first certificate of *path* expires. Raises UnusableFileError."""
    try:
        return expiry_s(path.read_text("ascii", "replace"))
    except CertificateError as error:
        raise UnusableFileError(f"the certificate {path} cannot be read: {error}") from error
    except OSError as error:
        raise UnusableFileError(unreadable(path, error)) from error


def unreadable(path: Path, error: OSError) -> str:
    """Return a sentence: why a file cannot be read, and what to do."""
    return (
        f"{path} cannot be read ({error.strerror or error}): correct the path, or let this user "
        "read it"
    )
