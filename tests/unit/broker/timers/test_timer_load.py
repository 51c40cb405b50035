"""A million pending messages cost little memory, and many at once hold up nobody."""

import os
import random
import sys
import time
from pathlib import Path

import pytest

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
@pytest.mark.parametrize("spread_ms", [3 * 86_400_000 - 60_000, 60_000])
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
    turns_s: list[float] = []
    work = rig.broker.timers._work

    def timed() -> bool:
        begun_s = time.thread_time()
        more = work()
        turns_s.append(time.thread_time() - begun_s)
        return more

    monkeypatch.setattr(rig.broker.timers, "_work", timed)
    rig.clock.advance(71_000)
    started_s = time.perf_counter()
    while rig.pending:
        rig.loop.advance(0.25)
    took_s = time.perf_counter() - started_s
    print(f"{count / took_s:,.0f} messages/s, longest turn {max(turns_s) * 1000:.1f} ms")
    assert len(rig.delivered()) == count
    # One turn in a while may have to make a file or share the processor.
    assert sorted(turns_s)[-3] < 0.02
    rig.close()
