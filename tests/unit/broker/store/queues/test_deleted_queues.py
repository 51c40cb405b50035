"""Deleted queues: out of the way at once, their files gone later, and nothing else with them."""

import errno
import os
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk, mapped_file
from rockhopper.broker.store.files.mapped_file import MappedFile, Mappings
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.deleted_topics import DeletedQueues
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from tests.support.hang import HANG_S
from tests.support.open_files import open_files_in
from tests.support.open_stores import Stores, bodies, put


@pytest.fixture
def table(tmp_path: Path) -> ConsumeQueueTable:
    table = ConsumeQueueTable(StoreLayout(tmp_path), 100, 138)
    for queue_id in range(3):
        table.get_or_create("A", queue_id).append(0, 0, 50, 0)
    return table


@pytest.fixture
def aside(tmp_path: Path) -> Path:
    return StoreLayout(tmp_path).deleted_queues


def test_the_topic_may_be_made_again_before_the_files_are_gone(
    table: ConsumeQueueTable, tmp_path: Path, aside: Path
) -> None:
    deleted = table.delete_topic("A")
    assert not (tmp_path / "consumequeue/A").exists()
    queue = table.get_or_create("A", 0)
    queue.append(0, 700, 50, 7)
    assert sum(1 for _ in table.flush_steps(True)) == 4
    deleted.remove()
    assert os.listdir(aside) == []
    assert queue.entry(0) == (700, 50, 7)
    table.close()
    again = ConsumeQueue(tmp_path / "consumequeue/A/0", "A", 0, 100)
    again.load()
    again.recover(1 << 20)
    assert again.entry(0) == (700, 50, 7)
    again.close()
    assert open_files_in(tmp_path) == []


def test_nothing_is_deleted_one_by_one_while_others_wait(
    table: ConsumeQueueTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("this takes time for each queue")

    with monkeypatch.context() as patch:
        for name in ("unlink", "rmdir"):
            patch.setattr(Path, name, refuse)
        patch.setattr(MappedFile, "close", refuse)
        deleted = table.delete_topic("A")
    deleted.remove()


def test_topics_deleted_one_after_the_other_do_not_meet(
    table: ConsumeQueueTable, aside: Path
) -> None:
    first = table.delete_topic("A")
    table.get_or_create("A", 0).append(0, 0, 50, 0)
    second = table.delete_topic("A")
    assert sorted(os.listdir(aside)) == ["0", "1"]
    (first + second).remove()
    assert os.listdir(aside) == []


def test_what_is_no_file_of_a_queue_stays(
    table: ConsumeQueueTable, tmp_path: Path, aside: Path
) -> None:
    (tmp_path / "consumequeue/A/1/notes.txt").write_text("mine")
    with capture_logs() as logs:
        table.delete_topic("A").remove()
    assert [entry["directory"] for entry in logs] == [str(aside / "0")]
    assert [path for path in aside.rglob("*") if path.is_file()] == [aside / "0/1/notes.txt"]
    table.get_or_create("A", 0).append(0, 0, 50, 0)
    table.delete_topic("A").remove()
    assert os.listdir(aside) == ["0"]


def test_a_directory_that_cannot_be_moved_is_emptied_where_it_is(
    table: ConsumeQueueTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(disk, "move", refuse)
    with capture_logs() as logs:
        table.delete_topic("A").remove()
    assert len(logs) == 1
    assert not (tmp_path / "consumequeue/A").exists()


def test_a_flush_that_meets_a_deletion_is_no_failure_of_the_disk(
    table: ConsumeQueueTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = disk.sync_file
    deleted: list[DeletedQueues] = []

    def sync_file(descriptor: int) -> None:
        real(descriptor)
        if not deleted:
            deleted.append(table.delete_topic("A"))
            deleted[0].remove()

    monkeypatch.setattr(disk, "sync_file", sync_file)
    assert sum(1 for _ in table.flush_steps(True)) == 3
    assert len(deleted) == 1


def test_a_deletion_waits_only_for_the_file_that_is_being_made(
    tmp_path: Path, aside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mappings = Mappings()
    mappings.drafts_max = 3
    table = ConsumeQueueTable(StoreLayout(tmp_path), 100, 138, mappings)
    for queue_id in range(3):
        table.get_or_create("A", queue_id).append(0, 0, 50, 0)
    make_file, mark_deleted = mapped_file._make_file, MappedFile.mark_deleted
    is_making, is_marked = threading.Event(), threading.Event()
    marked: list[MappedFile] = []
    made: list[Path] = []

    def make(path: Path, *rest: object) -> None:
        is_making.set()
        assert is_marked.wait(HANG_S)
        make_file(path, *rest)  # type: ignore[arg-type]
        made.append(path)

    def mark(file: MappedFile) -> None:
        mark_deleted(file)
        marked.append(file)
        if len(marked) == 3:
            is_marked.set()

    monkeypatch.setattr(mapped_file, "_make_file", make)
    monkeypatch.setattr(MappedFile, "mark_deleted", mark)
    flushing = threading.Thread(target=lambda: list(table.flush_steps(True)))
    flushing.start()
    assert is_making.wait(HANG_S)
    deleted = table.delete_topic("A")
    flushing.join()
    assert [path.parent.name for path in made] == ["0"]
    assert os.listdir(aside / "0") == ["0"]
    deleted.remove()
    assert os.listdir(aside) == []


def test_a_kill_before_the_files_are_gone_leaves_them_to_the_next_start(stores: Stores) -> None:
    store = stores.open()
    put(store, b"gone")
    put(store, b"stays", "TopicB")
    deleted = store.visibility.delete_topics(["TopicA"])
    killed = stores.reopen_after_kill()
    assert bodies(killed) == []
    assert bodies(killed, "TopicB") == [b"stays"]
    assert put(killed, b"new").queue_offset == 0
    root = stores.root.parent / "killed1"
    assert os.listdir(StoreLayout(root).deleted_queues) == []
    assert os.listdir(StoreLayout(stores.root).deleted_queues) == ["0"]
    deleted.remove()
