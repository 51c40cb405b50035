"""Appending the runs of a pass to their queues: those that are plain at once, in compiled code.

Plain is a run in one piece, of a queue of single messages that is at its first offset, has room for
it and is not on hold. ``ConsumeQueue.append_many`` is the oracle, and serves the others.
"""

from collections.abc import Callable

from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run
from rockhopper.protocol.compiled import compiled


def append_plain_in_python(_runs: list[Run], first: int) -> int:
    """Leave all of them to ``append_many``."""
    return first


def take_offsets_in_python(runs: list[Run]) -> None:
    """The oracle of ``take_offsets``."""
    for run in runs:
        run.tail.next_offset = run.first_offset + run.count


def awaited_in_python(runs: list[Run], count: int) -> list[Run]:
    """The oracle of ``awaited``."""
    return [run for run in runs[:count] if run.tail.waiters]


append_plain: Callable[[list[Run], int], int] = append_plain_in_python
"""Append the plain runs from number *first* on, up to one that is not; its number."""
take_offsets: Callable[[list[Run]], None] = take_offsets_in_python
"""Let the tails of *runs*, which begin at their next offsets, go on behind them."""
awaited: Callable[[list[Run], int], list[Run]] = awaited_in_python
"""Those of the first *count* of *runs* whose queues somebody waits at."""

_appending = compiled("rockhopper.broker.store.queues._appending")
if _appending is not None:
    _appending.set_classes(Run, QueueTail, ConsumeQueue)
    append_plain = _appending.append_plain
    take_offsets, awaited = _appending.take_offsets, _appending.awaited
