"""TopicIds: one id for each life of a topic, however its deletion and the process end."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.tables.topic_ids import TopicIds
from rockhopper.broker.kernel.tables.topics import TopicConfig


@pytest.fixture
def ids(tmp_path: Path) -> TopicIds:
    return TopicIds(tmp_path / "topic-ids.json")


def test_a_topic_has_one_id_from_the_first_question_on(tmp_path: Path, ids: TopicIds) -> None:
    assert ids.find("orders") is None
    first = ids.get("orders", 100)
    assert len(bytes.fromhex(first)) == 8
    assert ids.get("orders", 200) == first
    assert ids.find("orders") == first
    assert ids.get("others", 100) != first
    ids.save()
    again = TopicIds(tmp_path / "topic-ids.json")
    assert again.load()
    assert again.find("orders") == first


def test_a_deleted_topic_has_another_one_later(ids: TopicIds) -> None:
    first = ids.get("orders", 100)
    ids.topic_changed("orders", TopicConfig("orders"))
    assert ids.find("orders") == first
    ids.topic_changed("orders", None)
    assert ids.find("orders") is None
    assert ids.get("orders", 100) != first


@pytest.mark.parametrize(
    ("topics", "deletions", "is_kept"),
    [
        ({"orders"}, [], True),
        (set(), [], False),
        ({"orders"}, [("orders", 100)], True),
        ({"orders"}, [("orders", 101)], False),
        ({"orders"}, [("others", 900)], True),
    ],
)
def test_at_a_start_the_ids_of_topics_that_went_are_dropped(
    ids: TopicIds, topics: set[str], deletions: list[tuple[str, int]], is_kept: bool
) -> None:
    ids.get("orders", 100)
    with capture_logs() as logs:
        ids.agree_with(topics, deletions)
    assert (ids.find("orders") is not None) is is_kept
    assert len(logs) == (not is_kept)


@pytest.mark.parametrize("entry", ["abc", ["abc"], ["abc", 1, 2], None])
def test_an_entry_that_is_no_id_and_offset_is_refused(ids: TopicIds, entry: object) -> None:
    ids.get("orders", 100)
    document = ids.to_json()
    ids.entries["orders"] = entry
    damaged = ids.to_json()
    ids.from_json(document)
    with pytest.raises(ValueError, match="not an id and an offset"):
        ids.from_json(damaged)
