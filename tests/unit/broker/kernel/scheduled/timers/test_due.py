"""DueTimers: in order of time, then of arrival, within limits, and put back in front."""

import pytest

from rockhopper.broker.kernel.scheduled.timers.due import DueMessage, DueTimers


def due_timers(*messages: tuple[int, int]) -> DueTimers:
    """Of 10 bytes each, by due time and queue offset; positions are a hundred times the offset."""
    due = DueTimers()
    for due_ms, queue_offset in messages:
        due.insert(due_ms, queue_offset, 100 * queue_offset, 10)
    return due


def offsets(messages: list[DueMessage]) -> list[int]:
    return [message.queue_offset for message in messages]


def test_messages_come_by_time_then_by_arrival() -> None:
    due = due_timers((1000, 1), (900, 2), (1000, 0), (900, 3))
    assert (due.count, due.next_ms) == (4, 900)
    assert due.take(1000, 10, 1000) == [
        DueMessage(900, 2, 200, 10),
        DueMessage(900, 3, 300, 10),
        DueMessage(1000, 1, 100, 10),
        DueMessage(1000, 0, 0, 10),
    ]
    assert (due.count, due.next_ms) == (0, None)


def test_nothing_comes_before_its_time() -> None:
    due = due_timers((1000, 1), (1001, 2))
    assert due.take(999, 10, 1000) == []
    assert offsets(due.take(1000, 10, 1000)) == [1]
    assert (due.count, due.next_ms) == (1, 1001)


@pytest.mark.parametrize(
    ("count_max", "size_bytes_max", "taken"),
    [(2, 1000, 2), (0, 1000, 1), (10, 29, 2), (10, 30, 3), (10, 0, 1)],
)
def test_limits_hold_but_for_the_first(count_max: int, size_bytes_max: int, taken: int) -> None:
    due = due_timers(*((1000 + n // 2, n) for n in range(5)))
    assert offsets(due.take(2000, count_max, size_bytes_max)) == list(range(taken))
    assert due.count == 5 - taken
    assert offsets(due.take(2000, 10, 1000)) == list(range(taken, 5))


def test_what_is_put_back_comes_first_again() -> None:
    due = due_timers(*((1000, number) for number in range(4)), (900, 9))
    taken = due.take(1000, 3, 1000)
    assert offsets(taken) == [9, 0, 1]
    due.put_back(taken[1:])
    assert due.count == 4
    assert due.holds(1000, 1)
    assert not due.holds(900, 9)
    assert offsets(due.take(1000, 10, 15)) == [0]
    assert offsets(due.take(1000, 10, 1000)) == [1, 2, 3]
    assert (due.count, due.next_ms) == (0, None)


def test_a_time_that_was_empty_is_there_again_after_putting_back() -> None:
    due = due_timers((900, 1), (1000, 2))
    taken = due.take(900, 10, 1000)
    assert due.next_ms == 1000
    due.put_back(taken)
    assert due.next_ms == 900
    assert offsets(due.take(1000, 10, 1000)) == [1, 2]


def test_only_queue_offsets_are_looked_for() -> None:
    """A position or a size with the same bytes is none, wherever it lies."""
    due = DueTimers()
    due.insert(1000, 1, 7, 0)
    due.insert(1000, 2, 0, 0)
    assert due.holds(1000, 1)
    assert due.holds(1000, 2)
    assert not due.holds(1000, 7)
    assert not due.holds(1000, 0)
    assert not due.holds(1001, 1)
