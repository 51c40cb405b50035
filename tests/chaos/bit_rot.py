"""Bit rot: the files of a store are damaged one after another, at rest or while they are served.

A broker in its own process opens the damaged copy, and a reader reads everything. Every message
that the broker returns must be one that was sent, and the log must name what is missing. A broker
that cannot open a store must refuse it with one sentence. No damage may cause a traceback or kill
the process. Every damage to the tables under config/ and similar tables must be named in the log or
overwritten by a later save.
"""

import asyncio
import random
import shutil
from collections.abc import AsyncGenerator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from tests.chaos import topics
from tests.chaos.ledger import Ledger
from tests.chaos.lives import living
from tests.chaos.load import Load
from tests.chaos.outcome import Outcome, outcome_of
from tests.chaos.rotten_store import Opened, open_and_read
from tests.chaos.verdict import judge
from tests.chaos.workshop import Workshop

DAMAGES_PER_STORE = 12
LOAD_S = 2.0
SETTLE_S = 3.0
"""By then the delayed messages have been delivered, and the store is set aside."""
LEFT_ALONE = frozenset({"lock"})
EDITABLE = "consumerOffset.json"
"""After a clean stop its content is trusted, as after an edit by hand; damage is only logged."""
TABLES = (".json", ".json.bak")


@dataclass(frozen=True)
class Damage:
    """A damage to a file."""

    kind: str
    start: int
    data: bytes | None
    """The bytes at *start* after the damage; None truncates the file at *start*."""

    def do(self, path: Path) -> None:
        """Damage the file."""
        with path.open("r+b") as file:
            if self.data is None:
                file.truncate(self.start)
            else:
                file.seek(self.start)
                file.write(self.data)

    def __str__(self) -> str:
        size = "" if self.data is None else f" ({len(self.data)} bytes)"
        return f"{self.kind} at byte {self.start}{size}"


def choose_damage(content: bytes, dice: random.Random) -> Damage:
    """Return a damage to the used part of a file."""
    used = len(content.rstrip(b"\0"))
    start = dice.randrange(max(used, 1))
    kind = dice.choices(["flip", "zeros", "garbage", "cut"], [6, 2, 2, 1])[0]
    if kind == "cut":
        return Damage(kind, start, None)
    if kind == "flip":
        old = content[start] if content else 0
        return Damage(kind, start, bytes([old ^ 1 << dice.randrange(8)]))
    size = min(dice.choice([2, 16, 512, 4096]), max(len(content) - start, 1))
    return Damage(kind, start, bytes(size) if kind == "zeros" else dice.randbytes(size))


def files_of(store: Path) -> list[Path]:
    """Return the files of a store that may rot, as relative paths."""
    return sorted(
        path.relative_to(store)
        for path in store.rglob("*")
        if path.is_file() and path.stat().st_size and path.name not in LEFT_ALONE
    )


async def rounds(workshop: Workshop, seed: int) -> AsyncGenerator[Outcome]:
    """Damage some files of one store; the seed determines which, and how."""
    dice = random.Random(seed)
    with workshop.scratch("rot") as directory:
        ledger = Ledger(random.Random(seed))
        template = directory / "store"
        await _make(template, ledger, is_killed=seed % 2 == 0)
        files = files_of(template)
        first = seed * DAMAGES_PER_STORE
        pool = _pool()
        try:
            usual = await _open_intact(pool, template, directory, ledger)
            for number in range(first, first + DAMAGES_PER_STORE):
                name = files[number % len(files)]
                copy = directory / "copy"
                shutil.copytree(template, copy)
                damage = choose_damage((copy / name).read_bytes(), dice)
                # Truncating a file that another process has mapped is not bit rot.
                is_live = damage.data is not None and dice.random() < 0.3
                try:
                    opened = await _open(pool, copy, name, damage, is_live)
                except BrokenProcessPool:
                    pool = _pool()
                    opened = Opened(refusal="the process was killed by a signal", is_crash=True)
                shutil.rmtree(copy)
                for event in usual:
                    opened.named.pop(event, None)
                yield _outcome(seed, ledger, opened, name, damage, is_live)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


async def _open_intact(
    pool: ProcessPoolExecutor, template: Path, directory: Path, ledger: Ledger
) -> list[str]:
    """Return what the log names without damage. Raise AssertionError if the checker is wrong."""
    copy = directory / "copy"
    shutil.copytree(template, copy)
    loop = asyncio.get_running_loop()
    opened = await loop.run_in_executor(pool, open_and_read, copy, None, Path())
    shutil.rmtree(copy)
    verdict = judge(ledger, opened.found, pops_settle=False)
    if opened.refusal or verdict.lost or verdict.wrong or opened.tracebacks:
        raise AssertionError(f"the store was not good to begin with: {verdict}, {opened}")
    return list(opened.named)


async def _open(
    pool: ProcessPoolExecutor, store: Path, name: Path, damage: Damage, is_live: bool
) -> Opened:
    if not is_live:
        damage.do(store / name)
    inside = asyncio.get_running_loop().run_in_executor(
        pool, open_and_read, store, damage if is_live else None, name
    )
    return await inside


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))


async def _make(store: Path, ledger: Ledger, *, is_killed: bool) -> None:
    """Create a store with all kinds of messages; stop or kill its broker when all are delivered."""
    async with living(store) as life:
        await topics.create_topics(life.nameserver)
        async with Load(life.address, life.nameserver, ledger, ledger.dice, pause_s=0.03):
            await asyncio.sleep(LOAD_S)
        await asyncio.sleep(SETTLE_S)
        if is_killed:
            await life.daemon.kill()
        else:
            await life.daemon.stop()


def _outcome(
    seed: int, ledger: Ledger, opened: Opened, name: Path, damage: Damage, is_live: bool
) -> Outcome:
    where = f"{damage} of {name}{', while it was served' if is_live else ''}"
    if opened.refusal:
        outcome = Outcome(fault="bit-rot", variant="bit rot", seed=seed, wrong=opened.is_crash)
        if opened.is_crash:
            outcome.complaints.append(f"{where}: {opened.refusal}")
        outcome.note = f"{where}: refused: {opened.refusal}"
        return outcome
    if name.name == EDITABLE:
        opened.found.offsets.clear()
    verdict = judge(ledger, opened.found, pops_settle=False, whole_batches=frozenset())
    outcome = outcome_of("bit-rot", seed, verdict, variant="bit rot", may_lose=True)
    outcome.complaints = [f"{where}: {text}" for text in [*outcome.complaints, *opened.tracebacks]]
    outcome.wrong += len(opened.tracebacks)
    outcome.recovery_s = opened.start_s
    if verdict.lost and not opened.named:
        outcome.complaints.append(
            f"{where}: {len(verdict.lost)} messages are gone, and the log does not say so"
        )
    if verdict.repeated and not opened.named:
        outcome.complaints.append(
            f"{where}: {len(verdict.repeated)} messages came again, and the log does not say so"
        )
    if verdict.lost and name.parts[0] != "commitlog":
        outcome.complaints.append(
            f"{where}: {len(verdict.lost)} messages are gone, though the commit log has them"
        )
    # Files under rockhopper/ are checked only at the next start.
    is_looked_at = name.name.endswith(TABLES) and (not is_live or name.parts[0] == "config")
    if is_looked_at and not opened.named and not opened.is_written_over:
        outcome.complaints.append(f"{where}: the log does not say so")
    outcome.note = f"{where}; named: {', '.join(opened.named) or 'nothing'}"
    return outcome
