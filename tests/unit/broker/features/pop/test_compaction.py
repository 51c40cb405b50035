"""Compaction: what counts is written anew in turns, and older files go when that is on disk."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.features.pop import compaction as module
from rockhopper.broker.features.pop.compaction import RETRY_S, Compaction
from rockhopper.broker.features.pop.lanes import Lanes
from tests.support.held_clock import HeldClock
from tests.support.pop_world import journal_in
from tests.support.turns import until


class Compacted:
    """Lanes of which each has messages in flight, and a compaction that a test begins."""

    def __init__(self, root: Path, size_bytes_min: int = 1) -> None:
        self.root = root
        self.journal = journal_in(root)
        self.lanes = Lanes(self.journal)
        self.lanes.load(0)
        self.compaction = Compaction(self.journal, self.lanes, size_bytes_min=size_bytes_min)

    def pop(self, lane_count: int, times: int = 3) -> None:
        for number in range(lane_count):
            lane = self.lanes.open("g", f"t{number}", 0, 0)
            for offset in range(times):
                self.lanes.popped(lane, offset + 1, 1000, 500, [offset])

    def numbers(self) -> list[int]:
        return [int(path.name) for path in self.journal.files()]

    def state(self) -> list[tuple[str, int, list[int]]]:
        """What a start after a kill finds."""
        lanes = Lanes(journal_in(self.root))
        lanes.load(1 << 40)
        return sorted((lane.topic, lane.cursor, sorted(lane.entries)) for lane in lanes)

    async def done(self) -> None:
        await until(lambda: self.compaction.deleting is None and self.numbers()[:1] != [0])


@pytest.fixture
def compacted(tmp_path: Path) -> Iterator[Compacted]:
    made = Compacted(tmp_path)
    yield made
    made.journal.close()


async def test_a_small_journal_is_left_alone(tmp_path: Path) -> None:
    small = Compacted(tmp_path, size_bytes_min=1 << 20)
    small.pop(3)
    small.compaction.consider()
    assert small.numbers() == [0]
    await small.compaction.close()
    small.journal.close()


async def test_what_counts_is_in_the_new_file_alone(compacted: Compacted) -> None:
    compacted.pop(3)
    before = compacted.state()
    size_bytes = compacted.journal.size_bytes
    compacted.compaction.consider()
    await compacted.done()
    assert compacted.numbers() == [1]
    assert compacted.state() == before
    assert compacted.journal.size_bytes < size_bytes


async def test_it_goes_lane_by_lane_and_what_is_noted_meanwhile_counts(
    compacted: Compacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES_PER_TURN", 1)
    compacted.pop(5)
    compacted.compaction.consider()
    await asyncio.sleep(0)
    assert compacted.numbers() == [0, 1]
    first, second, *_ = compacted.lanes
    compacted.lanes.acked(first, [0])
    compacted.lanes.drop(second)
    state = sorted((lane.topic, lane.cursor, sorted(lane.entries)) for lane in compacted.lanes)
    assert compacted.state() == state
    await compacted.done()
    assert compacted.state() == state
    assert len(state) == 4


async def test_a_journal_that_has_grown_is_compacted_again_only_at_three_times_its_size(
    compacted: Compacted,
) -> None:
    compacted.pop(3)
    compacted.compaction.consider()
    compacted.compaction.consider()
    await compacted.done()
    compacted.compaction.consider()
    assert compacted.numbers() == [1]
    compacted.pop(3, times=12)
    compacted.compaction.consider()
    await until(lambda: compacted.numbers() == [2])


async def test_a_disk_that_refuses_a_new_file_is_tried_again_later(
    compacted: Compacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HeldClock(monkeypatch)
    compacted.pop(3)

    def refuse() -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(compacted.journal, "rotate", refuse)
        compacted.compaction.consider()
        compacted.compaction.consider()
    assert len(logs) == 1
    assert compacted.numbers() == [0]
    clock.advance(RETRY_S)
    await compacted.done()
    assert compacted.numbers() == [1]


async def test_a_disk_that_is_full_on_the_way_leaves_the_older_files(
    compacted: Compacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted.pop(3)
    before = compacted.state()

    def refuse(data: bytes) -> None:
        raise OSError(28, "no space")

    compacted.compaction.consider()
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(compacted.journal, "append", refuse)
        await asyncio.sleep(0)
    assert len(logs) == 1
    assert compacted.numbers() == [0, 1]
    assert compacted.state() == before


async def test_older_files_that_cannot_be_deleted_are_named(
    compacted: Compacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(5, "io")

    monkeypatch.setattr(compacted.journal, "forget_older", refuse)
    compacted.pop(3)
    with capture_logs() as logs:
        compacted.compaction.consider()
        await until(lambda: bool(logs))
    await compacted.compaction.close()
    assert compacted.compaction.deleting is None


async def test_closing_begins_nothing_more(compacted: Compacted) -> None:
    compacted.pop(3)
    compacted.compaction.consider()
    await compacted.compaction.close()
    await asyncio.sleep(0)
    assert compacted.numbers() == [0, 1]


async def test_closing_waits_until_older_files_are_deleted_and_none_is_added_meanwhile(
    compacted: Compacted,
) -> None:
    compacted.pop(3)
    compacted.compaction.consider()
    await asyncio.sleep(0)
    assert compacted.compaction.deleting is not None
    compacted.pop(3, times=12)
    compacted.compaction.consider()
    await compacted.compaction.close()
    assert compacted.compaction.deleting is None
    assert compacted.numbers() == [1]


async def test_after_a_full_disk_it_is_tried_again_when_as_much_has_come_as_made_it_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(data: bytes) -> None:
        raise OSError(28, "no space")

    made = Compacted(tmp_path, size_bytes_min=1000)
    made.pop(10)
    made.compaction.consider()
    with monkeypatch.context() as patch:
        patch.setattr(made.journal, "append", full)
        await asyncio.sleep(0)
    assert made.numbers() == [0, 1]
    made.compaction.consider()
    assert made.numbers() == [0, 1]
    made.pop(30)
    made.compaction.consider()
    assert made.numbers() == [0, 1, 2]
    await made.compaction.close()
    made.journal.close()
