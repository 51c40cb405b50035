"""When a certificate ends, read without a library for certificates."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from rockhopper.broker.server.listening.certificate_times import CertificateError, expiry_s
from tests.support.certificates import Authority


@pytest.mark.parametrize("days", [-1, 30, 40 * 365])
def test_it_is_what_cryptography_says(authority: Authority, days: int) -> None:
    pem = authority.issue(days=days).certificate.read_bytes()
    told = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    assert datetime.fromtimestamp(expiry_s(pem.decode()), UTC) == told
    assert abs(told - datetime.now(UTC) - timedelta(days=days)) < timedelta(days=1)


def test_a_damaged_one_is_told_from_none(authority: Authority) -> None:
    with pytest.raises(CertificateError, match="no certificate"):
        expiry_s("a letter")
    text = authority.issue().certificate.read_text()
    with pytest.raises(CertificateError, match="damaged"):
        expiry_s(text.replace("MII", "AAA", 1))
