"""kill -9 under the mixed load, repeated on one store; then everything is read back."""

import asyncio
import random
from collections.abc import AsyncGenerator

from tests.chaos import topics
from tests.chaos.ledger import Ledger
from tests.chaos.lives import living
from tests.chaos.load import Load
from tests.chaos.outcome import Outcome, outcome_of
from tests.chaos.pace import Pace
from tests.chaos.reading import read_in_a_new_life
from tests.chaos.verdict import judge
from tests.chaos.workshop import Workshop

KILLS_PER_STORE = 4
LIFE_S_MAX = 2.5
OFFSETS_WINDOW_S = 0.025
"""The time for which the journal of offsets collects changes before it writes them."""
SLACK_S = 1.0


async def rounds(workshop: Workshop, seed: int) -> AsyncGenerator[Outcome]:
    """Kill the brokers of one store several times, and judge all kills together."""
    dice = random.Random(seed)
    flush = dice.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])
    is_crowded = dice.random() < 0.5
    ledger = Ledger(dice)
    starts_s = []
    with workshop.scratch("kills") as directory, Pace(directory) as pace:
        store = directory / "store"
        for life_number in range(KILLS_PER_STORE):
            async with living(store, flushDiskType=flush) as life:
                if life_number == 0:
                    await topics.create_topics(life.nameserver)
                else:
                    starts_s.append(life.start_s)
                pause_s = dice.choice([0.002, 0.01, 0.03])
                async with Load(
                    life.address,
                    life.nameserver,
                    ledger,
                    dice,
                    pause_s=pause_s,
                    is_crowded=is_crowded,
                ):
                    await asyncio.sleep(dice.uniform(0.1, LIFE_S_MAX))
                    await life.daemon.kill()
                ledger.problems += life.complaints()
        killed_s = ledger.now_s()
        found = await read_in_a_new_life(store, ledger, flushDiskType=flush)
        allowed_s = 2 * pace.worst_s + SLACK_S
    verdict = judge(ledger, found, killed_s)
    outcome = outcome_of("kill", seed, verdict, variant="kill -9", may_repeat=False)
    outcome.rounds = KILLS_PER_STORE
    outcome.recovery_s = max(*starts_s, found.start_s)
    outcome.window_ms = 1000 * verdict.offsets_behind_s
    if verdict.offsets_behind_s > OFFSETS_WINDOW_S + allowed_s:
        outcome.complaints.append(
            f"an offset committed {verdict.offsets_behind_s:.3f} s before the kill is forgotten"
        )
    crowd = ", a crowd" if is_crowded else ""
    outcome.note = f"{flush}{crowd}, refused: {ledger.refusals}"
    yield outcome
