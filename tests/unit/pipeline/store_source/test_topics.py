"""Which topics a store has: by its table or its queues, and what is said of one that it has not."""

import json
from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.store_source.topics import (
    application_topics,
    check_topics,
    known_topics,
    may_have_multi_tags,
    topic_table,
)
from rockhopper.protocol.store.table_changes import (
    TableChange,
    encode_change,
    encode_file,
    fingerprint,
)


def write_table(root: Path, table: Any, name: str = "topics.json") -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text(json.dumps({"topicConfigTable": table}))


def test_the_table_is_read_or_else_its_copy(tmp_path: Path) -> None:
    assert topic_table(tmp_path) is None
    write_table(tmp_path, {"orders": {}})
    write_table(tmp_path, {"copy": {}}, "topics.json.bak")
    assert topic_table(tmp_path) == {"orders": {}}
    for damaged in ("", "{", "[]", "{}", '{"topicConfigTable":7}'):
        (tmp_path / "config" / "topics.json").write_text(damaged)
        assert topic_table(tmp_path) == {"copy": {}}


def test_topics_of_the_table_and_of_both_kinds_of_queues_are_known(tmp_path: Path) -> None:
    write_table(tmp_path, {"a": {}})
    (tmp_path / "consumequeue" / "b" / "0").mkdir(parents=True)
    (tmp_path / "batchconsumequeue" / "c").mkdir(parents=True)
    (tmp_path / "consumequeue" / "file").write_text("")
    assert known_topics(tmp_path) == frozenset("abc")


def test_where_the_files_do_not_tell_nobody_can_say(tmp_path: Path) -> None:
    assert known_topics(None) is None
    assert known_topics(tmp_path) is None
    write_table(tmp_path, {"a": {}})
    (tmp_path / "config" / "topics").mkdir()
    (tmp_path / "config" / "topics" / "CURRENT").write_text("rocksdb")
    assert known_topics(tmp_path) is None
    check_topics(tmp_path, ["whatever"])


@pytest.mark.parametrize("topic", ["orders", "SCHEDULE_TOPIC_XXXX"])
def test_a_topic_that_is_there_passes_and_so_does_the_systems(tmp_path: Path, topic: str) -> None:
    write_table(tmp_path, {"orders": {}})
    check_topics(tmp_path, [topic])


def test_a_topic_that_is_not_there_is_named_with_what_is_near(tmp_path: Path) -> None:
    write_table(tmp_path, {"orders": {}, "%RETRY%g": {}})
    with pytest.raises(PipelineError, match=r"no topic 'order' \(did you mean 'orders'\?\)"):
        check_topics(tmp_path, ["order"])
    with pytest.raises(PipelineError, match=r"includeDeletedTopics=true"):
        check_topics(tmp_path, ["xyz"])


def test_topics_that_people_make(tmp_path: Path) -> None:
    assert application_topics(["b", "%RETRY%g", "TBW102", "a"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("table", "may_have"),
    [
        (None, True),
        ({"a": {"topicFilterType": "SINGLE_TAG"}}, False),
        ({"a": {}, "b": {"topicFilterType": "MULTI_TAG"}}, True),
        ({"a": 7}, False),
    ],
)
def test_multi_tags_are_told_by_the_table(tmp_path: Path, table: Any, may_have: bool) -> None:
    if table is not None:
        write_table(tmp_path, table)
    assert may_have_multi_tags(tmp_path) is may_have


def test_a_topic_counts_that_only_the_journal_of_the_table_tells_of(tmp_path: Path) -> None:
    file = tmp_path / "config" / "topics.json"
    file.parent.mkdir()
    file.write_text('{"topicConfigTable":{"old":{"perm":6},"gone":{"perm":6}}}')
    changes = [TableChange("new", {"topicFilterType": "MULTI_TAG"}, {})]
    changes.append(TableChange("gone", None, {}))
    journal = tmp_path / "rockhopper" / "tables" / "topics.json" / "00000000000000000001.records"
    journal.parent.mkdir(parents=True)
    records = [encode_file(fingerprint(file.read_bytes())), *map(encode_change, changes)]
    journal.write_bytes(b"".join(records))
    assert known_topics(tmp_path) == frozenset({"old", "new"})
    assert may_have_multi_tags(tmp_path)
    # The broker has written it anew, and the journal is of the former one.
    file.write_text('{"topicConfigTable":{"old":{"perm":6}}}')
    assert known_topics(tmp_path) == frozenset({"old"})
