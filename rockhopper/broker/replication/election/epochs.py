"""The epochs of a log: the offset at which each master's term begins.

A replica that was away compares its epoch table with its master's. It looks for the newest epoch
that has the same start in both tables. Both logs are equal up to the end of that epoch in the
shorter log.

    replica   epoch 1 from 0, epoch 2 from 500   log end 700
    master    epoch 1 from 0, epoch 3 from 600   log end 900

Epoch 1 is common. It ends at 500 in the replica's log and at 600 in the master's, so the logs are
equal up to 500, and the replica truncates its log there.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Epoch(NamedTuple):
    """One master's term in a log; it ends where the next one begins."""

    number: int
    start_offset: int


def add_epoch(epochs: Sequence[Epoch], number: int, start_offset: int) -> tuple[Epoch, ...]:
    """Return the table with a new epoch.

    Epochs that begin at *start_offset* or later are dropped.
    """
    return (
        *(each for each in epochs if each.start_offset < start_offset),
        Epoch(number, start_offset),
    )


def cut(epochs: Sequence[Epoch], end_offset: int) -> tuple[Epoch, ...]:
    """Return the table of a log that now ends at *end_offset*."""
    return tuple(each for each in epochs if each.start_offset <= end_offset)


def common_end(
    ours: Sequence[Epoch], our_end: int, theirs: Sequence[Epoch], their_end: int
) -> int | None:
    """Return the offset up to which two logs are equal; None if they share no epoch."""
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
