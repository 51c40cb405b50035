"""The command ``replay``: all that it takes reaches the job, and brokers are named."""

import pytest

from tests.support.called_jobs import call


def test_everything_typed_reaches_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = "--topic orders -t bills --to copy --from 1970-01-01T00:00:01 --until 2000 --key k"
    flags += " --rate 2.5 --id again --delivery at-least-once --broker b --state s --dry-run"
    arguments = ["history", "--where", "queueId = 1", *flags.split(), "-n", "h:1;h:2"]
    result, asked = call(monkeypatch, "replay", *arguments)
    assert result.exit_code == 0, result.output
    del asked["progress"]
    assert asked == {
        "source": "history",
        "nameserver": "h:1;h:2",
        "topics": ("orders", "bills"),
        "to": "copy",
        "start_ms": 1000,
        "end_ms": 2000,
        "key": "k",
        "where": "queueId = 1",
        "rate": 2.5,
        "job_id": "again",
        "delivery": "at-least-once",
        "broker": "b",
        "state": "s",
        "dry_run": True,
        "master": None,
    }


def test_who_sends_is_asked_to_which_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    result, asked = call(monkeypatch, "replay", "history")
    assert (result.exit_code, asked) == (2, {})
    assert "Send messages of history to the brokers behind 127.0.0.1:9876?" in result.stderr


def test_a_time_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = call(monkeypatch, "replay", "history", "--yes", "--until", "soon")
    assert (result.exit_code, asked) == (2, {})
    assert "--until" in result.stderr
