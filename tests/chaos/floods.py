"""Floods beside probes: one connection sends requests without pause while another measures latency.

A probe is a send followed by a pull. Beside the flood, its p99 may grow by the length of one turn
of the flood and by the machine's own delays. All messages that were acknowledged to either
connection must be stored.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncGenerator

from rockhopper.protocol.codes import RequestCode
from tests.chaos import topics
from tests.chaos.flood import BODY, KINDS, SENDS
from tests.chaos.ledger import Kind, Ledger
from tests.chaos.lives import Life, living
from tests.chaos.outcome import Outcome, outcome_of
from tests.chaos.pace import Pace
from tests.chaos.reading import Reader
from tests.chaos.verdict import judge
from tests.chaos.workshop import Workshop
from tests.support.daemon import ROOT
from tests.support.direct import pull_fields, send_fields
from tests.support.wire import WireClient

QUIET_S, FLOOD_S = 0.5, 2.0
TURN_S = 0.1
"""The time that the flood may add to a probe; a flood that is served first adds seconds."""


async def rounds(workshop: Workshop, seed: int) -> AsyncGenerator[Outcome]:
    """Make one flood of each kind."""
    for number, kind in enumerate(KINDS):
        with workshop.scratch("flood") as directory, Pace(directory) as pace:
            ledger = Ledger(random.Random(seed * len(KINDS) + number))
            async with living(directory / "store", mappedFileSizeCommitLog=256 << 20) as life:
                outcome = await _flooded(life, ledger, kind, pace, seed)
                outcome.complaints += life.complaints()
        yield outcome


async def _flooded(life: Life, ledger: Ledger, kind: str, pace: Pace, seed: int) -> Outcome:
    await topics.create_topics(life.nameserver)
    quiet_s = await _probe(life.address, ledger, QUIET_S)
    flood = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos.flood"),
        *(life.nameserver if kind == "routes" else life.address, kind),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        flooded_s = await _probe(life.address, ledger, FLOOD_S)
        said, _ = await flood.communicate(b"")
    finally:
        if flood.returncode is None:
            flood.kill()
    answered, succeeded = json.loads(said)
    outcome = await _judge_messages(life, ledger, kind, seed, succeeded)
    _judge_waits(outcome, _p99(quiet_s), _p99(flooded_s), pace)
    outcome.note = (
        f"p99 of {len(flooded_s)} probes {1000 * _p99(flooded_s):.1f} ms, without the flood "
        f"{1000 * _p99(quiet_s):.1f} ms; {answered:,} requests of the flood answered"
    )
    return outcome


async def _judge_messages(
    life: Life, ledger: Ledger, kind: str, seed: int, succeeded: int
) -> Outcome:
    """Check that every acknowledged message is stored, including those of the flood."""
    reader = Reader(life.address)
    await reader.read((topics.PLAIN, topics.FLOODED))
    stored = [one for one in reader.found.messages if one.topic == topics.FLOODED]
    reader.found.messages = [one for one in reader.found.messages if one.topic == topics.PLAIN]
    verdict = judge(ledger, reader.found)
    outcome = outcome_of("flood", seed, verdict, variant=f"flood of {kind}", may_repeat=False)
    if kind in SENDS:
        outcome.acknowledged += succeeded
        outcome.lost += max(succeeded - len(stored), 0)
        if len(stored) != succeeded:
            said = f"{succeeded} sends were acknowledged, {len(stored)} are there"
            outcome.complaints.append(said)
    if any(one.body != BODY for one in stored):
        outcome.complaints.append("the flood's topic holds bodies that nobody sent")
    return outcome


def _judge_waits(outcome: Outcome, quiet_p99_s: float, flooded_p99_s: float, pace: Pace) -> None:
    outcome.window_ms = 1000 * flooded_p99_s
    if flooded_p99_s > quiet_p99_s + TURN_S + 2 * pace.worst_s:
        outcome.complaints.append(
            f"p99 of a probe is {1000 * flooded_p99_s:.0f} ms beside the flood and "
            f"{1000 * quiet_p99_s:.0f} ms without"
        )


async def _probe(address: str, ledger: Ledger, duration_s: float) -> list[float]:
    """Send and pull in turn for *duration_s*, and return how long each pair took."""
    waits_s = []
    async with WireClient(address) as client:
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            fact = ledger.expect(topics.PLAIN, Kind.PLAIN)
            began_s = time.monotonic()
            answer = await client.ask(
                RequestCode.SEND_MESSAGE, send_fields(topics.PLAIN), fact.body
            )
            if answer.code == 0:
                ledger.acknowledged(fact)
            await client.ask(RequestCode.PULL_MESSAGE, pull_fields(topics.PLAIN, 0))
            waits_s.append(time.monotonic() - began_s)
            await asyncio.sleep(0.002)
    return waits_s


def _p99(waits_s: list[float]) -> float:
    return sorted(waits_s)[len(waits_s) * 99 // 100]
