"""Disk errors by strace: system calls of a broker under load fail for a while.

A failed fsync must end the broker, because the unsynced data may never reach the disk. The test
then clones the disk; under SYNC_FLUSH the clone must hold everything acknowledged. Other errors may
cause refusals while they last. Afterwards the broker must accept messages again, and no
acknowledged message may be missing after kill -9.
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
    """System calls, and the error that they return."""

    calls: str
    error: str = ""
    files: str = ""
    """Affects only calls on files of the store that match this pattern, not those on sockets."""
    delay_ms: int = 0
    """A delay of each call's return, instead of an error."""

    @property
    def is_sync(self) -> bool:
        """Whether the calls sync data to the disk."""
        return "sync" in self.calls

    @property
    def name(self) -> str:
        """The injection's line in the table."""
        first = self.calls.partition(",")[0].removesuffix("64")
        return f"{self.error} of {first}"

    def expression(self, when: str) -> str:
        """Return strace's expression; *when* selects the affected calls."""
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
    """Make one injection into one life."""
    dice = random.Random(seed)
    injection = INJECTIONS[seed % len(INJECTIONS)]
    # Under ASYNC_FLUSH nothing is required of the disk itself.
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
    """Run a life with the error in the middle, and return what happened to the broker."""
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
    """Return complaints about a broker that ended: a failing disk may end it, if it logs why.

    A full disk may not end it.
    """
    levels = {line.get("level") for line in life.daemon.lines}
    if not (injection.is_sync or injection.error == "EIO"):
        return [f"the broker ended with code {code}, of a full disk"]
    if code == 0 or not levels & {"error", "critical"}:
        return [f"the broker ended with code {code} and did not say why"]
    return []


async def _goes_on_or_ends(life: Life, ledger: Ledger) -> bool:
    """Wait until the broker accepts messages again (return False) or has ended (return True)."""
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
    """Make a broker's calls fail, from when strace has attached until the end of the block."""
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
