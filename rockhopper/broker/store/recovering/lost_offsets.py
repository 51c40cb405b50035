"""Queue offsets of messages that are lost together with what would say which they were.

A tail of the log that had been flushed and is gone is known by its range, and the units of the
queues say whose messages were in it. Where the queues are gone too, no queue holds more of them
than records of the smallest size fit into what is missing; so as many offsets are left out in each
queue that had to be made anew. A unit stands for each, and there is a bound to that; beyond it
counts what consumers were handed.

Where nothing says how far the log went, what consumers were handed says that there was more.
"""

from collections.abc import Callable, Iterable, Mapping, Set

import structlog

from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.broker.store.recovering.inventory import QueueKey
from rockhopper.broker.store.recovering.log_walk import Hole
from rockhopper.broker.store.recovering.lookups import find_unit
from rockhopper.broker.store.recovering.queue_repair import QueueRepair
from rockhopper.protocol.store.record_head import RECORD_SIZE_BYTES_MIN

log = structlog.get_logger("broker.store")

# Twenty megabytes of units, and some seconds.
UNITS_MAX = 1_000_000


def missing_bytes(tail: Hole, queues: Iterable[UnitQueue], noted_end: int) -> int:
    """How much of *tail* neither units nor the inventory account for, which knows up to an end."""
    hole = tail._replace(start=max(tail.start, noted_end))
    noted = 0
    for queue in queues:
        found = None
        if queue.commit_log_end > hole.start and not queue.is_light:
            found = find_unit(queue, hole.start)
        for offset in range(found[0], queue.max_offset) if found is not None else ():
            unit = queue.entry(offset)
            noted += unit[1] if unit is not None and unit[0] < hole.end else 0
    return max(hole.end - hole.start - noted, 0)


def ends_behind(
    missing: int,
    queues: ConsumeQueueTable,
    loaded: Set[QueueKey],
    noted: Mapping[QueueKey, int],
    handed_out: Mapping[QueueKey, int],
) -> dict[QueueKey, int]:
    """Where queues go on behind a hole of *missing* bytes that nothing accounts for.

    Of queues that were *loaded* the units tell. *noted* is where queues ended before, *handed_out*
    says of queues that there were messages up to an offset.
    """
    made = {
        (queue.topic, queue.queue_id): queue.max_offset
        for queue in queues
        if queue.has_files and (queue.topic, queue.queue_id) not in loaded
    }
    share = UNITS_MAX // max(len(made), 1)
    ends: dict[QueueKey, int] = {}
    short: list[str] = []
    for key in {**made, **noted, **handed_out}:
        if key in loaded:
            continue
        most = missing // _least_bytes(key)
        told = handed_out.get(key, 0)
        if key not in made:
            ends[key] = max(noted.get(key, 0), told) + most
            continue
        begin = max(made[key], noted.get(key, 0))
        count = min(most, max(share, told - begin))
        ends[key] = begin + count
        if count < most:
            short.append(f"{key[0]}/{key[1]}")
    if short:
        log.error(
            "a large part of the log and its queues are missing: queue offsets of lost messages "
            "may be used again",
            size_bytes=missing,
            count=len(short),
            queues=short[:20],
        )
    return ends


def least_bytes_lost(
    queues: ConsumeQueueTable,
    loaded: Set[QueueKey],
    handed_out: Mapping[QueueKey, int],
    room_bytes: int,
) -> int:
    """How long the records were at least that consumers were handed and no queue has any more.

    What would not have fitted into the *room_bytes* behind the log is not believed.
    """
    least = 0
    for key, end in handed_out.items():
        queue = queues.get(*key)
        count = end - (queue.max_offset if queue is not None else 0)
        if key not in loaded and 0 < count * _least_bytes(key) <= room_bytes:
            least += count * _least_bytes(key)
    return least if least <= room_bytes else 0


def drop_unclaimed(
    queues: ConsumeQueueTable,
    start: int,
    repair: QueueRepair,
    holes: list[Hole],
    is_known_hole: Callable[[int], bool],
) -> dict[QueueKey, int]:
    """Cut units at the ends of queues that no record from *start* on has asked for.

    Returns for how many that stay, since they point into holes, a message was lost.
    """
    lost: dict[QueueKey, int] = {}
    for queue in queues:
        key = queue.topic, queue.queue_id
        if queue.commit_log_end <= start or key in repair.postponed:
            continue
        first = repair.claimed_until(queue)
        if first is None:
            found = find_unit(queue, start)
            first = queue.max_offset if found is None else found[0]
        count = 0
        while first < queue.max_offset:
            unit = queue.entry(first)
            if unit is None or not any(hole.start <= unit[0] < hole.end for hole in holes):
                queue.truncate_to(first)
                break
            count += not is_known_hole(unit[0])
            first += 1
        if count:
            lost[key] = count
    return lost


def _least_bytes(key: QueueKey) -> int:
    return RECORD_SIZE_BYTES_MIN + len(key[0].encode("utf-8", "surrogateescape"))
