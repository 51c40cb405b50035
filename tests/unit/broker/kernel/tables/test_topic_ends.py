"""TopicEnds: where a topic of the same name goes on."""

from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables.topic_ends import TopicEnds


def test_ends_of_topics_are_kept_by_queue(tmp_path: Path) -> None:
    ends = TopicEnds(tmp_path / "topic-ends.json")
    ends.store_ends("orders", {0: 40, 1: 0})
    ends.store_ends("orders", {1: 7})
    assert [ends.end_of("orders", queue_id) for queue_id in range(3)] == [40, 7, 0]
    assert ends.end_of("bills", 0) == 0
    again = TopicEnds(tmp_path / "other.json")
    again.from_json(ends.to_json())
    assert again.end_of("orders", 0) == 40


def test_the_oldest_ends_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rockhopper.broker.kernel.tables.topic_ends.TOPICS_MAX", 2)
    ends = TopicEnds(tmp_path / "topic-ends.json")
    for topic in ("a", "b"):
        ends.store_ends(topic, {0: 1})
    ends.store_ends("a", {0: 2})
    ends.store_ends("c", {0: 1})
    assert sorted(ends.entries) == ["a", "c"]
    ends.clear()
    assert not ends.entries


@pytest.mark.parametrize("entry", [7, {"x": 1}, {"0": "1"}])
def test_what_are_no_ends_is_refused(tmp_path: Path, entry: object) -> None:
    written = TopicEnds(tmp_path / "topic-ends.json")
    written.entries["orders"] = entry
    with pytest.raises(ValueError, match="offsets by queue ids"):
        TopicEnds(tmp_path / "other.json").from_json(written.to_json())
