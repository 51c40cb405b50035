"""Checker: compares the answers that clients got with the final state of every replica.

``tests.chaos.verdict`` checks the last master as it checks a single broker: messages that are lost,
repeated, early or rolled back. This module checks what only several brokers can get wrong.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rockhopper.pipeline.store_source.topics import table_in, topic_table
from tests.chaos.ledger import Kind, Ledger, Placement
from tests.chaos.replicas.clients.administering import Records
from tests.chaos.replicas.clients.locking import Holding
from tests.chaos.replicas.logs import ReadLog
from tests.chaos.replicas.nemesis.nemesis import Period
from tests.chaos.verdict import EXAMPLES, Verdict, describe

OFFSETS_WINDOW_S = 0.2
"""Committed offsets and pops may be forgotten if they precede a fault by no more than this."""
NOT_IN_LOG = frozenset({Kind.ROLLED_BACK, Kind.REQUEST})
"""Kinds that need not be in a log: replies bypass it, and the request is checked as a message."""


def in_short(complaints: Iterator[str]) -> list[str]:
    """Return the first few complaints and the number of the others."""
    found = list(complaints)
    more = [f"and {len(found) - EXAMPLES} more like these"] if len(found) > EXAMPLES else []
    return found[:EXAMPLES] + more


def repeats(verdict: Verdict, began_ms: int) -> Iterator[str]:
    """Yield where and when each repeated message was stored."""
    for fact, seen in verdict.repeated:
        places = [
            f"at {(one.store_time_ms - began_ms) / 1000:.2f} s (queue {one.queue_id}, offset "
            f"{one.queue_offset})"
            for one in seen
        ]
        due = f", due at {(fact.due_ms - began_ms) / 1000:.2f} s" if fact.due_ms else ""
        yield f"{describe(fact)} was stored {' and '.join(places)}{due}"


def missing_in_logs(ledger: Ledger, logs: Sequence[ReadLog]) -> Iterator[str]:
    """Yield the acknowledged messages that a replica lacks."""
    for log in logs:
        for fact in ledger.facts.values():
            if fact.kind in NOT_IN_LOG or not fact.is_owed(float("inf")):
                continue
            if (fact.topic, fact.body) not in log.bodies:
                yield f"lost at replica {log.replica}: {describe(fact)}"


def moved(ledger: Ledger, logs: Sequence[ReadLog]) -> Iterator[str]:
    """Yield places whose final message differs from the one that a client saw or put there."""
    yield from ledger.rewritten
    for log in logs:
        if log.start_offset:
            continue  # its first files and their places have been deleted
        bodies = {place: log.pieces[offset] for place, offset in log.places.items()}
        for place, body in ledger.seen.items():
            record = bodies.get(place)
            if record is None:
                yield f"replica {log.replica} has nothing at {place}, where {body[:24]!r} was seen"
            elif body not in record:
                yield f"replica {log.replica} has another message at {place} than {body[:24]!r}"


def out_of_order(placements: Collection[Placement]) -> Iterator[str]:
    """Yield pairs of messages of a queue in the wrong order.

    In a pair, the first was acknowledged before the second was sent.
    """
    queues = defaultdict[tuple[str, int], list[Placement]](list)
    for placement in placements:
        queues[placement.topic, placement.queue_id].append(placement)
    for queue in queues.values():
        last: Placement | None = None
        for placement in sorted(queue, key=lambda one: one.queue_offset):
            if last is not None and placement.acknowledged_s < last.asked_s:
                yield (
                    f"{placement.topic} queue {placement.queue_id}: {placement.body[:24]!r} was "
                    f"acknowledged before {last.body[:24]!r} was sent, and lies behind it, at "
                    f"{placement.queue_offset} and {last.queue_offset}"
                )
            if last is None or placement.asked_s > last.asked_s:
                last = placement


def forgotten_commits(records: Records, periods: Sequence[Period]) -> Iterator[str]:
    """Yield committed offsets that disappeared although no fault was near."""
    for look in records.looks:
        asked = [one.offset for one in records.commits if one.asked_s <= look.answered_s]
        if look.offset > max(asked, default=0):
            yield f"offset {look.offset} was committed by nobody"
        for commit in records.commits:
            acknowledged_s = commit.acknowledged_s
            if acknowledged_s is None or acknowledged_s > look.asked_s:
                continue
            is_excused = any(
                period.touches(acknowledged_s, acknowledged_s + OFFSETS_WINDOW_S)
                for period in periods
            )
            if commit.offset > look.offset and not is_excused:
                yield (
                    f"offset {commit.offset} was committed {look.asked_s - acknowledged_s:.2f} s "
                    f"before {look.offset} was answered"
                )
                break


def may_pop_again(settled_s: float, periods: Sequence[Period]) -> bool:
    """Return whether an acknowledgement preceded a fault so closely that it may be forgotten."""
    return any(period.touches(settled_s, settled_s + OFFSETS_WINDOW_S) for period in periods)


def forgotten_changes(records: Records, stores: Mapping[int, Path]) -> Iterator[str]:
    """Yield acknowledged changes of topics and groups that a replica lacks."""
    for replica, store in stores.items():
        # The file of a large table lacks recent changes: they are in the file beside it.
        groups = table_in(store, "subscriptionGroup.json", "subscriptionGroupTable") or {}
        for name in set(records.groups) - groups.keys():
            yield f"replica {replica} does not have the group {name}, which was created"
        table: dict[str, Any] = topic_table(store) or {}
        for name, queues in records.topics.items():
            known = table[name]["readQueueNums"] if name in table else None
            if known != queues:
                yield f"replica {replica} has topic {name} with {known} queues, not {queues}"


def held_by_two(holdings: Collection[Holding]) -> Iterator[str]:
    """Yield queues that two members held at the same time."""
    queues = defaultdict[int, list[Holding]](list)
    for holding in holdings:
        queues[holding.queue_id].append(holding)
    for queue_id, ones in queues.items():
        last: Holding | None = None
        for one in sorted(ones, key=lambda each: each.from_s):
            if last is not None and last.member != one.member and one.from_s < last.until_s:
                yield (
                    f"queue {queue_id} was held by {last.member} until {last.until_s:.3f} and by "
                    f"{one.member} from {one.from_s:.3f} on"
                )
            if last is None or one.until_s > last.until_s:
                last = one


def second_leaders(leaders: Mapping[int, Collection[int]]) -> Iterator[str]:
    """Yield epochs with more than one master."""
    for epoch, replicas in leaders.items():
        if len(replicas) > 1:
            yield f"in epoch {epoch} replicas {sorted(replicas)} led"
