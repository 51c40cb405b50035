"""Errors of the disk, by strace: system calls of a broker under load fail for a while.

A failed fsync must end the broker (what it did not sync may never reach the disk); then its disk is
cloned, and under SYNC_FLUSH everything acknowledged has to be on the clone. Anything else may cost
refusals while it lasts: afterwards the broker takes messages again, and nothing acknowledged is
missing after kill -9.
"""

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import topics
from tests.chaos.disks import Ext4Disk, ReflinkDisk
from tests.chaos.ledger import Kind, Ledger
from tests.chaos.lives import Life, living
from tests.chaos.load import Load
from tests.chaos.outcome import Outcome, outcome_of
from tests.chaos.reading import read_in_a_new_life
from tests.chaos.verdict import BATCHES, Verdict, judge
from tests.chaos.workshop import Workshop, missing

BEFORE_S, DURING_S = (0.3, 1.5), (0.2, 1.5)
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Injection:
    """System calls and what they say."""

    calls: str
    error: str = ""
    files: str = ""
    """Only calls on the files of the store that match this pattern; sockets are written to too."""
    delay_ms: int = 0
    """Instead of an error: how much later each call returns."""

    @property
    def is_sync(self) -> bool:
        """Whether it is the disk's word that counts."""
        return "sync" in self.calls

    @property
    def name(self) -> str:
        """Its line in the table."""
        first = self.calls.partition(",")[0].removesuffix("64")
        return f"{self.error} of {first}"

    def expression(self, when: str) -> str:
        """What strace is told; *when* says which of the calls are meant."""
        what = f"delay_exit={self.delay_ms * 1000}" if self.delay_ms else f"error={self.error}"
        return f"inject={self.calls}:{what}:when={when}"


INJECTIONS = (
    Injection("fsync,fdatasync", "EIO"),
    Injection("fdatasync", "EIO"),
    Injection("fsync", "ENOSPC"),
    Injection("pwrite64,pwritev,pwritev2", "EIO"),
    Injection("pwrite64,pwritev,pwritev2", "ENOSPC"),
    Injection("fallocate", "ENOSPC"),
    Injection("write", "ENOSPC", "rockhopper/**/*"),
    Injection("rename,renameat,renameat2", "EIO"),
    Injection("rename,renameat,renameat2", "ENOSPC"),
)


async def rounds(workshop: Workshop, seed: int) -> AsyncGenerator[Outcome]:
    """One injection into one life."""
    dice = random.Random(seed)
    injection = INJECTIONS[seed % len(INJECTIONS)]
    # Nothing is asked of the disk itself under ASYNC_FLUSH.
    flush = "SYNC_FLUSH" if injection.is_sync else dice.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])
    with workshop.scratch("errors") as directory, ExitStack() as stack:
        disk: Ext4Disk | None = None
        if injection.is_sync and not missing(("root", "loop", "xfs", "ext4")):
            disk = stack.enter_context(stack.enter_context(ReflinkDisk.made(directory)).ext4())
        store = (disk.point if disk else directory) / "store"
        ledger = Ledger(dice)
        note = await _live(store, flush, injection, ledger, dice)
        after_s = ledger.now_s()
        if disk is not None:
            store = stack.enter_context(disk.cut().mounted()) / "store"
        found = await read_in_a_new_life(store, ledger, flushDiskType=flush)
    whole = BATCHES if disk is None else frozenset({Kind.SUNK})
    verdict = judge(ledger, found, after_s, pops_settle=disk is None, whole_batches=whole)
    yield _outcome(seed, verdict, injection, found.start_s, note, is_clone=disk is not None)


def _outcome(
    seed: int, verdict: Verdict, injection: Injection, start_s: float, note: str, *, is_clone: bool
) -> Outcome:
    outcome = outcome_of("disk-error", seed, verdict, variant=injection.name, may_repeat=is_clone)
    outcome.recovery_s = start_s
    outcome.note = note
    return outcome


async def _live(
    store: Path, flush: str, injection: Injection, ledger: Ledger, dice: random.Random
) -> str:
    """A life with the error in its middle; what became of the broker."""
    async with AsyncExitStack() as stack:
        life = await stack.enter_async_context(living(store, flushDiskType=flush))
        await topics.create_topics(life.nameserver)
        await stack.enter_async_context(Load(life.address, life.nameserver, ledger, dice))
        await asyncio.sleep(dice.uniform(*BEFORE_S))
        when = dice.choice(["1", "1+", "3+2"])
        async with injected(life.daemon.pid, injection, when, store):
            await asyncio.sleep(dice.uniform(*DURING_S))
        ended = await _goes_on_or_ends(life, ledger)
        ledger.problems += life.complaints()
        code = life.daemon.exit_code
        if ended:
            ledger.problems += _why_it_ended(life, injection, code)
        if not ended:
            await life.daemon.kill()
    fate = f"ended with {code}" if ended else "went on"
    return f"{flush}, when={when}, broker {fate}, refused {sum(ledger.refusals.values())}"


def _why_it_ended(life: Life, injection: Injection, code: int | None) -> list[str]:
    """A disk that fails may end the broker, which says so; a full one may not."""
    levels = {line.get("level") for line in life.daemon.lines}
    if not (injection.is_sync or injection.error == "EIO"):
        return [f"the broker ended with code {code}, of a full disk"]
    if code == 0 or not levels & {"error", "critical"}:
        return [f"the broker ended with code {code} and did not say why"]
    return []


async def _goes_on_or_ends(life: Life, ledger: Ledger) -> bool:
    """Wait until the broker takes messages again, or has ended; which."""
    before = ledger.acknowledged_count()
    deadline_s = ledger.now_s() + PATIENCE_S
    while life.daemon.exit_code is None:
        if ledger.acknowledged_count() > before + 20:
            return False
        if ledger.now_s() > deadline_s:
            ledger.problems.append("the broker takes no messages after the error has gone")
            return False
        await asyncio.sleep(0.05)
    return True


@asynccontextmanager
async def injected(pid: int, injection: Injection, when: str, store: Path) -> AsyncIterator[None]:
    """Let a broker's calls fail, from strace's arrival to the end of the block."""
    paths = (
        [path for path in store.glob(injection.files) if path.is_file()] if injection.files else ()
    )
    strace = await asyncio.create_subprocess_exec(
        *("strace", "-f", "-p", str(pid), "-e", f"trace={injection.calls}"),
        *("-e", injection.expression(when)),
        *(part for path in paths for part in ("-P", str(path))),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert strace.stderr is not None
    said = await strace.stderr.readline()
    while b"Requested path" in said:
        said = await strace.stderr.readline()
    if b"attached" not in said:
        raise OSError(f"strace cannot attach to the broker: {said.decode()}")
    draining = asyncio.create_task(strace.stderr.read())
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            strace.send_signal(signal.SIGINT)
        await asyncio.gather(strace.wait(), draining)
