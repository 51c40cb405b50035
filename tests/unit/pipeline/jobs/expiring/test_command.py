"""The command ``expire``."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from rockhopper.pipeline.jobs.command_line import main
from tests.support.called_jobs import call


def test_a_time_span_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = call(
        monkeypatch, "expire", "history", "--older-than", "90d", "--keep-old", "5m"
    )
    assert result.exit_code == 0, result.output
    assert (asked["older_than_ms"], asked["keep_old_ms"]) == (90 * 86_400_000, 300_000)


def test_it_has_to_be_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(main, ["expire", str(tmp_path)])
    assert result.exit_code == 2
    _, asked = call(monkeypatch, "expire", "history")
    assert asked["older_than_ms"] is None
