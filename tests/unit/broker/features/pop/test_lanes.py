"""Lanes and their journal: what is known again after a crash, and what damage costs."""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from rockhopper.broker.features.pop.lanes import InFlight, Lane, Lanes, lane_record
from rockhopper.broker.features.pop.ordered import OrderedBatch
from rockhopper.broker.kernel.state_channels import StateChannel
from rockhopper.broker.store.files import disk
from rockhopper.protocol.store.journal_records import decode_records
from tests.support.pop_world import journal_in
from tests.support.rot import flipped

DIRECTORY = "pop"


def opened(root: Path, log_end: int = 1 << 40) -> Lanes:
    lanes = Lanes(journal_in(root))
    lanes.load(log_end)
    return lanes


def state(lanes: Lanes) -> list[tuple[object, ...]]:
    return sorted(
        (lane.group, lane.topic, lane.queue_id, lane.cursor, dict(lane.entries), lane.batch)
        for lane in lanes
    )


class Noted:
    """A channel that keeps what is written to it."""

    is_replicated = True

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def note(self, record: bytes) -> None:
        self.records.append(record)


@pytest.fixture
def lane(tmp_path: Path) -> tuple[Lanes, Lane]:
    lanes = opened(tmp_path)
    return lanes, lanes.open("g", "t", 3, 10)


def popped(lanes: Lanes, lane: Lane) -> None:
    lanes.popped(lane, 14, 1000, 500, [10, 12, 13])


def filtered(lanes: Lanes, lane: Lane) -> None:
    lanes.popped(lane, 20, 1000, 500, [])


def acked(lanes: Lanes, lane: Lane) -> None:
    lanes.popped(lane, 13, 1000, 500, [10, 11, 12])
    lanes.acked(lane, [10, 12])


def changed(lanes: Lanes, lane: Lane) -> None:
    lanes.popped(lane, 13, 1000, 500, [10, 11, 12])
    lanes.changed(lane, 11, InFlight(2000, 0))


def suspended(lanes: Lanes, lane: Lane) -> None:
    lanes.popped(lane, 13, 1000, 500, [10, 11, 12])
    lanes.changed(lane, 11, InFlight(2000, 0, is_suspended=True))


def adopted(lanes: Lanes, lane: Lane) -> None:
    lanes.popped(lane, 13, 1000, 500, [11, 12])
    theirs = {9: InFlight(1, 2, is_suspended=True), 11: InFlight(2000, 5), 12: InFlight(900, 5)}
    lanes.adopt(lane, 14, theirs)
    assert list(lane.entries.items()) == [
        (9, InFlight(1, 2, is_suspended=True)),
        (11, InFlight(2000, 5)),
        (12, InFlight(1000, 500)),
    ]
    assert lanes.in_flight == 3


def moved(lanes: Lanes, lane: Lane) -> None:
    lanes.popped(lane, 13, 1000, 500, [10, 11, 12])
    lanes.moved(lane, 2)


def dropped(lanes: Lanes, lane: Lane) -> None:
    lanes.popped(lane, 13, 1000, 500, [10])
    lanes.drop(lane)


def ordered(lanes: Lanes, lane: Lane) -> None:
    lanes.ordered(lane, 11, OrderedBatch("a", 5, 6, [11, 12], {12}, {11: 9}, {11: 2}))


CHANGES = [popped, filtered, acked, changed, suspended, adopted, moved, dropped, ordered]


@pytest.mark.parametrize("change", CHANGES)
def test_change_is_known_again_after_a_crash(
    tmp_path: Path, lane: tuple[Lanes, Lane], change: Callable[[Lanes, Lane], None]
) -> None:
    lanes, opened_lane = lane
    change(lanes, opened_lane)
    again = opened(tmp_path)
    assert state(again) == state(lanes)
    assert again.in_flight == lanes.in_flight


def test_numbers_of_lanes_are_not_used_twice(tmp_path: Path, lane: tuple[Lanes, Lane]) -> None:
    lane[0].drop(lane[1])
    assert opened(tmp_path).open("g", "t", 4, 0).number == 2
    again = opened(tmp_path)
    assert again.open("g", "t", 5, 0).number == 3
    assert len(opened(tmp_path)) == 2


