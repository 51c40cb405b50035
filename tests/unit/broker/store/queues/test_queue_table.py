"""ConsumeQueueTable: queues by topic and id, one size for all, and cheap when nothing happens."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError, StoreError, StoreFailedError
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


def many_dirty(root: Path) -> ConsumeQueueTable:
    table = new_table(root)
    table.load()
    for number in range(queue_table.SYNCED_TOGETHER_MIN):
        append(table.get_or_create("T", number), 0)
    return table


def count_syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    syncs: list[int] = []
    monkeypatch.setattr(disk, "sync_file", syncs.append)
    return syncs


def test_many_dirty_queues_are_synced_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = many_dirty(tmp_path)
    together: list[int] = []

    def sync(descriptor: int) -> bool:
        together.append(os.fstat(descriptor).st_ino)
        return True

    monkeypatch.setattr(disk, "sync_file_system", sync)
    syncs = count_syncs(monkeypatch)
    table.flush_all()
    assert (together, syncs, table.dirty_count) == ([tmp_path.stat().st_ino], [], 0)
    append(table.get_or_create("T", 0), 1)
    table.flush_all()
    assert (len(together), len(syncs), table.dirty_count) == (1, 1, 0)
    table.close()


def test_each_file_is_synced_if_the_file_system_cannot_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    for number, sync in enumerate((lambda _: False, fail)):
        table = many_dirty(tmp_path / str(number))
        monkeypatch.setattr(disk, "sync_file_system", sync)
        syncs = count_syncs(monkeypatch)
        table.flush_all()
        assert len(syncs) == queue_table.SYNCED_TOGETHER_MIN
        assert table.dirty_count == 0
        table.close()


def test_a_queue_in_another_file_system_is_synced_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path.stat().st_dev
    others = [name for name in ("/dev/shm", "/var/tmp") if Path(name).stat().st_dev != device]
    if not others:
        pytest.skip("there is only one file system")
    elsewhere = Path(tempfile.mkdtemp(dir=others[0]))
    (tmp_path / "consumequeue" / "T").mkdir(parents=True)
    (tmp_path / "consumequeue" / "T" / "7").symlink_to(elsewhere)
    table = many_dirty(tmp_path)
    monkeypatch.setattr(disk, "sync_file_system", lambda _: True)
    syncs = count_syncs(monkeypatch)
    table.flush_all()
    assert (len(syncs), table.dirty_count) == (1, 0)
    table.close()
    shutil.rmtree(elsewhere)


def test_a_file_that_was_deleted_under_the_store_fails_the_sync_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = many_dirty(tmp_path)
    monkeypatch.setattr(disk, "sync_file_system", lambda _: True)
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "5")
    with pytest.raises(StoreFailedError, match="could not be flushed"):
        table.flush_all()
    table.close()


def stopped_table(root: Path) -> ConsumeQueueTable:
    """Return a table of queues that a clean stop left: A/0, A/1, B/0, and C/0 of two files."""
    table = new_table(root)
    for topic, queue_id, count, start in ("A", 0, 3, 0), ("A", 1, 1, 300), ("B", 0, 2, 400):
        for number in range(count):
            table.get_or_create(topic, queue_id).append(number, start + 100 * number, 100, 0)
    for number in range(7):
        table.get_or_create("C", 0).append(number, 600 + 100 * number, 100, 0)
    table.flush_all()
    stopped = table.list_stopped(1)
    table.close()
    asleep = new_table(root)
    asleep.restore(stopped, 4096)
    for queue in asleep.list_awake():
        queue.recover(1300, 1300)
    return asleep


def named(queues: Iterable[UnitQueue]) -> list[str]:
    return sorted(f"{queue.topic}/{queue.queue_id}" for queue in queues)


def test_after_a_clean_stop_short_queues_sleep_until_they_are_used(tmp_path: Path) -> None:
    table = stopped_table(tmp_path)
    assert named(table.list_awake()) == ["C/0"]
    assert table.list_asleep() == {("A", 0): 3, ("A", 1): 1, ("B", 0): 2}
    assert sorted(table.topics()) == ["A", "B", "C"]
    assert (table.count, table.commit_log_end, table.asleep_end) == (4, 1300, 600)
    assert named(table.list_reaching_beyond(600)) == ["C/0"]
    assert table.get("D", 0) is None
    assert table.get("A", 2) is None
    assert named(table.list_awake()) == ["A/0", "A/1", "C/0"]
    queue = table.get_or_create("A", 0)
    queue.append(3, 1300, 100, 0)
    assert (queue.min_offset, queue.max_offset, queue.entry(0)) == (0, 4, (0, 100, 0))
    assert table.list_asleep() == {("B", 0): 2}
    assert (table.count, table.commit_log_end) == (4, 1400)
    assert named(table.list_reaching_beyond(500)) == ["A/0", "B/0", "C/0"]
    assert table.list_asleep() == {}


def test_another_stop_notes_queues_that_slept(tmp_path: Path) -> None:
    table = stopped_table(tmp_path)
    assert sorted(table.list_stopped(1).short) == ["A", "B"]
    assert named(table.list_awake()) == ["C/0"]
    before = table.list_stopped(1)
    assert len(list(table)) == 4
    after = table.list_stopped(1)
    assert after.short == before.short
    assert after.others == before.others == {"C": [0]}


def test_queues_that_wake_during_an_iteration_are_in_it_once(tmp_path: Path) -> None:
    table = stopped_table(tmp_path)
    seen = []
    for queue in table:
        seen.append(queue)
        table.get("B", 0)
        table.delete_topic("A")
    assert named(seen) == ["B/0", "C/0"]


def test_a_topic_is_deleted_asleep(tmp_path: Path) -> None:
    table = stopped_table(tmp_path)
    table.delete_topic("A").remove()
    assert named(table) == ["B/0", "C/0"]
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == ["B", "C"]


def test_a_topic_with_short_and_other_queues_is_awake(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for queue_id, count in (0, 2), (1, 7):
        for number in range(count):
            table.get_or_create("A", queue_id).append(number, 1000 * queue_id + number, 1, 0)
    table.flush_all()
    stopped = table.list_stopped(1)
    table.close()
    again = new_table(tmp_path)
    again.restore(stopped, 4096)
    assert named(again.list_awake()) == ["A/0", "A/1"]
    assert again.list_asleep() == {}
