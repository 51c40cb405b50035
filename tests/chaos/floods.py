"""Floods beside probes: one connection sends requests without pause while another measures latency.

A probe is a send followed by a pull. While it waits, the broker may work for the flood for no more
than TURNS_S: CPU time of its event loop, which other processes of the machine do not lengthen. All
messages that were acknowledged to either connection must be stored.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import NamedTuple

from rockhopper.protocol.codes import RequestCode
from tests.chaos import topics
from tests.chaos.flood import BODY, KINDS, SENDS
from tests.chaos.ledger import Kind, Ledger
from tests.chaos.lives import Life, living
from tests.chaos.outcome import Outcome, outcome_of
from tests.chaos.reading import Reader
from tests.chaos.verdict import judge
from tests.chaos.workshop import Workshop
from tests.support.daemon import ROOT
from tests.support.direct import pull_fields, send_fields
from tests.support.wire import WireClient

QUIET_S, FLOOD_S = 0.5, 2.0
TURNS_S = 0.1
"""The CPU time of a probe, by its p99; beside a flood that is served first, it is seconds."""


class Wait(NamedTuple):
    """How long a probe took, and the CPU time of the broker's event loop meanwhile."""

    wall_s: float
    cpu_s: float


async def rounds(workshop: Workshop, seed: int) -> AsyncGenerator[Outcome]:
    """Make one flood of each kind."""
    for number, kind in enumerate(KINDS):
        with workshop.scratch("flood") as directory:
            ledger = Ledger(random.Random(seed * len(KINDS) + number))
            async with living(directory / "store", mappedFileSizeCommitLog=256 << 20) as life:
                outcome = await _flooded(life, ledger, kind, seed)
                outcome.complaints += life.complaints()
        yield outcome


async def _flooded(life: Life, ledger: Ledger, kind: str, seed: int) -> Outcome:
    await topics.create_topics(life.nameserver)
    quiet = await _probe(life, ledger, QUIET_S)
    flood = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos.flood"),
        *(life.nameserver if kind == "routes" else life.address, kind),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        flooded = await _probe(life, ledger, FLOOD_S)
        said, _ = await flood.communicate(b"")
    finally:
        if flood.returncode is None:
            flood.kill()
    answered, succeeded = json.loads(said)
    outcome = await _judge_messages(life, ledger, kind, seed, succeeded)
    cpu_s = _p99(wait.cpu_s for wait in flooded)
    if cpu_s > TURNS_S:
        outcome.complaints.append(
            f"the broker worked for {1000 * cpu_s:.0f} ms while a probe waited, by the p99"
        )
    flooded_s, quiet_s = (_p99(wait.wall_s for wait in waits) for waits in (flooded, quiet))
    outcome.window_ms = 1000 * flooded_s
    outcome.note = (
        f"p99 of {len(flooded)} probes {1000 * flooded_s:.1f} ms, {1000 * cpu_s:.1f} ms of the "
        f"broker's CPU; without the flood {1000 * quiet_s:.1f} ms; {answered:,} requests of the "
        "flood answered"
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


async def _probe(life: Life, ledger: Ledger, duration_s: float) -> list[Wait]:
    """Send and pull in turn for *duration_s*, and return how long each pair took."""
    waits = []
    # Of the main thread, which runs the event loop.
    scheduled = Path(f"/proc/{life.daemon.pid}/schedstat")
    async with WireClient(life.address) as client:
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            fact = ledger.expect(topics.PLAIN, Kind.PLAIN)
            began_s, worked_s = time.monotonic(), _cpu_s(scheduled)
            answer = await client.ask(
                RequestCode.SEND_MESSAGE, send_fields(topics.PLAIN), fact.body
            )
            if answer.code == 0:
                ledger.acknowledged(fact)
            await client.ask(RequestCode.PULL_MESSAGE, pull_fields(topics.PLAIN, 0))
            waits.append(Wait(time.monotonic() - began_s, _cpu_s(scheduled) - worked_s))
            await asyncio.sleep(0.002)
    return waits


def _cpu_s(scheduled: Path) -> float:
    return int(scheduled.read_text().split()[0]) / 1e9


def _p99(times_s: Iterable[float]) -> float:
    ordered = sorted(times_s)
    return ordered[len(ordered) * 99 // 100]
