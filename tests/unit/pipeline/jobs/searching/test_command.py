"""The command ``search``: over the network only if that is wanted."""

import pytest

from rockhopper.client.network.addresses import NAMESERVER_VARIABLE
from tests.support.called_jobs import call


@pytest.mark.parametrize(
    ("flags", "nameserver"),
    [
        (["--path", "store"], None),
        (["--path", "store", "-n", "rocket"], None),
        (["--live"], "127.0.0.1:9876"),
        (["--live", "-n", "rocket;other:1"], "rocket:9876;other:1"),
    ],
)
def test_brokers_are_asked_where_it_is_live(
    flags: list[str], nameserver: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NAMESERVER_VARIABLE, raising=False)
    result, asked = call(monkeypatch, "search", "--key", "A17", *flags)
    assert result.exit_code == 0, result.output
    assert (asked["key"], asked["nameserver"]) == ("A17", nameserver)


def test_times_and_limits_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["--from", "1970-01-02", "--limit", "7", "--lines"]
    _, asked = call(monkeypatch, "search", "--path", "store", *flags)
    assert (asked["start_ms"], asked["end_ms"]) == (86_400_000, None)
    assert (asked["limit"], asked["as_json_lines"]) == (7, True)


def test_a_time_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = call(monkeypatch, "search", "--path", "store", "--from", "some day")
    assert (result.exit_code, asked) == (2, {})
    assert "--from" in result.stderr
