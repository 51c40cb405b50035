"""Verdict: compares everything that was found after a fault with the ledger.

A *lost* message was acknowledged and is missing. A *repeated* message was found more than once.
*Wrong* are results that no fault allows: a body that no client sent, half a batch, a message that
was rolled back, a reversed order, a delayed message before its time.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.chaos.ledger import Fact, Kind, Ledger

EXAMPLES = 5
BATCHES = frozenset({Kind.BATCH, Kind.SUNK})


@dataclass(frozen=True, slots=True)
class Sighting:
    """A message that was read back."""

    topic: str
    body: bytes
    queue_id: int
    queue_offset: int
    store_time_ms: int


@dataclass
class Found:
    """A broker's state: its messages, and the progress of groups."""

    messages: list[Sighting] = field(default_factory=list)
    popped: dict[bytes, int] | None = None
    """How often each body was delivered to a popping group; None if there was no pop."""
    offsets: dict[int, int] = field(default_factory=dict)
    """Queue id -> committed offset of the reading group."""
    last_batch_id: int | None = None
    """The last batch that the sink knows as published."""
    problems: list[str] = field(default_factory=list)
    start_s: float = 0.0
    """The duration of the broker's start."""


@dataclass
class Verdict:
    """The judgement of one fault."""

    acknowledged: int = 0
    lost: list[Fact] = field(default_factory=list)
    repeated: list[tuple[Fact, list[Sighting]]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    offsets_behind_s: float = 0.0
    """The age of the oldest offset commit that was forgotten."""


def judge(
    ledger: Ledger,
    found: Found,
    moment_s: float = float("inf"),
    *,
    pops_settle: bool = True,
    whole_batches: frozenset[Kind] = BATCHES,
    may_come_again: Callable[[float], bool] = lambda _settled_s: False,
) -> Verdict:
    """Compare the found messages with those acknowledged before *moment_s*.

    With *pops_settle*, a message that a popping group acknowledged must not be delivered again.
    Without it (after a power cut) it may, and counts as repeated. If a batch's kind is not in
    *whole_batches*, part of the batch may be missing. *may_come_again* decides whether a message
    may be popped again, by the time at which its acknowledgement was answered.
    """
    verdict = Verdict(wrong=[*ledger.problems, *found.problems])
    sightings = defaultdict[tuple[str, bytes], list[Sighting]](list)
    for sighting in found.messages:
        sightings[sighting.topic, sighting.body].append(sighting)
    _judge_strangers(ledger, sightings, verdict)
    for key, fact in ledger.facts.items():
        seen = sightings.get(key, [])
        _judge_fact(fact, seen, moment_s, verdict)
    # A producer's batch is one write, which ``kill -9`` may interrupt between two pages.
    in_batches = [
        fact
        for fact in ledger.facts.values()
        if fact.kind in whole_batches and (fact.kind is not Kind.BATCH or fact.was_refused)
    ]
    _judge_batches(in_batches, sightings, verdict)
    _judge_order(ledger, found.messages, verdict)
    for fact, settled_s, popped_s in ledger.popped_again:
        if not may_come_again(settled_s):
            verdict.wrong.append(_popped_again(fact, settled_s, popped_s))
    _judge_pops(ledger, found, moment_s, pops_settle, may_come_again, verdict)
    _judge_commits(ledger, found, moment_s, verdict)
    _judge_sink(ledger, found, moment_s, verdict)
    return verdict


def _judge_fact(fact: Fact, seen: list[Sighting], moment_s: float, verdict: Verdict) -> None:
    is_owed = fact.is_owed(moment_s)
    if fact.kind is Kind.ROLLED_BACK:
        if seen:
            verdict.wrong.append(f"{describe(fact)} was never committed and is there")
        return
    verdict.acknowledged += is_owed
    if is_owed and not seen:
        verdict.lost.append(fact)
    if len(seen) > 1:
        verdict.repeated.append((fact, seen))
    early_ms = [fact.due_ms - one.store_time_ms for one in seen if one.store_time_ms < fact.due_ms]
    if early_ms:
        verdict.wrong.append(f"{describe(fact)} came {max(early_ms)} ms early")


def _judge_strangers(
    ledger: Ledger, sightings: dict[tuple[str, bytes], list[Sighting]], verdict: Verdict
) -> None:
    strangers = [seen[0] for key, seen in sightings.items() if key not in ledger.facts]
    for one in strangers[:EXAMPLES]:
        verdict.wrong.append(
            f"{one.topic} queue {one.queue_id} offset {one.queue_offset} holds {one.body[:40]!r}, "
            "which nobody sent"
        )
    if len(strangers) > EXAMPLES:
        verdict.wrong.append(f"and {len(strangers) - EXAMPLES} more that nobody sent")


def _judge_batches(
    facts: Iterable[Fact], sightings: dict[tuple[str, bytes], list[Sighting]], verdict: Verdict
) -> None:
    batches = defaultdict[str, list[bool]](list)
    for fact in facts:
        if fact.batch is not None:
            batches[fact.batch].append((fact.topic, fact.body) in sightings)
    for name, presence in batches.items():
        if any(presence) and not all(presence):
            verdict.wrong.append(f"{name} is there by {sum(presence)} of {len(presence)} messages")


def _judge_order(ledger: Ledger, messages: list[Sighting], verdict: Verdict) -> None:
    last: dict[str, int] = {}
    times: dict[tuple[str, int], int] = {}
    for one in sorted(messages, key=lambda one: (one.topic, one.queue_id, one.queue_offset)):
        if one.store_time_ms < times.get((one.topic, one.queue_id), 0):
            verdict.wrong.append(
                f"{one.topic} queue {one.queue_id}: the store time of offset {one.queue_offset} "
                "lies before its predecessor's"
            )
        times[one.topic, one.queue_id] = one.store_time_ms
        fact = ledger.facts.get((one.topic, one.body))
        if fact is None or fact.order is None or fact.acknowledged_s is None:
            continue  # An unanswered request may have waited in a socket.
        key, number = fact.order
        if number < last.get(key, -1):
            verdict.wrong.append(f"of {key} number {number} lies behind {last[key]}")
        last[key] = number


def _judge_pops(
    ledger: Ledger,
    found: Found,
    moment_s: float,
    pops_settle: bool,
    may_come_again: Callable[[float], bool],
    verdict: Verdict,
) -> None:
    if found.popped is None:
        return
    known = {fact.body: fact for fact in ledger.facts.values() if fact.kind is Kind.POPPED}
    for body in found.popped.keys() - known.keys():
        verdict.wrong.append(f"the popping group was handed {body[:40]!r}, which nobody sent")
    for body, fact in known.items():
        times = found.popped.get(body, 0)
        may_be_settled = fact.settling_s is not None
        is_missing = fact.is_owed(moment_s) and not may_be_settled and times == 0
        if is_missing and fact not in verdict.lost:
            verdict.lost.append(fact)
        if times and fact.settled_s is not None and fact.settled_s < moment_s:
            if pops_settle and not may_come_again(fact.settled_s):
                verdict.wrong.append(_popped_again(fact, fact.settled_s, ledger.now_s()))
            elif not pops_settle:
                verdict.repeated.append((fact, []))


def _popped_again(fact: Fact, settled_s: float, popped_s: float) -> str:
    later_s = popped_s - settled_s
    return f"{describe(fact)} was acknowledged and popped again {later_s:.1f} s later"


def _judge_commits(ledger: Ledger, found: Found, moment_s: float, verdict: Verdict) -> None:
    for queue_id, offset in found.offsets.items():
        asked = [commit.offset for commit in ledger.commits if commit.queue_id == queue_id]
        if offset > max(asked, default=0):
            verdict.wrong.append(f"offset {offset} of queue {queue_id} was committed by nobody")
    forgotten = [
        commit.acknowledged_s
        for commit in ledger.commits
        if commit.acknowledged_s is not None
        and commit.acknowledged_s < moment_s
        and found.offsets.get(commit.queue_id, 0) < commit.offset
    ]
    if forgotten:
        end_s = moment_s if moment_s < float("inf") else ledger.now_s()
        verdict.offsets_behind_s = end_s - min(forgotten)


def _judge_sink(ledger: Ledger, found: Found, moment_s: float, verdict: Verdict) -> None:
    owed = [one.batch_id for one in ledger.published if one.acknowledged_s < moment_s]
    if found.last_batch_id is not None and found.last_batch_id < max(owed, default=-1):
        verdict.wrong.append(
            f"the sink knows batch {found.last_batch_id} as its last: {max(owed)} was acknowledged "
            "and would be stored again"
        )


def describe(fact: Fact) -> str:
    """Return a fact's description for a reader of the table."""
    name = b" ".join(fact.body.split(b" ")[-2:-1]).decode()
    return f"{fact.kind} message {name} of {fact.topic}"
