"""What report is asked for: formats, and the name server where there is no other source."""

import pytest

from rockhopper.client.network.addresses import NAMESERVER_VARIABLE
from tests.support.called_jobs import call


@pytest.mark.parametrize(
    ("flags", "formats"),
    [
        ([], ("parquet", "csv")),
        (["--format", "both"], ("parquet", "csv")),
        (["--format", "csv"], ("csv",)),
        (["--format", "parquet"], ("parquet",)),
    ],
)
def test_tables_are_written_as_both_unless_one_is_named(
    flags: list[str], formats: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, asked = call(monkeypatch, "report", "out", *flags)
    assert result.exit_code == 0, result.output
    assert asked["formats"] == formats


@pytest.mark.parametrize(
    ("flags", "nameserver"),
    [
        ([], "127.0.0.1:9876"),
        (["--path", "store"], None),
        (["--archive", "history"], None),
        (["--path", "store", "-n", "rocket"], "rocket:9876"),
    ],
)
def test_brokers_are_asked_where_they_are_named_or_nothing_else_is(
    flags: list[str], nameserver: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NAMESERVER_VARIABLE, raising=False)
    _, asked = call(monkeypatch, "report", "out", *flags)
    assert asked["nameserver"] == nameserver


def test_times_are_milliseconds_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = call(
        monkeypatch, "report", "out", "--from", "1970-01-02", "--until", "1796040000000"
    )
    assert (asked["start_ms"], asked["end_ms"]) == (86_400_000, 1_796_040_000_000)
