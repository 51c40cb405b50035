"""The command ``audit``: all that it takes reaches the job."""

import pytest

from rockhopper.protocol.store.delay_levels import DEFAULT_DELAY_LEVELS
from tests.support.called_jobs import call


def test_everything_typed_reaches_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = "--archive a --broker-name b --check crc --check index --split-size 1m --index-slots 16"
    flags += " --index-entries 40 --no-index-tags --batch-topic T --delay-levels 1s --dry-run"
    result, asked = call(monkeypatch, "audit", "store", *flags.split(), "--master", "local[1]")
    assert result.exit_code == 0, result.output
    del asked["progress"]
    assert asked == {
        "path": "store",
        "archive": "a",
        "broker_name": "b",
        "checks": ("crc", "index"),
        "split_size": 1 << 20,
        "index_slots": 16,
        "index_entries": 40,
        "index_tags": False,
        "batch_topics": ("T",),
        "delay_levels": "1s",
        "dry_run": True,
        "master": "local[1]",
    }


def test_what_is_not_typed_is_left_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = call(monkeypatch, "audit", "store")
    assert asked["delay_levels"] == DEFAULT_DELAY_LEVELS
    assert not any(
        asked[name] for name in ("archive", "checks", "index_slots", "index_tags", "batch_topics")
    )


def test_an_index_has_a_slot_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = call(monkeypatch, "audit", "store", "--index-slots", "0")
    assert (result.exit_code, asked) == (2, {})
    assert "0 is not in the range x>=1" in result.stderr
