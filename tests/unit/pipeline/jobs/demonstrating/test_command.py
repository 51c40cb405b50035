"""The command ``demo``: where its page goes, and how long it takes."""

from pathlib import Path

import pytest

from tests.support.called_jobs import call


def test_it_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = call(monkeypatch, "demo")
    assert (asked["output"], asked["stream_s"], asked["dry_run"]) == ("spark-demo", 12.0, False)


def test_place_and_time_may_be_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = call(monkeypatch, "demo", "-o", "elsewhere", "--seconds", "1.5")
    assert (asked["output"], asked["stream_s"]) == ("elsewhere", 1.5)


def test_a_file_is_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    result, asked = call(monkeypatch, "demo", "-o", str(tmp_path / "file"))
    assert (result.exit_code, asked) == (2, {})
    assert "is a file" in result.stderr
