"""What was delivered half a second before a power cut does not come again.

Under SYNC_FLUSH, over a disk that forgets whatever was not synced. And whatever bit of the notes
of delay levels and timers is flipped, everything comes once.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.support.crashing_disk import CrashingDisk
from tests.support.features import NAMES
from tests.support.killed_store import copy_killed
from tests.support.noted_store import FACTS, START_MS, NotedStore
from tests.support.rot import flipped

SYNC = {"flushDiskType": "SYNC_FLUSH"}
COMING = ("later", "wheel")


def settle(store: NotedStore) -> None:
    """Let what runs in threads come to its end, and the log to the disk."""

    async def finish() -> None:
        broker = store.broker
        await broker.store.safe_point.wait_for_disk(broker.store.log.written_offset)
        names = {"syncing notes of deliveries", "saving the timers", "saving the delay levels"}
        tasks = [task for task in asyncio.all_tasks() if task.get_name() in names]
        await asyncio.gather(*tasks, return_exceptions=True)

    store.loop.run(finish())


def let_go(store: NotedStore) -> None:
    """End what a test leaves of a broker whose files are gone."""
    with contextlib.suppress(Exception):
        store.stop()


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NotedStore]:
    # The loop's time stands still while a batch waits for the disk.
    if "sinks" in NAMES:
        monkeypatch.setattr("rockhopper.broker.features.sinks.publisher.DISPATCH_POLL_S", 0)
    (tmp_path / "disk").mkdir()
    store = NotedStore(tmp_path / "disk", SYNC)
    yield store
    let_go(store)


def test_a_power_cut_repeats_nothing_that_is_half_a_second_old(
    tmp_path: Path, running: NotedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = CrashingDisk(running.root, monkeypatch)
    running.start()
    running.fill()
    expected = [FACTS[topic] for topic in COMING]
    for _ in range(20):
        # What is delivered can be read when the disk has it.
        if [running.bodies(topic) for topic in COMING] != expected:
            settle(running)
            running.pass_s(0.25)
    assert [running.bodies(topic) for topic in COMING] == expected
    for _ in range(2):
        settle(running)
        running.pass_s(0.25)
    settle(running)
    disk.crash()
    copy_killed(running.root, tmp_path / "after")
    disk.close()
    monkeypatch.undo()
    after = NotedStore(tmp_path / "after", SYNC, passed_ms=running.clock.now_ms - START_MS)
    after.start()
    settle(after)
    assert [after.bodies(topic) for topic in COMING] == expected
    assert after.broker.kernel.scheduled.timers.pending_count == 3
    let_go(after)


def notes(root: Path) -> list[Path]:
    own = root / "rockhopper"
    paths = [*own.glob("delay/*"), *own.glob("timers/**/*")]
    return sorted(path for path in paths if path.is_file() and path.stat().st_size)


def damages(data: bytes) -> Iterator[bytes]:
    """Some flipped bits and cuts, of every part of a file."""
    for bit in range(3, len(data) * 8, max(len(data) * 8 // 4, 1)):
        damaged = flipped(data, bit)
        yield damaged
    yield from (b"", data[: len(data) // 2], data[:-1])


def test_no_damage_to_one_file_of_notes_repeats_or_loses_a_message(
    tmp_path: Path, running: NotedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.start()
    running.fill()
    settle(running)
    running.broker.kernel.scheduled.timers.saver.save_now()
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr("os.fdatasync", lambda _: None)
    killed = running.kill(tmp_path / "killed")
    names = [path.relative_to(killed) for path in notes(killed)]
    assert {name.suffix for name in names} == {".records", ".json", ".bak", ""}
    for number, name in enumerate(names):
        data = (killed / name).read_bytes()
        for kind, damaged in enumerate(damages(data)):
            root = tmp_path / f"{number}-{kind}"
            shutil.copytree(killed, root)
            (root / name).write_bytes(damaged)
            started = NotedStore(root, passed_ms=3000)
            with capture_logs() as logs:
                started.start()
            said = [entry for entry in logs if entry["log_level"] in ("warning", "error")]
            # A delay level's only note: without it, the messages come again.
            is_lost = name.parts[1] == "delay" and len(damaged) < len(data) // 2
            if not is_lost:
                assert started.facts() == FACTS, (name, kind)
                assert started.broker.kernel.scheduled.timers.pending_count == 3
            # In a checked table, a bit that stands for nothing may flip unseen.
            is_told = len(damaged) == len(data) and name.suffix in (".records", "")
            assert said or not is_told, (name, kind)
            started.stop()
            shutil.rmtree(root)
