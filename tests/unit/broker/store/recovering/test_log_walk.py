"""Recovery of stores that RocketMQ wrote: every message found, queues rebuilt byte for byte."""

import shutil
from pathlib import Path

import pytest

from rockhopper.broker.store.files.checkpoint import StoreCheckpoint
from rockhopper.broker.store.recovering.log_walk import LogWalk
from tests.support.golden_stores import copy_golden_store
from tests.support.store_directories import Recovered, queue_files, recover

STORES = {
    "basic30": (16, 40),
    "crcprop": (16, 40),
    "eof_exact8": (16, 40),
    "mix": (16, 4000),
    "prepared_rollback": (16, 40),
    "three_sessions": (16, 4000),
    "timer": (16, 4000),
}


@pytest.fixture(params=sorted(STORES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def open_copy(root: Path, name: str, *, clean: bool = True) -> Recovered:
    size_bytes = 2000 if name == "mix" else 200
    return recover(root, clean=clean, index_shape=STORES[name], queue_file_size_bytes=size_bytes)


@pytest.fixture
def root(tmp_path: Path, name: str) -> Path:
    return copy_golden_store(name, tmp_path / "store")


def test_nothing_is_changed_in_a_store_that_was_stopped_cleanly(root: Path, name: str) -> None:
    before = queue_files(root)
    log_before = {p.name: p.read_bytes() for p in (root / "commitlog").iterdir()}
    store = open_copy(root, name)
    assert store.report.holes == []
    assert store.report.cut is None
    assert store.report.changed_queues == {}
    store.close()
    assert queue_files(root) == before
    assert {p.name: p.read_bytes() for p in (root / "commitlog").iterdir()} == log_before


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_deleted_queues_are_rebuilt_byte_for_byte(root: Path, name: str, clean: bool) -> None:
    before = queue_files(root)
    for kind in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(root / kind, ignore_errors=True)
    open_copy(root, name, clean=clean).close()
    assert queue_files(root) == before


def test_a_crash_without_a_checkpoint_changes_nothing(root: Path, name: str) -> None:
    before = queue_files(root)
    (root / "checkpoint").unlink()
    store = open_copy(root, name, clean=False)
    assert store.report.changed_queues == {}
    store.close()
    assert queue_files(root) == before


def test_every_message_has_its_place_in_a_queue_and_in_the_index(root: Path, name: str) -> None:
    shutil.rmtree(root / "index")
    store = open_copy(root, name)
    walk = LogWalk(store.files.files, 0)
    count = 0
    for record in walk.records():
        count += 1
        message = store.message(record.offset, record.size_bytes)
        assert message is not None
        if message.sys_flag & 0xC != 0xC:
            for key in [message.properties.get("UNIQ_KEY"), *message.keys]:
                assert key is None or record.offset in store.find(message.topic, key)
        if not message.sys_flag & 0x4:
            queue = store.queues.get(message.topic, message.queue_id)
            assert queue is not None
            entry = queue.entry(message.queue_offset)
            assert entry is not None
            assert entry[:2] == (record.offset, record.size_bytes)
    assert count == store.report.record_count > 0
    assert walk.end == store.report.log_end


def test_an_index_that_lost_its_beginning_is_built_anew(tmp_path: Path) -> None:
    root = copy_golden_store("three_sessions", tmp_path / "store")
    store = open_copy(root, "three_sessions")
    assert store.index.begin_commit_log_offset == 0
    assert store.report.indexed_count > 0
    assert len(store.find("TopicA", "kk")) > 30
    store.close()
    again = open_copy(root, "three_sessions")
    assert again.report.indexed_count == 0


def test_a_checkpoint_too_new_for_the_log_is_not_believed(tmp_path: Path) -> None:
    root = copy_golden_store("basic30", tmp_path / "store")
    before = queue_files(root)
    shutil.rmtree(root / "consumequeue")
    store = recover(
        root,
        clean=False,
        checkpoint=StoreCheckpoint(2**60, 2**60, 2**60),
        index_shape=STORES["basic30"],
        verify_bytes=0,
        adopt_bytes=0,
    )
    assert store.report.scanned_from == 0
    store.close()
    assert queue_files(root) == before
