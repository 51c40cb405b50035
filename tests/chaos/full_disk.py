"""A full disk: a small file system is filled beside a broker under load, and freed again.

While it is full, the broker may refuse requests. Afterwards the broker must accept messages again
without help, and no acknowledged message may be missing. Some rounds kill the broker while the disk
is full.
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from tests.chaos import topics
from tests.chaos.disks import ReflinkDisk
from tests.chaos.ledger import Ledger
from tests.chaos.lives import Life, living
from tests.chaos.load import Load
from tests.chaos.outcome import Outcome, outcome_of
from tests.chaos.reading import read_in_a_new_life
from tests.chaos.verdict import judge
from tests.chaos.workshop import Workshop

DISK_BYTES = 64 << 20
FILLINGS = 2
BEFORE_S, FULL_S = (0.3, 1.5), (0.3, 2.0)
LEFT_BYTES_MAX = 2 << 20
PATIENCE_S = 60.0


async def rounds(workshop: Workshop, seed: int) -> AsyncGenerator[Outcome]:
    """Run one store whose disk is filled twice."""
    dice = random.Random(seed)
    flush = dice.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])
    is_killed_full = dice.random() < 0.4
    settings: dict[str, Any] = {"flushDiskType": flush, "cleanResourceInterval": 200}
    ledger = Ledger(dice)
    with workshop.scratch("full") as directory, ReflinkDisk.made(directory) as reflink:
        with reflink.ext4(DISK_BYTES) as disk:
            store, ballast = disk.point / "store", disk.point / "ballast"
            async with living(store, **settings) as life:
                await topics.create_topics(life.nameserver)
                async with Load(life.address, life.nameserver, ledger, dice):
                    await _fill_and_free(ballast, life, ledger, dice, is_killed_full)
                    await life.daemon.kill()
                ledger.problems += life.complaints()
            ballast.unlink(missing_ok=True)
            found = await read_in_a_new_life(store, ledger, **settings)
    verdict = judge(ledger, found)
    outcome = outcome_of("full-disk", seed, verdict, variant="full disk", may_repeat=False)
    outcome.rounds = FILLINGS
    outcome.recovery_s = found.start_s
    outcome.note = f"{flush}, {'killed while full, ' if is_killed_full else ''}{ledger.refusals}"
    yield outcome


async def _fill_and_free(
    ballast: Path, life: Life, ledger: Ledger, dice: random.Random, is_killed_full: bool
) -> None:
    for number in range(FILLINGS):
        await asyncio.sleep(dice.uniform(*BEFORE_S))
        fill(ballast, dice.randrange(LEFT_BYTES_MAX))
        await asyncio.sleep(dice.uniform(*FULL_S))
        if is_killed_full and number == FILLINGS - 1:
            return
        ballast.unlink()
        await _takes_messages(life, ledger)


def fill(ballast: Path, left_bytes: int) -> None:
    """Fill a file system with a new file, except for *left_bytes*."""
    free = os.statvfs(ballast.parent)
    size_bytes = max(free.f_bavail * free.f_frsize - left_bytes, 1)
    with ballast.open("xb") as file:
        while size_bytes > 0:
            try:
                os.posix_fallocate(file.fileno(), 0, size_bytes)
                return
            except OSError:  # the broker used the space first, or the file system needs some
                size_bytes -= 64 << 10


async def _takes_messages(life: Life, ledger: Ledger) -> None:
    before = ledger.acknowledged_count()
    deadline_s = ledger.now_s() + PATIENCE_S
    while ledger.acknowledged_count() <= before + 20:
        if life.daemon.exit_code is not None:
            ledger.problems.append(f"the full disk ended the broker: {life.daemon.exit_code}")
            return
        if ledger.now_s() > deadline_s:
            ledger.problems.append("the broker takes no messages though the disk has room again")
            return
        await asyncio.sleep(0.05)
