"""ConsumeQueueTable: queues by topic and id, one size for all, and cheap when nothing happens."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError, StoreError
from rockhopper.broker.store.queues import queue_table
from rockhopper.broker.store.queues.batch_consume_queue import BatchConsumeQueue
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from tests.support.open_files import open_files_in

LOG_END = 1 << 20


def new_table(root: Path, size_bytes: int = 100, batch_size_bytes: int = 138) -> ConsumeQueueTable:
    return ConsumeQueueTable(StoreLayout(root), size_bytes, batch_size_bytes)


def loaded(root: Path, size_bytes: int = 100) -> ConsumeQueueTable:
    table = new_table(root, size_bytes)
    table.load()
    for queue in table:
        queue.recover(LOG_END)
    return table


def append(queue: UnitQueue, *offsets: int) -> None:
    for offset in offsets:
        queue.append(offset, offset * 100, 50, 0)


def flush(table: ConsumeQueueTable, *, thorough: bool) -> int:
    return sum(1 for _ in table.flush_steps(thorough))


@pytest.mark.parametrize("topic", ["../escaped", "..", "a/b", ""])
def test_no_queue_is_made_outside_of_the_store(tmp_path: Path, topic: str) -> None:
    table = new_table(tmp_path / "store")
    with pytest.raises(ValueError, match="no directory can be named after queue 0 of topic"):
        table.get_or_create(topic, 0)
    assert list(tmp_path.iterdir()) == []


def test_queues_are_found_again_with_their_messages(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    append(table.get_or_create("A", 0), 0, 1)
    append(table.get_or_create("A", 3), 0)
    append(table.get_or_create("%RETRY%g", 0), 7)
    table.get_or_create("B", 0, batch=True).append(0, 500, 50, 0, 3, 0)
    table.close()
    again = loaded(tmp_path)
    assert sorted(again.topics()) == ["%RETRY%g", "A", "B"]
    assert sorted(again.queues_of("A")) == [0, 3]
    ranges = {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in again}
    assert ranges == {
        ("A", 0): (0, 2),
        ("A", 3): (0, 1),
        ("%RETRY%g", 0): (7, 8),
        ("B", 0): (0, 3),
    }
    assert isinstance(again.get("B", 0), BatchConsumeQueue)


def test_looking_up_makes_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert table.get("A", 0) is None
    assert table.topics() == []
    assert table.queues_of("A") == {}
    assert not list(tmp_path.iterdir())


def test_the_same_queue_is_given_each_time(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    queue = table.get_or_create("A", 0)
    assert table.get_or_create("A", 0) is queue
    assert table.get("A", 0) is queue
    assert table.queues_of("A") == {0: queue}


def test_kind_of_a_queue_cannot_change(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    append(table.get_or_create("A", 0), 0)
    with pytest.raises(StoreError, match="cannot change while it has messages"):
        table.get_or_create("A", 0, batch=True)


def test_size_is_rounded_up_to_whole_units(tmp_path: Path) -> None:
    table = new_table(tmp_path, size_bytes=81, batch_size_bytes=1)
    assert table.file_sizes_bytes == (100, 46)


def test_size_of_the_files_that_are_there_counts_for_new_queues_too(tmp_path: Path) -> None:
    append(new_table(tmp_path).get_or_create("A", 0), 0)
    with capture_logs() as logs:
        table = loaded(tmp_path, size_bytes=6_000_000)
    append(table.get_or_create("B", 0), 0)
    assert (tmp_path / "consumequeue/B/0/00000000000000000000").stat().st_size == 100
    assert logs[0]["size_bytes"] == 100
    assert logs[0]["configured_size_bytes"] == 6_000_000


def test_queues_with_files_of_different_sizes_are_refused(tmp_path: Path) -> None:
    append(new_table(tmp_path).get_or_create("A", 0), 0)
    append(new_table(tmp_path, size_bytes=200).get_or_create("B", 0), 0)
    with pytest.raises(CorruptFileError, match=r"B/0: its files have 200 bytes, .*A/0 100"):
        loaded(tmp_path)


def test_topic_with_queues_of_both_kinds_is_refused(tmp_path: Path) -> None:
    append(new_table(tmp_path).get_or_create("A", 0), 0)
    new_table(tmp_path).get_or_create("A", 1, batch=True).append(0, 0, 50, 0, 1, 0)
    with pytest.raises(CorruptFileError, match="both batch and plain consume queues"):
        loaded(tmp_path)


def test_what_is_no_queue_is_reported_and_left_alone(tmp_path: Path) -> None:
    append(new_table(tmp_path).get_or_create("A", 0), 0)
    (tmp_path / "consumequeue/A/backup").mkdir()
    (tmp_path / "consumequeue/notes.txt").touch()
    (tmp_path / "consumequeue/A/0/notes.txt").touch()
    with capture_logs() as logs:
        table = loaded(tmp_path)
    assert len(list(table)) == 1
    assert len([entry for entry in logs if entry["log_level"] == "warning"]) == 3
    assert (tmp_path / "consumequeue/notes.txt").exists()
    assert (tmp_path / "consumequeue/A/0/notes.txt").exists()


def test_directory_without_files_is_no_queue(tmp_path: Path) -> None:
    (tmp_path / "consumequeue/A/0").mkdir(parents=True)
    assert list(loaded(tmp_path)) == []


def test_deleted_topic_leaves_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    append(table.get_or_create("A", 0), 0)
    append(table.get_or_create("A", 1), 0)
    append(table.get_or_create("B", 0), 0)
    table.delete_topic("A").remove()
    table.delete_topic("never heard of").remove()
    assert table.topics() == ["B"]
    assert os.listdir(tmp_path / "consumequeue") == ["B"]
    flush(table, thorough=True)
    append(table.get_or_create("A", 0), 5)
    assert table.get_or_create("A", 0).min_offset == 5


def test_topics_may_be_deleted_while_queues_are_visited(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for topic in ("A", "B", "C"):
        append(table.get_or_create(topic, 0), 0)
    for queue in table:
        table.delete_topic(queue.topic).remove()
    assert table.topics() == []


def test_flush_pass_touches_only_dirty_queues(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    queues = [table.get_or_create("A", queue_id) for queue_id in range(5)]
    append(queues[2], 0, 1, 2)
    append(queues[4], 0)
    assert flush(table, thorough=True) == 2
    assert flush(table, thorough=True) == 0
    append(queues[2], 3)
    assert table.dirty_count == 1
    assert flush(table, thorough=True) == 1


def test_queue_with_little_to_flush_waits_and_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(disk, "sync_file", synced.append)
    table = new_table(tmp_path)
    append(table.get_or_create("A", 0), 0)
    for _ in range(3):
        flush(table, thorough=False)
        append(table.get_or_create("A", 0), table.get_or_create("A", 0).max_offset)
    assert (len(synced), table.dirty_count) == (0, 1)
    flush(table, thorough=True)
    assert (len(synced), table.dirty_count) == (1, 0)


def test_idle_queues_are_gone_through_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_table, "QUEUES_PER_PIECE", 4)
    table = new_table(tmp_path)
    for topic in "AB":
        for queue_id in range(5):
            append(table.get_or_create(topic, queue_id), 0)
    flush(table, thorough=True)
    assert list(table.release_idle()) == [0, 0, 0]
    pieces = table.release_idle()
    assert next(pieces) == 4
    assert len(open_files_in(tmp_path)) == 6
    table.delete_topic("B").remove()
    assert list(pieces) == [1, 0]
    assert not open_files_in(tmp_path)


def test_idle_queues_give_their_descriptors_back(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for queue_id in range(20):
        append(table.get_or_create("A", queue_id), 0)
    flush(table, thorough=True)
    assert sum(table.release_idle()) == 0
    append(table.get_or_create("A", 7), 1)
    assert list(table.release_idle()) == [19]
    assert len(open_files_in(tmp_path)) == 1
    table.close()
    assert not open_files_in(tmp_path)
