"""Append the runs of a pass to their queues; plain runs are appended by compiled code.

A run is plain if it is one piece and its queue holds single messages, is at the run's first offset,
has room for it and is not on hold. ``ConsumeQueue.append_many`` is the oracle, and appends all
other runs.
"""

from collections.abc import Callable

from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run
from rockhopper.protocol.compiled import import_compiled


def append_plain_in_python(_runs: list[Run], first: int) -> int:
    """Append nothing: without C, ``append_many`` handles all runs."""
    return first


def take_offsets_in_python(runs: list[Run]) -> None:
    """The oracle of ``take_offsets``."""
    for run in runs:
        run.tail.next_offset = run.first_offset + run.count


def awaited_in_python(runs: list[Run], count: int) -> list[Run]:
    """The oracle of ``awaited``."""
    return [run for run in runs[:count] if run.tail.waiters]


append_plain: Callable[[list[Run], int], int] = append_plain_in_python
"""Append the plain runs from number *first* on; return the number of the first run that is not
plain."""
take_offsets: Callable[[list[Run]], None] = take_offsets_in_python
"""Advance the tails of *runs* to the ends of the runs, which begin at the tails' next offsets."""
awaited: Callable[[list[Run], int], list[Run]] = awaited_in_python
"""Return those of the first *count* of *runs* whose queues have waiters."""

_appending = import_compiled("rockhopper.broker.store.queues._appending")
if _appending is not None:
    _appending.set_classes(Run, QueueTail, ConsumeQueue)
    append_plain = _appending.append_plain
    take_offsets, awaited = _appending.take_offsets, _appending.awaited
