"""A million pending messages cost little memory, and many at once hold up nobody."""

import itertools
import os
import random
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rockhopper.broker.kernel.scheduled.timers import timers
from rockhopper.broker.kernel.scheduled.timers.delivery import PASS_COUNT_MAX
from rockhopper.broker.kernel.scheduled.timers.timers import TURN_S
from tests.support.timer_rig import START_MS, TimerRig

pytestmark = pytest.mark.slow

MILLION = 1_000_000
LOG = {"mappedFileSizeCommitLog": str(256 << 20), "mappedFileSizeConsumeQueue": str(20 * 300_000)}
LOG |= {"messageIndexEnable": "false"}


def anonymous_mb() -> float:
    """What this process holds that is no file's, in MB."""
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("RssAnon:")]
    return int(line.split()[1]) / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "spread_ms", [pytest.param(3 * 86_400_000 - 60_000, marks=pytest.mark.long), 60_000]
)
def test_a_million_pending_messages_take_under_a_hundred_megabytes(
    tmp_path: Path, spread_ms: int
) -> None:
    rig = TimerRig(tmp_path / "store", LOG)
    rig.start()
    dice = random.Random(1)
    before_mb = anonymous_mb()
    for start in range(0, MILLION, 5000):
        messages = [
            (b"%d" % number, START_MS + 60_000 + dice.randrange(spread_ms))
            for number in range(start, start + 5000)
        ]
        rig.put_waiting(messages)
    while rig.pending < MILLION:
        rig.loop.advance(0.01)
    rig.clock.advance(59_000)
    for _ in range(400):
        rig.loop.advance(0.25)
    grown_mb = anonymous_mb() - before_mb
    print(f"{MILLION:,} pending over {spread_ms / 1000:.0f} s: {grown_mb:.0f} MB")
    assert rig.pending == MILLION
    assert grown_mb < 100
    rig.kill(start=False)
    started_s = time.perf_counter()
    rig.start()
    print(f"start after a kill, the queue all to read: {time.perf_counter() - started_s:.1f} s")
    assert rig.pending == MILLION
    rig.close()


def test_a_hundred_thousand_in_one_second_hold_up_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = TimerRig(tmp_path / "store", LOG)
    rig.start()
    dice = random.Random(1)
    count = 100_000
    for start in range(0, count, 5000):
        due = [START_MS + 70_000 + dice.randrange(1000) for _ in range(5000)]
        rig.put_waiting([(b"%d" % (start + n), due[n]) for n in range(5000)])
    while rig.pending < count:
        rig.loop.advance(0.01)
    # A turn asks for the time at its start and behind each pass.
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: next(ticks) * TURN_S / 4)
    monkeypatch.setattr(timers, "time", clock)
    turns: list[int] = []
    work = rig.broker.kernel.scheduled.timers._work

    def counted() -> bool:
        before = rig.pending
        more = work()
        turns.append(before - rig.pending)
        return more

    monkeypatch.setattr(rig.broker.kernel.scheduled.timers, "_work", counted)
    rig.clock.advance(71_000)
    started_s = time.perf_counter()
    while rig.pending:
        rig.loop.advance(0.25)
    print(f"{count / (time.perf_counter() - started_s):,.0f} messages/s")
    assert len(rig.delivered()) == count
    assert max(turns) <= 5 * PASS_COUNT_MAX
    rig.close()
