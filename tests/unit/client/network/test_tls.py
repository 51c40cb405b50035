"""TLS of a client: who decides, what is checked, and what a failure means."""

import ssl
from pathlib import Path

import pytest

from rockhopper.client.network.tls import Tls, TlsOptions, choose_tls, find_remedy
from tests.support.certificates import Authority

CA = {"ROCKHOPPER_TLS_CA": "ca.pem"}
PAIR = {"ROCKHOPPER_TLS_CERT": "c.pem", "ROCKHOPPER_TLS_KEY": "k.pem"}


@pytest.mark.parametrize(
    ("tls", "environment", "expected"),
    [
        (None, {}, None),
        (True, {}, TlsOptions()),
        (False, CA, None),
        (TlsOptions(verify=False), CA, TlsOptions(verify=False)),
        (None, {"ROCKHOPPER_TLS": "true"}, TlsOptions()),
        (None, CA, TlsOptions("ca.pem")),
        (None, PAIR, TlsOptions(None, "c.pem", "k.pem")),
        (None, CA | {"ROCKHOPPER_TLS": "false"}, None),
        (None, CA | {"ROCKHOPPER_TLS_VERIFY": "no"}, TlsOptions("ca.pem", verify=False)),
    ],
)
def test_the_program_decides_before_the_environment(
    tls: Tls, environment: dict[str, str], expected: TlsOptions | None
) -> None:
    assert choose_tls(tls, environment) == expected


def test_a_word_that_is_neither_yes_nor_no_is_refused() -> None:
    with pytest.raises(ValueError, match="ROCKHOPPER_TLS is 'perhaps'"):
        choose_tls(None, {"ROCKHOPPER_TLS": "perhaps"})
    with pytest.raises(ValueError, match="needs its certificate"):
        TlsOptions(key="k.pem")


def test_certificates_and_names_are_checked_unless_that_is_switched_off(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    checking = TlsOptions(authority.ca, *authority.issue("client")).context()
    assert checking.verify_mode is ssl.CERT_REQUIRED
    assert checking.check_hostname
    assert checking.minimum_version is ssl.TLSVersion.TLSv1_2
    assert TlsOptions(verify=False).context().verify_mode is ssl.CERT_NONE


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    options = TlsOptions(Authority(tmp_path).ca)
    old = options.context()
    assert options.context() is old
    Authority(tmp_path)
    assert options.context() is not old


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere cannot be read"):
        TlsOptions(tmp_path / "nowhere").context()
    (tmp_path / "letter").write_text("dear CA")
    with pytest.raises(OSError, match="letter cannot be used for TLS"):
        TlsOptions(tmp_path / "letter").context()


def refusal(message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, message)
    error.verify_message = message
    return error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (refusal("self-signed certificate"), "unknown CA"),
        (refusal("Hostname mismatch"), "a different name"),
        (refusal("certificate has expired"), "not valid now"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong"), "does not speak TLS"),
        (ConnectionResetError(104, "reset"), "does not speak TLS"),
        (ssl.SSLError(1, "tlsv13 alert certificate required"), "requires a client certificate"),
        (ssl.SSLError(1, "tlsv1 alert unknown ca"), "does not know the CA"),
    ],
)
def test_a_failure_says_what_to_do(error: OSError, says: str) -> None:
    found = find_remedy(error, is_tls=True)
    assert found is not None
    assert says in found[0]
    assert found[1]


def test_other_failures_are_not_of_tls() -> None:
    assert find_remedy(ConnectionRefusedError(111, "refused"), is_tls=True) is None
    assert find_remedy(ConnectionResetError(104, "reset"), is_tls=False) is None
