"""The notes of deleted topics: each is an append, and survives what befalls their file."""

import errno
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.record_file import read_records
from rockhopper.broker.store.queues.deleted_topics import (
    DeletedQueues,
    DeletedTopics,
    move_queues_aside,
)
from tests.support.killed_store import copy_killed
from tests.support.open_files import open_files_in
from tests.support.open_stores import Stores, flush, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rockhopper" / "deleted-topics.records"


def opened(path: Path) -> DeletedTopics:
    return DeletedTopics(path, path.parent / "quarantine")


def test_a_deletion_writes_no_more_for_those_before_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    append_whole = disk.append_whole

    def count(descriptor: int, position: int, data: bytes) -> None:
        written.append(len(data))
        append_whole(descriptor, position, data)

    monkeypatch.setattr(disk, "append_whole", count)
    monkeypatch.setattr(disk, "write_atomically", None)
    topics = opened(path)
    for number in range(500):
        topics.record_deletion(f"topic{number:04d}", 1000 + number)
    assert not read_records(path).damages
    assert len(written) == 500
    assert len(set(written)) == 1
    again = opened(path)
    assert dict(again) == {f"topic{number:04d}": 1000 + number for number in range(500)}
    assert again.hides("topic0007", 1006)
    assert not again.hides("topic0007", 1007)
    assert not again.hides("another", 0)


def test_a_deletion_leaves_no_file_open(path: Path) -> None:
    topics = opened(path)
    topics.record_deletion("A", 7)
    assert open_files_in(path.parent) == []


def test_a_note_is_on_disk_before_anything_is_deleted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    sync_file = disk.sync_file

    def sync(descriptor: int) -> None:
        sync_file(descriptor)
        synced.append(path.read_bytes())

    monkeypatch.setattr(disk, "sync_file", sync)
    opened(path).record_deletion("A", 7)
    assert b"A" in synced[-1]


def test_the_list_that_early_builds_wrote_counts_and_is_taken_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = path.with_suffix(".json")
    former.parent.mkdir()
    former.write_text('{\n  "Old": 50,\n  "Both": 60\n}')
    topics = opened(path)
    assert dict(topics) == {"Old": 50, "Both": 60}
    assert former.exists()
    topics.record_deletion("Both", 70)
    assert not former.exists()
    monkeypatch.setattr(disk, "write_atomically", None)
    topics.record_deletion("New", 80)
    assert dict(opened(path)) == {"Old": 50, "Both": 70, "New": 80}


def test_notes_that_the_log_does_not_reach_back_to_are_dropped(path: Path) -> None:
    topics = opened(path)
    topics.add_all(["A", "B"], 100)
    topics.record_deletion("C", 200)
    topics.forget_before(100)
    assert dict(opened(path)) == dict(topics) == {"C": 200}
    topics.record_deletion("D", 300)
    assert dict(opened(path)) == {"C": 200, "D": 300}


def test_topics_deleted_again_and_again_do_not_fill_the_disk(path: Path) -> None:
    topics = opened(path)
    for end in range(5000):
        topics.record_deletion("same", end)
    assert path.stat().st_size < 200_000
    assert dict(opened(path)) == {"same": 4999}


def test_topics_deleted_again_after_each_start_do_not_fill_the_disk(path: Path) -> None:
    sizes = []
    for start in range(5):
        topics = opened(path)
        for end in range(400):
            topics.record_deletion("same", start * 400 + end)
        sizes.append(path.stat().st_size)
    assert max(sizes) < 3 * sizes[0]
    assert dict(opened(path)) == {"same": 1999}


def test_a_damaged_list_keeps_the_others_and_says_what_it_means(path: Path) -> None:
    topics = opened(path)
    for number in range(3):
        topics.record_deletion(f"topic{number}", number + 1)
    data = bytearray(path.read_bytes())
    third = len(data) // 3
    data[third + 10 : 2 * third - 3] = bytes(third - 13)
    path.write_bytes(data)
    with capture_logs() as logs:
        damaged = opened(path)
        damaged.record_deletion("new", 9)
    assert dict(opened(path)) == {"topic0": 1, "topic2": 3, "new": 9}
    (named,) = logs
    assert (named["log_level"], "deleted topics" in named["what"]) == ("error", True)


def test_a_damaged_list_of_early_builds_is_named(path: Path) -> None:
    path.parent.mkdir()
    path.with_suffix(".json").write_text('{"A": 5')
    with capture_logs() as logs:
        assert dict(opened(path)) == {}
    assert "damaged" in logs[0]["event"]


def test_a_damaged_list_is_named_at_the_start_though_nothing_is_deleted(
    stores: Stores, tmp_path: Path
) -> None:
    store = stores.open()
    put(store, b"old")
    flush(store)
    store.visibility.delete_topics(["TopicA"]).remove()
    killed = copy_killed(stores.root, tmp_path / "killed")
    (list_path := killed / "rockhopper/deleted-topics.records").write_bytes(b"rot" * 9)
    with capture_logs() as logs:
        stores.open(killed)
    (named,) = [entry for entry in logs if "record file" in entry["event"]]
    assert (named["log_level"], named["file"]) == ("error", str(list_path))
    assert "deleted topics" in named["what"]


@pytest.mark.parametrize("name", ["append_whole", "sync_file"])
def test_what_could_not_be_noted_hides_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    topics = opened(path)
    topics.record_deletion("A", 1)

    def fail(*_given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, name, fail)
        with pytest.raises(OSError, match="No space"):
            topics.add_all(["A", "B", "a name that is longer than what follows"], 9)
    assert dict(topics) == {"A": 1}
    assert not topics.hides("B", 5)
    topics.forget_before(0)
    topics.record_deletion("C", 2)
    assert dict(opened(path)) == {"A": 1, "C": 2}


def moved_aside(tmp_path: Path, topic: str) -> Path:
    queue = tmp_path / topic / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").touch()
    moved = move_queues_aside(queue.parent, tmp_path / "aside")
    assert moved is not None
    return moved


def test_another_topic_may_take_the_place_of_deleted_queues_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved, rmdir = moved_aside(tmp_path, "A"), Path.rmdir

    def rmdir_and_take_the_place(path: Path) -> None:
        rmdir(path)
        if path == moved:
            assert moved_aside(tmp_path, "B") == moved

    monkeypatch.setattr(Path, "rmdir", rmdir_and_take_the_place)
    with capture_logs() as logs:
        DeletedQueues(directories=[moved]).remove()
    assert moved.exists()
    assert logs == []


def test_unknown_files_among_deleted_queues_stay_and_are_logged(tmp_path: Path) -> None:
    moved = moved_aside(tmp_path, "A")
    (moved / "notes.txt").touch()
    with capture_logs() as logs:
        DeletedQueues(directories=[moved, moved.with_name("gone")]).remove()
    assert [path.name for path in moved.iterdir()] == ["notes.txt"]
    assert [(each["log_level"], each["directory"]) for each in logs] == [("warning", str(moved))]
