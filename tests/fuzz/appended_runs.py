"""Runs and queues from bytes, for what compiled code appends to queues: see queue_tail.py."""

from collections import deque
from typing import Any, cast

from rockhopper.broker.store.queues import _appending
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_tail import (
    QueueTail,
    Run,
    Waiters,
    awaited_in_python,
    take_offsets_in_python,
)

QUEUES = 3
_ROOM_UNITS = 12
_FIRST = 100
"""The first unit in the mapped file."""
_SIZE = ConsumeQueue.UNIT_SIZE_BYTES


def make_tails(first_free: int) -> list[QueueTail]:
    """Return tails of queues that are mapped and have no files; the first is full after some."""
    return [_make_tail(number, first_free) for number in range(QUEUES)]


def _make_tail(number: int, first_free: int) -> QueueTail:
    queue = ConsumeQueue.__new__(ConsumeQueue)
    queue.topic, queue.queue_id, queue.is_held = "orders", number, False
    queue.mapping, queue.mapping_start = bytearray(_SIZE * _ROOM_UNITS), _SIZE * _FIRST
    queue.next_offset = queue.max_offset = _FIRST + first_free % (_ROOM_UNITS + 1)
    queue.commit_log_end = 0
    queue._append_limit = _FIRST + _ROOM_UNITS - number
    queue._is_dirty, queue._dirty = False, deque()
    tail = QueueTail("orders", number, queue.next_offset, is_batch=False)
    tail.consume_queue = queue
    return tail


def read_runs(data: bytes, tails: list[QueueTail]) -> list[Run]:
    """Read runs of tails; what each begins with says what is odd about it.

    oddities 1   tail and where it begins 1   count 1   size of the units 1   units
    """
    runs = []
    next_offsets = [tail.next_offset for tail in tails]
    at = 0
    while at + 4 <= len(data):
        odd, place, count, size = data[at : at + 4]
        units = data[at + 4 : at + 4 + size]
        at += 4 + size
        number = place % QUEUES
        first: Any = next_offsets[number] + ((place >> 4) - 8 if odd & 1 else 0)
        if odd & 2:
            count = len(units) // _SIZE
            units = units[: count * _SIZE]
        run = Run(tails[number], at, at + 7, first, count, [units])
        if odd & 4:
            run.units = [units[:_SIZE], units[_SIZE:]]
        if odd & 8:
            run.count = cast("int", (None, 1 << 62, 1 << 80, -1)[place % 4])
        if odd & 16:
            run.tail = cast("QueueTail", (object(), None)[place % 2])
        if odd & 32:
            tails[number].is_deleted = bool(place & 16)
            tails[number].consume_queue.is_held = bool(place & 32)  # type: ignore[union-attr]
            tails[number].waiters = cast("Waiters", {1: None} if place & 64 else {})
        runs.append(run)
        if not odd & ~2:
            next_offsets[number] += count
    return runs


def is_plain(run: Run) -> bool:
    """Return whether compiled code appends *run*."""
    tail = run.tail
    if type(tail) is not QueueTail or tail.is_deleted or type(run.count) is not int:
        return False
    queue = tail.consume_queue
    assert isinstance(queue, ConsumeQueue)
    return (
        not queue.is_held
        and len(run.units) == 1
        and run.first_offset == queue.next_offset <= queue._append_limit
        and 0 < run.count <= queue._append_limit - run.first_offset
        and len(run.units[0]) == run.count * _SIZE
    )


def state_of(tails: list[QueueTail]) -> list[Any]:
    """Return everything about the queues that appending may change."""
    queues = [cast("ConsumeQueue", tail.consume_queue) for tail in tails]
    return [
        (
            *(queue.next_offset, queue.max_offset, queue.commit_log_end),
            *(queue.is_dirty, len(queue._dirty), bytes(queue.mapping)),
        )
        for queue in queues
    ]


def append_runs(data: bytes) -> None:
    """Append runs to queues by compiled code, and to others by Python."""
    tails, others = make_tails(data[0]), make_tails(data[0])
    runs, same = read_runs(data[1:], tails), read_runs(data[1:], others)
    first = 0
    while first < len(runs):
        end = _appending.append_plain(runs, first)
        for run in same[first:end]:
            assert is_plain(run)
            queue = cast("ConsumeQueue", run.tail.consume_queue)
            queue.append_many(run.first_offset, run.units[0], run.count, run.end)
        assert state_of(tails) == state_of(others)
        assert end == len(runs) or not is_plain(runs[end])
        first = end + 1
    sound = [number for number, run in enumerate(runs) if type(run.tail) is QueueTail]
    _compare_tails([runs[n] for n in sound], [same[n] for n in sound])


def _compare_tails(runs: list[Run], same: list[Run]) -> None:
    count = len(runs) // 2
    made = _appending.awaited(runs, count)
    assert [runs.index(run) for run in made] == [
        same.index(run) for run in awaited_in_python(same, count)
    ]
    counted = [n for n, run in enumerate(runs) if type(run.count) is int and 0 <= run.count < 9]
    _appending.take_offsets([runs[n] for n in counted])
    take_offsets_in_python([same[n] for n in counted])
    assert [run.tail.next_offset for run in runs] == [run.tail.next_offset for run in same]
