"""What an audit is asked for, as the command line and as a caller says it."""

from typing import Any

import pytest

from rockhopper.pipeline.jobs.auditing.options import AuditOptions
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
    unsaid = ("archive", "broker_name", "index_slots", "index_tags", "split_size", "master")
    assert {asked[name] for name in unsaid} == {None}
    # No check that is named is all that can be made.
    assert [tuple(asked[name]) for name in ("checks", "batch_topics")] == [(), ()]


def test_a_caller_names_all_but_the_store() -> None:
    options: Any = AuditOptions
    asked = options("store", archive="a")
    assert (asked.path, asked.archive, asked.checks, asked.run) == ("store", "a", None, None)
    with pytest.raises(TypeError, match="positional"):
        options("store", "a")
