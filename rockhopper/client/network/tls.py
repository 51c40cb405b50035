"""TLS of a client: its certificate, the CAs it trusts, and explanations of failed handshakes.

Unless the program passes options, the environment decides:

    ROCKHOPPER_TLS          true: use TLS
    ROCKHOPPER_TLS_CA       a file of CAs in PEM form, instead of the system's; implies TLS
    ROCKHOPPER_TLS_CERT     the client's certificate, and
    ROCKHOPPER_TLS_KEY      its key; imply TLS
    ROCKHOPPER_TLS_VERIFY   false: accept any certificate, and so a man in the middle

Options contain paths of files, never their content, because they appear in query plans and logs.
"""

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

TLS_VARIABLE = "ROCKHOPPER_TLS"
CA_VARIABLE = "ROCKHOPPER_TLS_CA"
CERTIFICATE_VARIABLE = "ROCKHOPPER_TLS_CERT"
KEY_VARIABLE = "ROCKHOPPER_TLS_KEY"
VERIFY_VARIABLE = "ROCKHOPPER_TLS_VERIFY"
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off", ""})


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS options of a client; all paths are of PEM files."""

    ca: str | Path | None = None
    """The CAs that must have signed the brokers' certificates; None: the system's CAs."""
    certificate: str | Path | None = None
    """This client's certificate, for brokers that require one."""
    key: str | Path | None = None
    """Its private key; None: it is in the same file."""
    verify: bool = True
    """False accepts any certificate: no eavesdropping, but a man in the middle is possible."""

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise ValueError("a TLS key needs its certificate: name both")

    def context(self) -> ssl.SSLContext:
        """Return the SSL context; changed files are read again.

        Raises:
            OSError: a file cannot be used; the message names it.
        """
        return _context(self, tuple(map(_stamp, (self.ca, self.certificate, self.key))))


Tls = bool | TlsOptions | None
"""What clients take: True for the system's CAs, False for none, None for the environment's."""


def choose_tls(tls: Tls, environment: Mapping[str, str] = os.environ) -> TlsOptions | None:
    """Return the options for the argument *tls*; None: no TLS. Raises ValueError."""
    if tls is None:
        return _read_environment(environment)
    if isinstance(tls, bool):
        return TlsOptions() if tls else None
    return tls


def _read_environment(environment: Mapping[str, str]) -> TlsOptions | None:
    ca, certificate, key = (
        environment.get(name) or None for name in (CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE)
    )
    is_wanted = _read_boolean(environment, TLS_VARIABLE, bool(ca or certificate))
    verify = _read_boolean(environment, VERIFY_VARIABLE, True)
    return TlsOptions(ca, certificate, key, verify) if is_wanted else None


def _read_boolean(environment: Mapping[str, str], name: str, default: bool) -> bool:
    text = environment.get(name)
    if text is None:
        return default
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{name} is {text!r}: set it to true or false")
    return text.lower() in _TRUE


def _stamp(path: str | Path | None) -> tuple[int, int]:
    if path is None:
        return 0, 0
    status = _check_readable(path)
    return status.st_mtime_ns, status.st_size


def _check_readable(path: str | Path) -> os.stat_result:
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno())
    except OSError as error:
        raise OSError(error.errno, f"{path} cannot be read ({error.strerror})") from None


@lru_cache(maxsize=16)
def _context(options: TlsOptions, _stamps: Any) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca)
        if options.ca is not None:
            # The CA file may also contain a broker's own certificate.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if options.certificate is not None:
            context.load_cert_chain(options.certificate, options.key, lambda: "")
    except ssl.SSLError as error:
        named = ", ".join(
            str(path) for path in (options.ca, options.certificate, options.key) if path is not None
        )
        raise OSError(f"{named} cannot be used for TLS ({error}): PEM form is needed") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def is_tls_transport(transport: asyncio.BaseTransport) -> bool:
    """Whether a connection uses TLS."""
    return transport.get_extra_info("ssl_object") is not None


def find_remedy(error: BaseException, *, is_tls: bool) -> tuple[str, str] | None:
    """Return the reason of a failed connection and a remedy, if TLS is the cause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _find_certificate_remedy(error)
    text = str(error)
    for mark, found in _REMEDIES.items():
        if mark in text.lower():
            return found
    if is_tls and isinstance(error, (ssl.SSLError, ConnectionResetError, ConnectionAbortedError)):
        return f"does not speak TLS ({text or type(error).__name__})", _PLAIN_REMEDY
    return None


def _find_certificate_remedy(error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    said = error.verify_message or str(error)
    if "mismatch" in said.lower():
        return (
            f"has a certificate for a different name ({said})",
            "connect by a name in the certificate, or have this name added",
        )
    if "expired" in said or "not yet valid" in said:
        return f"has a certificate that is not valid now ({said})", "check its dates, and the clock"
    return (
        f"has a certificate of an unknown CA ({said})",
        "name the CA's file: ca= of TlsOptions, --tls-ca or $ROCKHOPPER_TLS_CA",
    )


_PLAIN_REMEDY = "remove tls=, --tls and $ROCKHOPPER_TLS, or set the broker's tlsServerMode"
_REMEDIES = {
    "wrong_version_number": ("does not speak TLS", _PLAIN_REMEDY),
    "wrong version number": ("does not speak TLS", _PLAIN_REMEDY),
    "certificate required": (
        "requires a client certificate",
        "pass one: certificate= and key= of TlsOptions, --tls-cert and --tls-key",
    ),
    "unknown ca": (
        "does not know the CA of this client's certificate",
        "have it signed by one in the broker's tlsTrustCertPath",
    ),
}
UNANSWERED_REMEDY = (
    "it closed the connection without an answer: if it requires TLS (tlsServerMode=enforcing), "
    "use tls=True, --tls or $ROCKHOPPER_TLS=true"
)