def test_copied_message_is_in_flight_again_if_the_log_lost_the_copy(
    tmp_path: Path, lane: tuple[Lanes, Lane]
) -> None:
    lanes, opened_lane = lane
    lanes.popped(opened_lane, 12, 1000, 500, [10, 11])
    lanes.copied(opened_lane, [10], 5000)
    assert opened_lane.low_water == 10
    assert lanes.take_due(2000) == (opened_lane, [11])
    (lost,) = opened(tmp_path, log_end=4999)
    assert list(lost.entries) == [10, 11]
    assert not lost.entries[10].is_copied
    (kept,) = opened(tmp_path, log_end=5000)
    assert list(kept.entries) == [11]


def test_a_copy_that_is_told_again_counts_for_those_that_are_still_in_flight(
    lane: tuple[Lanes, Lane],
) -> None:
    lanes, opened_lane = lane
    noted = Noted()
    lanes.popped(opened_lane, 12, 1000, 500, [10])
    lanes.popped(opened_lane, 14, 1000, 500, [12])
    lanes.channel = cast(StateChannel, noted)
    lanes.copied(opened_lane, [10, 12], 5000)
    lanes.channel = None
    lanes.acked(opened_lane, [10])
    opened_lane.entries[12] = opened_lane.entries[12]._replace(copy_end=-1)
    (record,) = decode_records(noted.records[0]).records
    lanes.apply(*record)
    assert opened_lane.entries[12].is_copied
    lanes.settle(5000)
    assert not opened_lane.entries


def test_copied_message_is_settled_when_the_disk_has_it(lane: tuple[Lanes, Lane]) -> None:
    lanes, opened_lane = lane
    lanes.popped(opened_lane, 12, 1000, 500, [10, 11])
    lanes.copied(opened_lane, [10], 5000)
    assert lanes.settle(4999) == []
    assert lanes.unsettled_end == 5000
    assert lanes.settle(5000) == [opened_lane]
    assert opened_lane.low_water == 11
    assert lanes.in_flight == 1


def test_damaged_tail_is_cut_and_kept(tmp_path: Path, lane: tuple[Lanes, Lane]) -> None:
    lanes, opened_lane = lane
    lanes.popped(opened_lane, 12, 1000, 500, [10, 11])
    before = state(lanes)
    (path,) = (tmp_path / DIRECTORY).iterdir()
    size_bytes = path.stat().st_size
    lanes.acked(opened_lane, [10])
    data = path.read_bytes()[:-1] + b"?"
    data = data[: size_bytes + 5] + b"?" + data[size_bytes + 6 :]
    path.write_bytes(data)
    again = opened(tmp_path)
    assert state(again) == before
    assert path.stat().st_size == size_bytes
    (kept,) = (tmp_path / "quarantine").iterdir()
    assert kept.read_bytes() == data
    (reopened,) = again
    again.acked(reopened, [11])
    assert state(opened(tmp_path)) == state(again)


def test_a_lost_record_leaves_no_message_behind(tmp_path: Path, lane: tuple[Lanes, Lane]) -> None:
    """What is popped later says nothing of the messages that the lost record handed out."""
    lanes, opened_lane = lane
    (path,) = (tmp_path / DIRECTORY).iterdir()
    start = path.stat().st_size
    lanes.popped(opened_lane, 12, 1000, 500, [10, 11])
    end = path.stat().st_size
    lanes.popped(opened_lane, 14, 1000, 500, [12, 13])
    data = path.read_bytes()
    path.write_bytes(data[:start] + bytes(end - start) + data[end:])
    (again,) = opened(tmp_path)
    assert (again.cursor, again.low_water) == (10, 10)


def test_any_flipped_bit_of_the_journal_is_mended(tmp_path: Path, lane: tuple[Lanes, Lane]) -> None:
    lanes, opened_lane = lane
    lanes.popped(opened_lane, 12, 1000, 500, [10, 11])
    lanes.acked(opened_lane, [10])
    (path,) = (tmp_path / DIRECTORY).iterdir()
    data, expected = path.read_bytes(), state(lanes)
    for bit in range(len(data) * 8):
        damaged = flipped(data, bit)
        path.write_bytes(damaged)
        journal = journal_in(tmp_path)
        again = Lanes(journal)
        for kind, payload in journal.read():
            again.apply(kind, payload)
        assert state(again) == expected, bit
        assert not journal.is_damaged


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_half_written_record_costs_only_itself(
    tmp_path: Path, lane: tuple[Lanes, Lane], cut: int
) -> None:
    lanes, opened_lane = lane
    before = state(lanes)
    (path,) = (tmp_path / DIRECTORY).iterdir()
    size_bytes = path.stat().st_size
    lanes.popped(opened_lane, 12, 1000, 500, [10, 11])
    path.write_bytes(path.read_bytes()[: size_bytes + cut])
    assert state(opened(tmp_path)) == before


