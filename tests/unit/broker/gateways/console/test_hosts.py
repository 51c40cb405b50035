"""By which names the console may be reached."""

import socket

import pytest

from rockhopper.broker.gateways.console.hosts import is_ours, names_of
from rockhopper.broker.settings.config_file import build_config

NAMES = names_of(
    build_config(
        {
            "brokerIP1": "Mq.example.org",
            "advertise": "any=public.example.net:10911",
            "consoleHosts": "console.example.com;other",
        }
    )
)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:9464",
        "10.1.2.3",
        "[::1]:9464",
        "[2001:db8::1]",
        "localhost",
        "LOCALHOST:9464",
        "localhost.:9464",
        "a.localhost:1",
        "mq.example.org:9464",
        "public.example.net",
        "console.example.com",
        "OTHER:80",
        socket.gethostname(),
    ],
)
def test_addresses_and_own_names_are_taken(host: str) -> None:
    assert is_ours(host, NAMES)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":9464",
        "evil.example",
        "evil.example:9464",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "mq.example.org.evil.example",
        "xlocalhost",
        "127.0.0.1@evil.example",
    ],
)
def test_other_names_are_not(host: str) -> None:
    assert not is_ours(host, NAMES)
