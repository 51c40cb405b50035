"""Look up units by commit log offset, for recovery."""

from rockhopper.broker.store.queues.unit_queue import UnitQueue


def queue_end(queue: UnitQueue | None) -> int:
    """Return where the record of the last message ends, −1 without one."""
    return -1 if queue is None else queue.commit_log_end


def find_unit(queue: UnitQueue, commit_log_offset: int) -> tuple[int, tuple[int, int]] | None:
    """Return queue offset, log offset and size of the first unit not before *commit_log_offset*."""
    low, high = queue.min_offset, queue.max_offset
    found = None
    while low < high:
        middle = (low + high) // 2
        unit = queue.entry(middle)
        if unit is None:
            return None
        if unit[0] >= commit_log_offset:
            high = middle
            found = middle, (unit[0], unit[1])
        else:
            low = middle + 1
    return found
