"""The epochs of a log: which master's term wrote from where on.

A replica that was away compares its table with its master's: both logs are equal up to where the
newest epoch that both have, with the same start, ends in the shorter of them.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Epoch(NamedTuple):
    """One master's term in a log; it ends where the next begins."""

    number: int
    start_offset: int


def entered(epochs: Sequence[Epoch], number: int, start_offset: int) -> tuple[Epoch, ...]:
    """The table with a new epoch from *start_offset* on, in place of those without data by then."""
    return (
        *(each for each in epochs if each.start_offset < start_offset),
        Epoch(number, start_offset),
    )


def cut(epochs: Sequence[Epoch], end_offset: int) -> tuple[Epoch, ...]:
    """The table of a log that ends at *end_offset* now."""
    return tuple(each for each in epochs if each.start_offset <= end_offset)


def common_end(
    ours: Sequence[Epoch], our_end: int, theirs: Sequence[Epoch], their_end: int
) -> int | None:
    """Up to where two logs are equal; None if they have no epoch in common."""
    known = {each.number: each.start_offset for each in cut(theirs, their_end)}
    for index in range(len(ours) - 1, -1, -1):
        number, start_offset = ours[index]
        if start_offset <= our_end and known.get(number) == start_offset:
            return min(_end(ours, index, our_end), _end_of(theirs, number, their_end))
    return None


def _end(epochs: Sequence[Epoch], index: int, log_end: int) -> int:
    later = epochs[index + 1].start_offset if index + 1 < len(epochs) else log_end
    return min(later, log_end)


def _end_of(epochs: Sequence[Epoch], number: int, log_end: int) -> int:
    numbers = [each.number for each in epochs]
    return _end(epochs, numbers.index(number), log_end)
