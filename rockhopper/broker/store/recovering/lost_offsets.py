"""Queue offsets of lost messages whose units or other evidence are lost too.

If a flushed tail of the log is missing, its range is known, and the units of the queues show whose
messages it held. If queues are missing too, a bound is known: the missing range cannot hold more of
a queue's records than records of the smallest size fit into it. So that many offsets are skipped in
each queue that had to be rebuilt. Each skipped offset needs a unit, and their number is limited;
beyond the limit, only the offsets that consumers received are skipped.

If nothing shows how far the log reached, the offsets that consumers received show that there was
more.
"""

from collections.abc import Callable, Iterable, Mapping, Set

import structlog

from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.broker.store.recovering.inventory import QueueKey
from rockhopper.broker.store.recovering.log_walk import Hole
from rockhopper.broker.store.recovering.queue_repair import QueueRepair
from rockhopper.protocol.store.record_head import RECORD_SIZE_BYTES_MIN

log = structlog.get_logger("broker.store")

# Twenty megabytes of units, and some seconds.
UNITS_MAX = 1_000_000


def missing_bytes(tail: Hole, queues: Iterable[UnitQueue], noted_end: int) -> int:
    """Return how many bytes of *tail* neither units nor the inventory account for.

    The inventory accounts for the log up to *noted_end*.
    """
    hole = tail._replace(start=max(tail.start, noted_end))
    noted = 0
    for queue in queues:
        found = None
        if queue.commit_log_end > hole.start and not queue.is_light:
            found = queue.find_unit(hole.start)
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
    """Return where queues continue after a hole of *missing* bytes that nothing accounts for.

    Queues in *loaded* are known by their units. *noted* are the former ends of queues; *handed_out*
    are the offsets up to which consumers received messages.
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
    """Return the minimum size of the lost records: consumers received them, and no queue has them.

    Offsets whose records would not have fitted into the *room_bytes* after the log are ignored.
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
    """Cut units at the ends of queues that no record from *start* on has claimed.

    Units that point into holes stay. Returns, for each queue, how many of those belong to newly
    lost messages.
    """
    lost: dict[QueueKey, int] = {}
    for queue in queues.list_reaching_beyond(start):
        key = queue.topic, queue.queue_id
        if key in repair.postponed:
            continue
        first = repair.get_claimed_end(queue)
        if first is None:
            found = queue.find_unit(start)
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
