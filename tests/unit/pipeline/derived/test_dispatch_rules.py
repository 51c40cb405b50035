"""What dispatch goes by: types of topics, delays, and what was deleted."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rockhopper.pipeline.derived.dispatch_rules import DispatchRules, read_dispatch_rules
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.store_source.directory import StoreDirectory

STORE = cast(StoreDirectory, SimpleNamespace(deleted_topics={"old": 77}))


def read(root: Path | None, **fields: Any) -> DispatchRules:
    return read_dispatch_rules(root, STORE, **fields)


def write_topics(root: Path, table: dict[str, Any]) -> None:
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


@pytest.mark.parametrize(("level", "ms"), [(1, 1000), (2, 300_000), (3, 7_200_000), (9, 7_200_000)])
def test_a_level_beyond_the_last_waits_as_long_as_the_last(level: int, ms: int) -> None:
    assert read(None, delay_levels="1s 5m 2h").delay_ms(level) == ms


def test_levels_that_are_none_are_refused() -> None:
    with pytest.raises(PipelineError, match="such as '1s 5m 2h'"):
        read(None, delay_levels="1x")


def test_batch_topics_are_told_by_settings_queues_and_the_caller(tmp_path: Path) -> None:
    batch = {"attributes": {"queue.type": "BatchCQ"}}
    write_topics(tmp_path, {"a": batch, "b": {}, "c": {"attributes": None}, "d": 7})
    (tmp_path / "batchconsumequeue" / "e").mkdir(parents=True)
    rules = read(tmp_path, batch_topics=frozenset({"f"}))
    assert rules.batch_topics == frozenset("aef")
    assert rules.known_topics == frozenset("abcd")


def test_a_store_without_a_table_does_not_say_which_topics_it_has(tmp_path: Path) -> None:
    rules = read(tmp_path)
    assert (rules.known_topics, rules.batch_topics) == (None, frozenset())
    assert rules.deleted_topics == {"old": 77}
    assert not rules.has_tag_keys
    assert read(None, has_tag_keys=True).has_tag_keys