def test_full_disk_changes_nothing(
    tmp_path: Path, lane: tuple[Lanes, Lane], monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes, opened_lane = lane
    lanes.popped(opened_lane, 12, 1000, 500, [10, 11])
    before = state(lanes)

    def half(descriptor: int, position: int, data: bytes) -> None:
        write(descriptor, position, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    write = disk.write_fully
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_fully", half)
        with pytest.raises(OSError, match="No space"):
            lanes.acked(opened_lane, [10])
        with pytest.raises(OSError, match="No space"):
            lanes.popped(opened_lane, 13, 2000, 5, [12])
        with pytest.raises(OSError, match="No space"):
            lanes.moved(opened_lane, 0)
    assert state(lanes) == before
    lanes.acked(opened_lane, [11])
    assert state(opened(tmp_path)) == state(lanes)


def test_older_files_go_when_the_newest_says_all(tmp_path: Path, lane: tuple[Lanes, Lane]) -> None:
    lanes, opened_lane = lane
    lanes.popped(opened_lane, 13, 1000, 500, [10, 11, 12])
    journal = lanes.journal
    journal.rotate()
    lanes.acked(opened_lane, [10])
    assert state(opened(tmp_path)) == state(lanes)
    journal.append(lane_record(opened_lane))
    lanes.acked(opened_lane, [11])
    journal.forget_older()
    assert len(list((tmp_path / DIRECTORY).iterdir())) == 1
    assert state(opened(tmp_path)) == state(lanes)


def test_what_the_log_lost_is_not_in_flight(tmp_path: Path, lane: tuple[Lanes, Lane]) -> None:
    lanes, opened_lane = lane
    lanes.popped(opened_lane, 13, 1000, 500, [10, 11, 12])
    assert lanes.clamp(lambda _topic, _queue: (0, 11)) == 1
    assert list(opened_lane.entries) == [10]
    assert opened_lane.cursor == 11
    assert state(opened(tmp_path)) == state(lanes)


def test_acknowledged_messages_leave_no_times_behind(lane: tuple[Lanes, Lane]) -> None:
    lanes, opened_lane = lane
    for offset in range(10, 5000):
        lanes.popped(opened_lane, offset + 1, 1000, 60_000, [offset])
        lanes.acked(opened_lane, [offset])
    assert len(lanes.due) < 1100
    assert lanes.take_due(1 << 50) is None


def test_attempts_that_hold_messages_in_order_are_known_by_queue_and_by_group(
    lane: tuple[Lanes, Lane], tmp_path: Path
) -> None:
    lanes, one = lane
    two, three = lanes.open("g", "t", 4, 0), lanes.open("h", "t", 3, 0)
    for each, attempt_id in ((one, "a"), (two, "b"), (three, None)):
        lanes.ordered(each, 0, OrderedBatch(attempt_id, 1, 1, [0]))
    for known in (lanes, opened(tmp_path)):
        assert known.attempts_holding("g", None) == {"a", "b"}
        assert known.attempts_holding("g", ("t", 4)) == {"b"}
        assert known.attempts_holding("g", ("t", 9)) == set()
        assert known.attempts_holding("h", None) == set()
    lanes.ordered(one, 1, None)
    lanes.drop(two)
    assert lanes.attempts_holding("g", None) == set()
    assert lanes.attempts_holding("g", ("t", 3)) == set()


def test_the_oldest_in_flight_is_found_without_a_walk_over_those_that_have_gone(
    lane: tuple[Lanes, Lane],
) -> None:
    """Of a dict the first is behind the places of all that were deleted in front of it."""
    lanes, one = lane
    for change in (adopted, popped, moved):
        change(lanes, one)
        assert isinstance(one.entries, OrderedDict)
