"""JournalSync: notes reach the disk a moment later, again after a disk that failed."""

import asyncio
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.scheduled.journal_sync import INTERVAL_S, NAME, RETRY_S, JournalSync
from rockhopper.broker.store.files import disk
from tests.support.hang import HANG_S
from tests.support.held_clock import HeldClock


class Notes:
    """Files with notes, and a disk on which a sync ends when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[Path] = []
        self.synced: list[list[Path]] = []
        self.errors: list[OSError] = []
        self.begun, self.may_end = asyncio.Event(), threading.Event()
        self.may_end.set()
        self._loop = asyncio.get_running_loop()
        self.clock = HeldClock(monkeypatch)
        monkeypatch.setattr(disk, "sync_paths", self._sync_paths)
        self.sync = JournalSync(self)

    def note(self, name: str) -> None:
        self.waiting.append(Path(name))
        self.sync.soon()

    def take_unsynced_notes(self) -> list[Path]:
        taken, self.waiting[:] = list(self.waiting), []
        return taken

    def unsynced_again(self, paths: list[Path]) -> None:
        self.waiting += paths

    def _sync_paths(self, paths: list[Path]) -> None:
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.may_end.wait(HANG_S)
        if self.errors:
            raise self.errors.pop()
        self.synced.append(paths)

    async def turn(self, seconds: float) -> None:
        """Let time pass, and what began in it end."""
        self.clock.advance(seconds)
        for _ in range(3):
            await asyncio.sleep(0)
        while any(task.get_name() == NAME for task in asyncio.all_tasks()):  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_notes_of_one_moment_are_synced_together(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(monkeypatch)
    notes.note("a")
    notes.note("b")
    await notes.turn(INTERVAL_S * 0.9)
    assert notes.synced == []
    await notes.turn(INTERVAL_S * 0.2)
    assert notes.synced == [[Path("a"), Path("b")]]
    await notes.turn(10 * RETRY_S)
    assert len(notes.synced) == 1


async def test_what_is_noted_during_a_sync_gets_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes = Notes(monkeypatch)
    notes.may_end.clear()
    notes.note("a")
    notes.clock.advance(INTERVAL_S)
    await notes.begun.wait()
    notes.note("b")
    notes.may_end.set()
    await notes.turn(0)
    assert notes.synced == [[Path("a")]]
    await notes.turn(INTERVAL_S)
    assert notes.synced == [[Path("a")], [Path("b")]]


async def test_a_failed_sync_is_said_once_and_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes = Notes(monkeypatch)
    notes.errors = [OSError(5, "first"), OSError(5, "again")]
    with capture_logs() as logs:
        notes.note("a")
        await notes.turn(INTERVAL_S)
        assert notes.waiting == [Path("a")]
        await notes.turn(INTERVAL_S)
        assert notes.waiting == [Path("a")]
        await notes.turn(RETRY_S)
        await notes.turn(RETRY_S)
    assert notes.synced == [[Path("a")]]
    assert len(logs) == 1
    notes.errors = [OSError(5, "another time")]
    with capture_logs() as logs:
        notes.note("b")
        await notes.turn(INTERVAL_S)
    assert len(logs) == 1
    notes.sync.stop()


async def test_after_a_stop_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(monkeypatch)
    notes.note("a")
    notes.sync.stop()
    await notes.turn(10 * RETRY_S)
    assert notes.synced == []
    notes.note("b")
    await notes.turn(INTERVAL_S)
    assert notes.synced == [[Path("a"), Path("b")]]


async def test_closing_waits_for_the_sync_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(monkeypatch)
    notes.may_end.clear()
    notes.note("a")
    notes.clock.advance(INTERVAL_S)
    await notes.begun.wait()
    closing = asyncio.ensure_future(notes.sync.close())
    await asyncio.sleep(0)
    assert not closing.done()
    notes.note("b")
    notes.may_end.set()
    await closing
    await notes.turn(10 * RETRY_S)
    assert notes.synced == [[Path("a")]]
