"""What compiled code appends is what ConsumeQueue.append_many would; the rest it leaves."""

import errno
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.store.queues.batch_consume_queue import BatchConsumeQueue
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_tail import (
    QueueTail,
    Run,
    append_plain,
    append_plain_in_python,
    awaited,
    awaited_in_python,
    take_offsets,
    take_offsets_in_python,
)
from rockhopper.broker.store.queues.unit_files import MappedUnits
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from tests.support.store_listeners import Reader

pytestmark = pytest.mark.skipif(append_plain is append_plain_in_python, reason="no compiler")

PER_FILE = 5


class Place:
    """A queue with one message in it and room for four more, and a run of two more."""

    def __init__(self, directory: Path) -> None:
        self.dirty: deque[MappedUnits] = deque()
        self.queue = ConsumeQueue(directory, "T", 0, 20 * PER_FILE, self.dirty)
        self.queue.append(0, 0, 50, 7)
        self.queue.flush()
        self.dirty.clear()
        self.tail = QueueTail("T", 0, 3, is_batch=False)
        self.tail.consume_queue = self.queue
        self.units = b"".join(CONSUME_QUEUE_UNIT.pack(n * 100, 50, n) for n in (1, 2))
        self.run = Run(self.tail, 100, 250, 1, 2, [self.units])

    @property
    def ends(self) -> tuple[int, int, int]:
        return self.queue.next_offset, self.queue.max_offset, self.queue.commit_log_end


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Give one."""
    return Place(tmp_path / "T" / "0")


def test_a_plain_run_is_in_its_queue(place: Place) -> None:
    assert append_plain([place.run], 0) == 1
    assert place.ends == (3, 3, 250)
    assert place.queue.read_units(1, 2) == place.units
    assert list(place.dirty) == [place.queue]
    assert append_plain([place.run], 1) == 1


def test_a_queue_is_dirty_once(place: Place) -> None:
    append_plain([place.run], 0)
    append_plain([Run(place.tail, 300, 350, 3, 1, [place.units[:20]])], 0)
    assert list(place.dirty) == [place.queue]
    assert place.ends == (4, 4, 350)


def test_it_stops_at_the_first_that_is_not_plain(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path / "U" / "0")
    other.tail.is_deleted = True
    assert append_plain([place.run, other.run, place.run], 0) == 1
    assert place.ends == (3, 3, 250)
    assert other.ends == (1, 1, 50)


def _hold(place: Place) -> None:
    place.queue.hold()


def _let_go(place: Place) -> None:
    place.queue.flush()
    for _ in range(2):
        place.queue.release_if_idle()


def _in_two_pieces(place: Place) -> None:
    place.run.units = [place.units[:20], place.units[20:]]


def _other_length(place: Place) -> None:
    place.run.units = [place.units[:20]]


def _too_many(place: Place) -> None:
    place.run.count, place.run.units = 5, [place.units[:20] * 5]


def _empty(place: Place) -> None:
    place.run.count, place.run.units = 0, [b""]


def _in_front(place: Place) -> None:
    place.run.first_offset = 0


def _behind(place: Place) -> None:
    place.run.first_offset = 2


def _far_behind(place: Place) -> None:
    place.run.first_offset = 1 << 62


def _no_number(place: Place) -> None:
    place.run.count = "2"  # type: ignore[assignment]


def _no_tail(place: Place) -> None:
    place.run.tail = object()  # type: ignore[assignment]


def _no_queue(place: Place) -> None:
    place.tail.consume_queue = None


def _other_kind(place: Place) -> None:
    place.tail.consume_queue = BatchConsumeQueue(place.queue.directory, "T", 0, 460)


@pytest.mark.parametrize(
    "change",
    [
        _hold,
        _let_go,
        _in_two_pieces,
        _other_length,
        _too_many,
        _empty,
        _in_front,
        _behind,
        _far_behind,
        _no_number,
        _no_tail,
        _no_queue,
        _other_kind,
    ],
)
def test_what_is_not_plain_is_left_and_changes_nothing(
    change: Callable[[Place], None], place: Place
) -> None:
    change(place)
    assert append_plain([place.run], 0) == 0
    assert place.ends == (1, 1, 50)
    assert not place.dirty


def test_other_objects_are_left(place: Place) -> None:
    assert append_plain([object()], 0) == 0  # type: ignore[list-item]
    wrong_calls: list[tuple[Any, ...]] = [(), ([], -1), ([], "0"), ((), 0), ([], 0, 0)]
    for wrong in wrong_calls:
        with pytest.raises((TypeError, OverflowError)):
            append_plain(*wrong)


def test_what_cannot_be_noted_is_met_again_in_python(place: Place) -> None:
    class Full(deque[MappedUnits]):
        def append(self, queue: MappedUnits) -> None:
            if queue.max_offset > 1:
                raise OSError(errno.EIO, "nobody takes notes")

    queue = ConsumeQueue(place.queue.directory.parent / "1", "T", 1, 100, Full())
    queue.append(0, 0, 50, 7)
    queue.flush()
    place.tail.consume_queue = queue
    assert append_plain([place.run], 0) == 0
    assert not place.dirty


def test_without_a_compiler_all_is_left(place: Place) -> None:
    assert append_plain_in_python([place.run], 0) == 0


@pytest.mark.parametrize("take", [take_offsets, take_offsets_in_python])
def test_tails_go_on_behind_their_runs(
    take: Callable[[list[Run]], None], place: Place, tmp_path: Path
) -> None:
    other = Place(tmp_path / "U" / "0")
    other.run.first_offset = 7
    take([place.run, other.run])
    assert (place.tail.next_offset, other.tail.next_offset) == (3, 9)


@pytest.mark.parametrize("ask", [awaited, awaited_in_python])
def test_runs_are_told_of_at_whose_queues_somebody_waits(
    ask: Callable[[list[Run], int], list[Run]], place: Place, tmp_path: Path
) -> None:
    others = [Place(tmp_path / name / "0") for name in "UVW"]
    others[0].tail.waiters = Reader(lambda *_: None)
    others[0].tail.waiters.clear()
    others[1].tail.waiters = others[2].tail.waiters = Reader(lambda *_: None)
    runs = [place.run, *(other.run for other in others)]
    assert ask(runs, 0) == ask(runs, 2) == []
    assert ask(runs, 3) == [others[1].run]
    assert ask(runs, 4) == [others[1].run, others[2].run]


def test_what_is_no_run_is_refused(place: Place) -> None:
    place.run.first_offset = -1
    calls: list[Callable[[], object]] = [
        lambda: take_offsets([object()]),  # type: ignore[list-item]
        lambda: take_offsets(()),  # type: ignore[arg-type]
        lambda: take_offsets([place.run]),
        lambda: awaited([object()], 1),  # type: ignore[list-item]
        lambda: awaited([place.run], 2),
        lambda: awaited([place.run], -1),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    assert place.tail.next_offset == 3
