"""Read the expiry of a certificate from its DER form, because ssl does not expose our own.

Certificate     SEQUENCE of TBSCertificate, algorithm, signature
TBSCertificate  SEQUENCE of [0] version, serial, algorithm, issuer, Validity, …
Validity        SEQUENCE of notBefore, notAfter: UTCTime (0x17) or GeneralizedTime (0x18)
"""

import ssl
from datetime import UTC, datetime

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_FORMATS = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}


class CertificateError(ValueError):
    """A text holds no certificate, or a damaged one."""


def expiry_s(pem: str) -> float:
    """Return when the first certificate of *pem* expires, in seconds of the epoch.

    Raises:
        CertificateError: there is none.
    """
    start = pem.find(_BEGIN)
    end = pem.find(_END, start)
    if start < 0 or end < 0:
        raise CertificateError("it contains no certificate in PEM form")
    try:
        return _expiry_s(ssl.PEM_cert_to_DER_cert(pem[start : end + len(_END)]))
    except (ValueError, IndexError, KeyError) as error:
        raise CertificateError(f"its certificate is damaged ({error})") from error


def _expiry_s(der: bytes) -> float:
    _, certificate, _ = _value(der)
    _, fields, _ = _value(certificate)
    if fields[0] == _VERSION:
        _, _, fields = _value(fields)
    for _ in range(3):  # serial, algorithm, issuer
        _, _, fields = _value(fields)
    _, validity, _ = _value(fields)
    _, _, rest = _value(validity)
    tag, text, _ = _value(rest)
    return datetime.strptime(text.decode("ascii"), _FORMATS[tag]).replace(tzinfo=UTC).timestamp()


def _value(data: bytes) -> tuple[int, bytes, bytes]:
    """Return tag and content of the first value in *data*, and the bytes after it."""
    size_bytes, start = data[1], 2
    if size_bytes & 0x80:
        start += size_bytes & 0x7F
        size_bytes = int.from_bytes(data[2:start], "big")
    if start + size_bytes > len(data):
        raise ValueError("it ends too early")
    return data[0], data[start : start + size_bytes], data[start + size_bytes :]
