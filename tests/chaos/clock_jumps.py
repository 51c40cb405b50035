"""Clock jumps: libfaketime sets the broker's wall clock forward and back under load.

No message may be lost, repeated, or delivered before its delay has really passed, unless the clock
was set forward meanwhile. At the end the clock is set to the latest time that it ever showed, so
that all messages that it delayed become due.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.store.message_codec import decode_messages
from tests.chaos import topics
from tests.chaos.ledger import Ledger
from tests.chaos.lives import living
from tests.chaos.load import Load
from tests.chaos.outcome import Outcome, outcome_of
from tests.chaos.reading import read_in_a_new_life
from tests.chaos.verdict import describe, judge
from tests.chaos.workshop import FAKETIME, Workshop
from tests.support.direct import pull_fields
from tests.support.wire import WireClient

JUMPS_S = (-86_400, -7200, -90, -5, 5, 90, 7200, 86_400)
JUMPS = 3
BETWEEN_S = (0.4, 1.5)
TOLERANCE_S = 0.05
"""The longest time between the broker's receipt of a message and its reading of the clock."""


class FakedClock:
    """The clock of a daemon, with an offset from the machine's clock."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        self.offset_s = self.furthest_s = 0
        self.forward: list[tuple[float, int]] = []
        """The times at which the clock was set forward (monotonic seconds), and by how much."""
        self.set(0, 0.0)

    def set(self, offset_s: int, now_s: float) -> None:
        """Set the clock to the machine's time plus *offset_s*."""
        if offset_s > self.offset_s:
            self.forward.append((now_s, offset_s - self.offset_s))
        self.offset_s = offset_s
        self.furthest_s = max(self.furthest_s, offset_s)
        self._file.write_text(f"{offset_s:+d}")

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that make a daemon use this clock."""
        return {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def was_set_forward(self, since_s: float) -> bool:
        """Return whether the clock was set forward after *since_s*."""
        return any(at_s >= since_s for at_s, _ in self.forward)


async def rounds(workshop: Workshop, seed: int) -> AsyncGenerator[Outcome]:
    """Run one life with some jumps, and a second life after a kill."""
    dice = random.Random(seed)
    ledger = Ledger(dice)
    jumps = [dice.choice(JUMPS_S) for _ in range(JUMPS)]
    with workshop.scratch("clock") as directory:
        clock = FakedClock(directory)
        async with living(directory / "store", clock.environment) as life:
            await topics.create_topics(life.nameserver)
            watching = asyncio.create_task(_watch(life.address, ledger, clock))
            async with Load(life.address, life.nameserver, ledger, dice, is_clock_ours=False):
                for jump_s in jumps:
                    await asyncio.sleep(dice.uniform(*BETWEEN_S))
                    clock.set(clock.offset_s + jump_s, ledger.now_s())
                    ledger.clock_set_s = ledger.now_s()
                await asyncio.sleep(dice.uniform(*BETWEEN_S))
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await life.daemon.kill()
            ledger.problems += life.complaints()
        clock.set(clock.furthest_s, ledger.now_s())
        found = await read_in_a_new_life(directory / "store", ledger, environment=clock.environment)
    verdict = judge(ledger, found)
    outcome = outcome_of("clock-jump", seed, verdict, variant="clock jumps", may_repeat=False)
    outcome.rounds = JUMPS
    outcome.recovery_s = found.start_s
    outcome.note = f"jumps of {', '.join(f'{jump:+d} s' for jump in jumps)}"
    yield outcome


async def _watch(address: str, ledger: Ledger, clock: FakedClock) -> None:
    """Read delayed messages as soon as they are delivered, and note any that are early."""
    positions = {
        (topic, queue_id): 0
        for topic in (topics.LATER, topics.TIMED)
        for queue_id in range(topics.QUEUES)
    }
    async with WireClient(address) as client:
        while True:
            for (topic, queue_id), offset in positions.items():
                answer = await client.ask(
                    RequestCode.PULL_MESSAGE, pull_fields(topic, offset, queue_id)
                )
                seen_s = ledger.now_s()
                messages = decode_messages(answer.body)
                positions[topic, queue_id] += len(messages)
                for message in messages:
                    _check_time(message.body, topic, seen_s, ledger, clock)
            await asyncio.sleep(0.02)


def _check_time(body: bytes, topic: str, seen_s: float, ledger: Ledger, clock: FakedClock) -> None:
    fact = ledger.facts.get((topic, body))
    if fact is None or fact.asked_s is None:
        return
    early_s = fact.asked_s + fact.delay_s - seen_s
    if early_s > TOLERANCE_S and not clock.was_set_forward(fact.asked_s):
        ledger.problems.append(f"{describe(fact)} was delivered {early_s:.2f} s early")
