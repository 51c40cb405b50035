"""The command ``compact``."""

import pytest

from tests.support.called_jobs import call


def test_sizes_and_times_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["-t", "orders", "--target-size", "2m", "--keep-old", "0"]
    result, asked = call(monkeypatch, "compact", "history", *flags)
    assert result.exit_code == 0, result.output
    assert (asked["archive"], list(asked["topics"])) == ("history", ["orders"])
    assert (asked["target_size_bytes"], asked["keep_old_ms"]) == (2 << 20, 0)


def test_what_nobody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = call(monkeypatch, "compact", "history")
    assert (asked["target_size_bytes"], asked["keep_old_ms"]) == (128 << 20, 3_600_000)
    result, asked = call(monkeypatch, "compact", "history", "--keep-old", "soon")
    assert (result.exit_code, asked) == (2, {})
    assert "--keep-old is 'soon'" in result.stderr
