"""Forms: tokens that only our pages hold, and where a browser says that a form comes from."""

import pytest

from rockhopper.broker.gateways.console.forms import (
    FIELDS_MAX,
    Tokens,
    fields,
    from_elsewhere,
    is_from_here,
)


def test_a_token_is_one_users_of_one_process() -> None:
    tokens = Tokens()
    token = tokens.make("al")
    assert tokens.is_right(token, "al")
    assert not tokens.is_right(token, "bo")
    assert not tokens.is_right("", "al")
    assert not tokens.is_right("ž", "al")
    assert not Tokens().is_right(token, "al")


def test_a_token_for_a_text_is_none_for_forms() -> None:
    tokens = Tokens()
    assert tokens.is_right(tokens.make("al", "notice x"), "al", "notice x")
    assert not tokens.is_right(tokens.make("al", "notice x"), "al")


@pytest.mark.parametrize(
    ("headers", "is_fine"),
    [
        ({}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"origin": "http://127.0.0.1:9464"}, True),
        ({"origin": "https://127.0.0.1:9464"}, True),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "http://127.0.0.1:9465"}, False),
        ({"origin": "null"}, False),
        ({"origin": "127.0.0.1:9464"}, False),
        ({"origin": "http://evil.example", "sec-fetch-site": "same-origin"}, False),
    ],
)
def test_forms_come_from_the_place_they_go_to(headers: dict[str, str], is_fine: bool) -> None:
    assert is_from_here({"host": "127.0.0.1:9464", **headers}, ()) is is_fine


NAMES = ("mq.example.org",)


@pytest.mark.parametrize(
    ("host", "origin", "is_fine"),
    [
        ("mq.example.org", "https://mq.example.org", True),
        ("127.0.0.1:9464", "https://mq.example.org", True),
        ("mq.example.org:8443", "https://mq.example.org:8443", True),
        ("mq.example.org", "https://mq.example.org:8443", True),
        ("10.0.0.5", "http://10.0.0.5:8080", True),
        ("10.0.0.5:9464", "http://10.0.0.5:8080", False),
        ("mq.example.org", "https://evil.example", False),
        ("127.0.0.1:9464", "https://evil.example", False),
        ("127.0.0.1:9464", "https://mq.example.org.evil.example", False),
    ],
)
def test_a_reverse_proxy_may_change_the_host_line_of_a_name_that_is_listed(
    host: str, origin: str, is_fine: bool
) -> None:
    headers = {"host": host, "origin": origin, "sec-fetch-site": "same-origin"}
    assert is_from_here(headers, NAMES) is is_fine


def test_a_refusal_says_what_to_set_behind_a_reverse_proxy() -> None:
    headers = {"host": "127.0.0.1:9464", "origin": "https://mq.example.org:8443"}
    told = from_elsewhere({**headers, "sec-fetch-site": "same-origin"})
    assert "mq.example.org" in told
    assert "consoleHosts" in told
    assert "consoleHosts" not in from_elsewhere({**headers, "sec-fetch-site": "cross-site"})


def test_fields_are_read_whatever_they_hold() -> None:
    assert fields("a=1&b=&a=2&c=%ff%00&d=%E2%80%AE") == {
        "a": "2",
        "b": "",
        "c": "�\0",
        "d": "\u202e",
    }
    with pytest.raises(ValueError, match="Max number"):
        fields("&".join(f"f{n}=1" for n in range(FIELDS_MAX + 1)))
