"""Power cuts: the disk of a broker under load is cloned, and a broker starts on the clone.

The store is on an ext4 file system whose image is on a reflink file system. ``cp --reflink`` copies
the disk at one moment: data that the kernel has not written by then is lost, as after a power cut.
Mounting the clone replays the journal of ext4. Only messages acknowledged before the copy began
must be there; requests that were in flight may be there or not.

Under SYNC_FLUSH nothing may be missing. Under ASYNC_FLUSH the messages of the last
``flushIntervalCommitLog`` may be missing; the test measures the worst window. Delayed messages and
messages that a popping group acknowledged may be delivered twice, and offsets may fall back by
``flushConsumerOffsetInterval``. A sink's batch is never stored twice.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from rockhopper.broker.settings.broker_config import StoreConfig
from tests.chaos import topics
from tests.chaos.disks import Ext4Disk, ReflinkDisk
from tests.chaos.ledger import LATER, Kind, Ledger
from tests.chaos.lives import living
from tests.chaos.load import Load
from tests.chaos.outcome import Outcome, outcome_of
from tests.chaos.pace import Pace
from tests.chaos.reading import read_in_a_new_life
from tests.chaos.verdict import Verdict, judge
from tests.chaos.workshop import Workshop

CUTS_PER_SESSION = 5
FIRST_CUT_S = 1.5
BETWEEN_CUTS_S = 1.0
VERIFIED_AT_ONCE = 3

FLUSH_INTERVAL_S = StoreConfig().flush_interval_ms / 1000
REPEAT_WINDOW_S = 0.5
OFFSETS_WINDOW_S = 1.0
SLACK_S = 1.0
"""Added to the pace: two flushes may lie in a window, and each waits for a disk."""


@dataclass
class Cut:
    """A cloned disk and the time of its cloning."""

    disk: Ext4Disk
    moment_s: float
    wall_ms: int
    delay_s: float
    """How long the machine kept processes waiting around that time."""


async def rounds(workshop: Workshop, seed: int) -> AsyncGenerator[Outcome]:
    """Run one session of load with several cuts; yield an outcome for each cut."""
    dice = random.Random(seed)
    flush = "SYNC_FLUSH" if seed % 2 else "ASYNC_FLUSH"
    is_crowded = seed % 4 > 1
    with workshop.scratch("power") as directory, ReflinkDisk.made(directory) as reflink:
        with reflink.ext4() as disk, Pace(disk.point) as pace:
            ledger = Ledger(dice)
            cuts = await _session(disk, ledger, dice, pace, flush, is_crowded=is_crowded)
        slots = asyncio.Semaphore(VERIFIED_AT_ONCE)
        tasks = [asyncio.create_task(_verify(cut, ledger, slots, flush, seed)) for cut in cuts]
        try:
            for task in asyncio.as_completed(tasks):
                yield await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _session(
    disk: Ext4Disk,
    ledger: Ledger,
    dice: random.Random,
    pace: Pace,
    flush: str,
    *,
    is_crowded: bool,
) -> list[Cut]:
    cuts = []
    async with living(disk.point / "store", flushDiskType=flush) as life:
        await topics.create_topics(life.nameserver)
        pause_s = dice.choice([0.005, 0.02, 0.05])
        async with Load(
            life.address, life.nameserver, ledger, dice, pause_s=pause_s, is_crowded=is_crowded
        ):
            await asyncio.sleep(dice.uniform(0, FIRST_CUT_S))
            for _ in range(CUTS_PER_SESSION):
                await asyncio.sleep(dice.uniform(0, 2 * BETWEEN_CUTS_S))
                moment_s, wall_ms = time.monotonic(), time.time_ns() // 1_000_000
                cloned = await asyncio.to_thread(disk.cut)
                cuts.append(Cut(cloned, moment_s, wall_ms, pace.worst_s))
        ledger.problems += life.complaints()
    return cuts


async def _verify(
    cut: Cut, ledger: Ledger, slots: asyncio.Semaphore, flush: str, seed: int
) -> Outcome:
    async with slots:
        with cut.disk.mounted() as point:
            store = point / "store"
            found = await read_in_a_new_life(store, ledger, cut.moment_s, flushDiskType=flush)
    # A producer's batch is one write; the disk may have received part of it.
    whole = frozenset({Kind.SUNK})
    verdict = judge(ledger, found, cut.moment_s, pops_settle=False, whole_batches=whole)
    outcome = outcome_of(
        "power-cut",
        seed,
        verdict,
        variant=f"power cut, {flush}",
        may_lose=flush == "ASYNC_FLUSH",
    )
    outcome.recovery_s = found.start_s
    allowed_s = 2 * cut.delay_s + SLACK_S
    _judge_windows(outcome, verdict, cut, allowed_s)
    return outcome


def _judge_windows(outcome: Outcome, verdict: Verdict, cut: Cut, allowed_s: float) -> None:
    """Check that only messages of the last moments before the cut were lost or repeated."""
    lost_s = max((cut.moment_s - (fact.acknowledged_s or 0) for fact in verdict.lost), default=0)
    if lost_s > FLUSH_INTERVAL_S + allowed_s:
        outcome.complaints.append(
            f"a message acknowledged {lost_s:.3f} s before the cut is lost, where "
            f"{FLUSH_INTERVAL_S} s are promised and the machine was {allowed_s:.3f} s late"
        )
    repeated_s = 0.0
    for kind in LATER:
        kind_s = _repeated_s(verdict, kind, cut)
        repeated_s = max(repeated_s, kind_s)
        if kind_s > REPEAT_WINDOW_S + allowed_s:
            outcome.complaints.append(
                f"a {kind} message delivered {kind_s:.3f} s before the cut came again, where "
                f"{REPEAT_WINDOW_S} s are promised and the machine was {allowed_s:.3f} s late"
            )
    others = [fact for fact, seen in verdict.repeated if seen and fact.kind not in LATER]
    if others:
        kinds = ", ".join(sorted({fact.kind for fact in others}))
        outcome.complaints.append(f"{len(others)} messages are there twice: {kinds}")
    if verdict.offsets_behind_s > OFFSETS_WINDOW_S + allowed_s:
        outcome.complaints.append(
            f"an offset committed {verdict.offsets_behind_s:.3f} s before the cut is forgotten"
        )
    outcome.window_ms = 1000 * max(lost_s, repeated_s)
    pops = sum(fact.kind is Kind.POPPED for fact, _ in verdict.repeated)
    outcome.note = (
        f"lost window {1000 * lost_s:.0f} ms, repeated window {1000 * repeated_s:.0f} ms, "
        f"offsets {1000 * verdict.offsets_behind_s:.0f} ms, {pops} popped again, "
        f"machine late by {1000 * cut.delay_s:.0f} ms"
    )


def _repeated_s(verdict: Verdict, kind: Kind, cut: Cut) -> float:
    """Return how long before the cut the oldest repeated message had first been delivered."""
    ages_ms = [
        cut.wall_ms - min(one.store_time_ms for one in seen)
        for fact, seen in verdict.repeated
        if seen and fact.kind is kind
    ]
    return max(ages_ms, default=0) / 1000
