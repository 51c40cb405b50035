"""Appending the runs of a pass to their queues: those that are plain at once, in compiled code.

Plain is a run in one piece, of a queue of single messages that is at its first offset, has room for
it and is not on hold. ``ConsumeQueue.append_many`` is the oracle, and serves the others.
"""

from collections.abc import Callable

from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run
from rockhopper.protocol.compiled import compiled


def append_none(_runs: list[Run], first: int) -> int:
    """Leave all of them."""
    return first


_appending = compiled("rockhopper.broker.store.queues._appending")
if _appending is not None:
    _appending.set_classes(Run, QueueTail, ConsumeQueue)
append_plain: Callable[[list[Run], int], int] = (
    append_none if _appending is None else _appending.append_plain
)
"""Append the plain runs from number *first* on, up to one that is not; its number."""
