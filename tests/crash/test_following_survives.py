"""A store that follows, and a power cut at any sync: what is left is a beginning of the log."""

import itertools
import shutil
from pathlib import Path

import pytest

from rockhopper.broker.settings.store_config import FlushDiskType
from rockhopper.broker.store.log.log_start import begin_at
from rockhopper.broker.store.message_store import MessageStore
from tests.support.crashing_disk import CrashingDisk, PowerCutError
from tests.support.open_stores import (
    FILE_SIZE_BYTES,
    bodies,
    flush,
    flush_derived_files,
    open_store,
)
from tests.support.written_logs import WrittenLog

START = 2 * FILE_SIZE_BYTES
FRAME_SIZE_BYTES = 700
COUNT = 60


def written(tmp_path: Path) -> bytes:
    """A log of some files that begins at START, as a master sends it."""
    log = WrittenLog(tmp_path / "master", FILE_SIZE_BYTES, end=START)
    for number in range(COUNT):
        log.add(topic="TopicA", queue_id=0, queue_offset=number, body=b"%d" % number + bytes(90))
    return b"".join(path.read_bytes() for path in sorted(log.commit_log.iterdir()))[
        : log.end - START
    ]


def follow(store: MessageStore, log: bytes) -> None:
    """Copy the rest, and flush and dispatch now and then, as the services do."""
    while (position := store.log.received_offset - START) < len(log):
        store.append_raw(store.log.received_offset, log[position : position + FRAME_SIZE_BYTES])
        store.follow_to(store.log.written_offset)
        store.retention.expire_before(START)
        flush(store)
        while store.catch_up():
            pass
        flush_derived_files(store)


# The power may be gone in the thread that flushes.
@pytest.mark.filterwarnings("ignore:Exception in thread store-flush")
def test_a_power_cut_at_any_sync_leaves_what_can_be_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path)
    assert len(log) > FILE_SIZE_BYTES
    for syncs in itertools.count(0, 3):
        root = tmp_path / f"store{syncs}"
        begin_at(root / "commitlog", FILE_SIZE_BYTES, START)
        disk = CrashingDisk(root, monkeypatch)
        disk.cut_after(syncs)
        was_cut = False
        store = None
        try:
            store = open_store(root, flush_disk_type=FlushDiskType.SYNC)
            follow(store, log)
        except PowerCutError:
            was_cut = True
        if store is not None:
            store.abandon()
        disk.crash()
        disk.syncs_before_cut = None
        store = open_store(root, flush_disk_type=FlushDiskType.SYNC)
        assert store.opened.report.holes == []
        follow(store, log)
        assert [int(body.rstrip(b"\0")) for body in bodies(store)] == list(range(COUNT))
        store.abandon()
        disk.close()
        shutil.rmtree(root)
        if not was_cut:
            assert syncs > 10
            break
