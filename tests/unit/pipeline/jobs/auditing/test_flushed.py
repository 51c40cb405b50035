"""An audit waits for what is archived and not known to be on the broker's disk yet."""

import os
from pathlib import Path

import pytest

from rockhopper.pipeline.jobs.auditing import flushed
from rockhopper.pipeline.jobs.auditing.archive import read_archive
from rockhopper.pipeline.jobs.auditing.flushed import WAIT_S, open_with_archived
from rockhopper.protocol.store.queue_layout import CHECKPOINT, encode_own_checkpoint
from tests.support.derived_stores import audited
from tests.support.written_archives import archive_of
from tests.support.written_logs import T0_MS, WrittenLog


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """A log on which this process passes for a running broker."""
    log = WrittenLog(tmp_path / "store").add(30)
    archive_of(log, tmp_path / "archive")
    (log.root / "abort").write_text(str(os.getpid()))
    (log.root / "rockhopper").mkdir()
    return log


def flush(log: WrittenLog, number: int) -> None:
    """Let Rockhopper's checkpoint say that so many messages are on disk."""
    end = (*log.offsets, log.end)[number]
    data = encode_own_checkpoint(T0_MS + number - 1, 0, 0, 0, 0, end)
    (log.root / "rockhopper" / "checkpoint").write_bytes(data)


def test_what_is_archived_and_not_flushed_is_waited_for(
    log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush(log, 20)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        flush(log, 20 + 5 * len(waits))

    monkeypatch.setattr(
        flushed.open_with_archived, "__kwdefaults__", {"now_s": lambda: 0.0, "wait": wait}
    )
    result = audited(log.root, archive=str(tmp_path / "archive"), checks=["archive"])

    assert result.counts == {}
    assert result.archived_and_in_log_count == 30
    assert len(waits) == 2


def test_a_log_that_has_lost_what_is_archived_is_told(log: WrittenLog, tmp_path: Path) -> None:
    flush(log, 29)
    archive = str(tmp_path / "archive")
    files = read_archive(archive)
    assert files is not None
    times = iter([0.0, 1.0, WAIT_S, WAIT_S])
    waits: list[float] = []
    store = open_with_archived(
        str(log.root), archive, files, None, now_s=lambda: next(times), wait=waits.append
    )
    assert store.flushed.offset == log.offsets[29]
    assert len(waits) == 1


@pytest.mark.parametrize(("number", "is_waited_for"), [(29, True), (30, False)])
def test_of_apaches_brokers_the_time_counts(
    number: int, is_waited_for: bool, log: WrittenLog, tmp_path: Path
) -> None:
    checkpoint = CHECKPOINT.pack(T0_MS + number - 1, T0_MS + number - 1, 0, 0, 0)
    (log.root / "checkpoint").write_bytes(checkpoint)
    archive = str(tmp_path / "archive")
    waits: list[float] = []
    times = iter([0.0, 0.0, WAIT_S])
    open_with_archived(
        str(log.root),
        archive,
        read_archive(archive) or [],
        "broker-a",
        now_s=lambda: next(times),
        wait=waits.append,
    )
    assert bool(waits) == is_waited_for
