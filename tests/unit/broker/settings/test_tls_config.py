"""TLS in settings: RocketMQ's spelling and ours, and what does not fit together."""

from pathlib import Path

import pytest

from rockhopper.broker.settings.config_file import HIDDEN, build_config, load_config, properties_of
from rockhopper.broker.settings.setting_fields import SettingError
from rockhopper.broker.settings.tls_config import ClientAuth, TlsMode

PAIR = {"tlsCertPath": "/c.pem", "tlsKeyPath": "/k.pem"}


@pytest.mark.parametrize(
    ("texts", "is_served", "is_enforced", "is_spoken"),
    [
        ({}, False, False, False),
        (PAIR, True, False, False),
        (PAIR | {"tlsServerMode": "disabled"}, False, False, False),
        ({"tlsServerMode": "permissive"}, True, False, False),
        ({"tlsServerMode": "enforcing"}, True, True, True),
        ({"tlsEnable": "true"}, False, False, True),
    ],
)
def test_a_named_certificate_or_a_mode_opens_the_ports(
    texts: dict[str, str], is_served: bool, is_enforced: bool, is_spoken: bool
) -> None:
    tls = build_config(texts).tls
    assert (tls.is_served, tls.is_enforced, tls.is_spoken) == (is_served, is_enforced, is_spoken)


def test_rocketmqs_spelling_is_understood_and_ours_counts_before(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(
        "tls.test.mode.enable=false\ntls.server.mode=enforcing\ntls.server.certPath=/c.pem\n"
        "tls.server.keyPath=/k.pem\ntls.server.need.client.auth=require\n"
        "tls.server.trustCertPath=/ca.pem\ntls.server.authClient=true\n"
    )
    loaded = load_config(
        None,
        {
            "ROCKHOPPER_TLS_SERVER_MODE": "permissive",
            "ROCKHOPPER_TLS_CA": "/a/client's",
            "ROCKHOPPER_ACCESS_KEY": "a client's",
            "ROCKHOPPER_SECRET_KEY": "a client's",
            "ROCKHOPPER_CREDENTIALS_FILE": "/a/client's",
        },
        {"tls.config.file": str(file), "tls.server.keyPath": "/other.pem"},
    )
    tls = loaded.config.tls
    assert loaded.warnings == []
    assert (tls.mode, tls.client_auth) == (TlsMode.PERMISSIVE, ClientAuth.REQUIRE)
    assert (tls.certificate, tls.key) == (Path("/c.pem"), Path("/other.pem"))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"tls\.config\.file"):
        build_config({"tls.config.file": str(tmp_path / "nowhere")})


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"tlsCertPath": "/c.pem"}, "tlsKeyPath"),
        ({"tlsKeyPath": "/k.pem"}, "tlsCertPath"),
        ({"tlsClientCertPath": "/c.pem"}, "tlsClientKeyPath"),
        ({"tlsClientAuth": "require"}, "tlsTrustCertPath is needed"),
        ({"proxyProtocol": "true"}, "proxyProtocolFrom is needed"),
        ({"proxyProtocolFrom": "balancers"}, "proxyProtocolFrom"),
        ({"tlsServerMode": "strict"}, "disabled, permissive, enforcing"),
    ],
)
def test_what_does_not_fit_together_is_refused(texts: dict[str, str], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        build_config(texts)


def test_passwords_are_shown_to_nobody() -> None:
    shown = properties_of(build_config(PAIR | {"tlsKeyPassword": "opensesame"}))
    assert shown["tlsKeyPassword"] == HIDDEN
    assert shown["tlsClientKeyPassword"] == ""


def test_networks_of_balancers_are_listed_with_commas() -> None:
    tls = build_config({"proxyProtocol": "true", "proxyProtocolFrom": "10.0.0.0/8, ::1"}).tls
    assert [str(each) for each in tls.proxy_networks] == ["10.0.0.0/8", "::1/128"]
