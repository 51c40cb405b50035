"""DerivedFlush: queues and index after the log, and a checkpoint that states what is on disk."""

import errno
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.checkpoint import load
from tests.support.open_stores import Stores, flush, flush_derived_files, put


def test_the_checkpoint_states_only_what_was_synced_before_it(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    synced: list[str] = []
    real_file, real_write = disk.sync_file, disk.write_atomically

    def sync_file(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().parts[-2])
        real_file(descriptor)

    def write_atomically(path: Path, data: bytes) -> None:
        synced.append("checkpoint")
        real_write(path, data)

    monkeypatch.setattr(disk, "sync_file", sync_file)
    monkeypatch.setattr(
        "rockhopper.broker.store.files.checkpoint.write_atomically", write_atomically
    )
    put(store, properties="KEYS\x01k\x02")
    flush(store)
    flush_derived_files(store)
    assert synced == ["commitlog", "0", "index", "index", "checkpoint"]


def test_a_checkpoint_without_a_flush_of_the_log_does_not_move(stores: Stores) -> None:
    store = stores.open()
    put(store)
    flush(store)
    flush_derived_files(store)
    first_ms = stores.clock.now_ms
    stores.clock.advance(1000)
    put(store)
    for _ in store.flush_service.derived.steps(False):
        pass
    store.flush_service.derived.save_checkpoint()
    saved = load(stores.root / "rockhopper" / "checkpoint")
    assert (saved.commit_log_ms, saved.consume_queue_ms, saved.index_ms) == (first_ms,) * 3
    flush(store)
    store.flush_service.derived.save_checkpoint()
    saved = load(stores.root / "rockhopper" / "checkpoint")
    assert (saved.commit_log_ms, saved.consume_queue_ms) == (first_ms + 1000, first_ms)


def test_a_message_that_comes_during_the_flush_of_queues_is_not_claimed(stores: Stores) -> None:
    store = stores.open()
    put(store)
    put(store, queue_id=1)
    steps = store.flush_service.derived.steps(True)
    next(steps)
    first_ms = stores.clock.now_ms
    stores.clock.advance(1000)
    put(store)
    for _ in steps:
        pass
    store.flush_service.derived.save_checkpoint()
    assert load(stores.root / "rockhopper" / "checkpoint").consume_queue_ms == first_ms


def test_rocketmq_is_told_of_queues_and_index_only_by_a_clean_stop(stores: Stores) -> None:
    store = stores.open()
    put(store)
    stores.reopen_after_stop()
    stopped_ms = stores.clock.now_ms
    running = load(stores.root / "checkpoint")
    assert (running.commit_log_ms, running.consume_queue_ms, running.index_ms) == (stopped_ms, 0, 0)
    stores.reopen_after_stop().opened.close(clean=True)
    assert load(stores.root / "checkpoint")[:3] == (stopped_ms,) * 3


def test_a_checkpoint_waits_for_room_and_says_so_once(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    put(store)
    flush(store)
    path = stores.root / "rockhopper" / "checkpoint"
    before = path.read_bytes()

    def fails_with(number: int) -> None:
        def fail(_path: Path, _data: bytes) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("rockhopper.broker.store.files.checkpoint.write_atomically", fail)

    with capture_logs() as logs:
        fails_with(errno.ENOSPC)
        flush_derived_files(store)
        flush_derived_files(store)
        fails_with(errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            flush_derived_files(store)
    assert [entry["event"] for entry in logs] == ["the checkpoint waits for disk space"]
    assert path.read_bytes() == before
    monkeypatch.undo()
    flush_derived_files(store)
    assert load(path).commit_log_ms == stores.clock.now_ms
