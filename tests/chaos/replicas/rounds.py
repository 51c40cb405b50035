"""A replica set under the mixed load and a nemesis; then all is repaired and compared."""

import asyncio
import contextlib
import random
import shutil
import signal
from collections.abc import AsyncGenerator, Collection, Iterator
from pathlib import Path

from tests.chaos import topics
from tests.chaos.ledger import Kind, Ledger
from tests.chaos.lives import tracebacks
from tests.chaos.load import Load
from tests.chaos.outcome import Outcome, outcome_of
from tests.chaos.reading import read_back
from tests.chaos.replicas import abilities, checker
from tests.chaos.replicas.clients.administering import Administering, Records
from tests.chaos.replicas.clients.insiders import Insiders
from tests.chaos.replicas.clients.java import JavaClients
from tests.chaos.replicas.clients.locking import Lockers
from tests.chaos.replicas.logs import differences, queue_problems, read_log
from tests.chaos.replicas.machines import switched_on
from tests.chaos.replicas.nemesis.nemesis import Nemesis
from tests.chaos.replicas.nemesis.scene import Scene
from tests.chaos.replicas.nemesis.schedule import schedule
from tests.chaos.replicas.nemesis.scripts import SCRIPTS, Script
from tests.chaos.replicas.network import Network
from tests.chaos.replicas.observing import SETTLED_WITHIN_S, Observer
from tests.chaos.replicas.set_of_replicas import (
    REPLICAS,
    SetOfReplicas,
    host_names,
    leaders,
    running,
)
from tests.chaos.verdict import Found, judge
from tests.chaos.workshop import Workshop
from tests.support.daemon import ROOT

DURATION_S = (6.0, 15.0)
CALM_S = 1.0
TIMEOUT_S = 4.0
SESSION_S = 6.0
READ_BACK_ATTEMPTS = 3
LOOK_AGAIN_S = 0.2
KEPT = ROOT / "build" / "replicas"
"""The directory of the logs of failed rounds, by seed."""


class Round:
    """One set, from its first start to the comparison of its replicas' data."""

    def __init__(
        self, directory: Path, seed: int, script: Script | None = None, *, has_java: bool = False
    ) -> None:
        self._directory, self._seed, self._script = directory, seed, script
        self._has_java = has_java
        dice = random.Random(seed)
        self._lacking = abilities.lacking()
        self._etcd_size = dice.choice([1, 3])
        self._settings: dict[str, object] = {
            "flushDiskType": dice.choice(["SYNC_FLUSH", "ASYNC_FLUSH"]),
            "minInSyncReplicas": dice.choice([2, 2, 2, 1]),
            # The full disk, and later the free space, must be noticed while the fault lasts.
            "cleanResourceInterval": 200,
        }
        self._pause_s = dice.choice([0.005, 0.01, 0.03])
        self._has = abilities.chosen(dice, self._settings, self._lacking)
        self._steps = schedule(dice, dice.uniform(*DURATION_S), self._has)
        if script is not None:
            self._etcd_size, self._steps = script.etcd_size, script.steps
            self._settings |= script.settings
            self._has = script.needs
        self._dice = dice
        self._ledger = Ledger(self._random(1))
        self._problems: list[str] = []

    @property
    def _fault(self) -> str:
        return "replica-scripts" if self._script else "replicas"

    @property
    def _variant(self) -> str:
        return self._script.name if self._script else "replicas"

    async def run(self) -> Outcome:
        """Run the whole round."""
        network = Network(host_names(self._etcd_size), is_cuttable="cuts" in self._has)
        on = switched_on(
            self._directory,
            REPLICAS,
            has_disks="disks" in self._has,
            has_clocks="clocks" in self._has,
        )
        with network, on as machines:
            async with running(
                self._directory, network, self._etcd_size, machines, **self._settings
            ) as replicas:
                try:
                    return await self._run(replicas)
                except OSError as error:  # including time-outs
                    return self._outcome_without(replicas, str(error))

    def _random(self, number: int) -> random.Random:
        """Return separate dice, so that a new user does not change the throws of others."""
        return random.Random(self._seed + number)

    async def _run(self, replicas: SetOfReplicas) -> Outcome:
        addresses = {number: one.address for number, one in replicas.replicas.items()}
        ledger, nameserver = self._ledger, replicas.nameserver
        async with Observer(addresses) as observer:
            await observer.until(observer.is_whole, "complete after the start")
            await topics.create_topics(nameserver)
            self._nemesis = nemesis = Nemesis(Scene(replicas, observer, self._dice), ledger)
            administering = Administering(nameserver, ledger, self._random(2))
            load = Load(
                lambda: observer.master_address,
                nameserver,
                ledger,
                self._random(3),
                pause_s=self._pause_s,
                timeout_s=TIMEOUT_S,
                session_s=SESSION_S,
                is_clock_ours="clocks" not in self._has,
            )
            lockers = Lockers(lambda: observer.master_address, ledger, self._random(4))
            insiders = Insiders(replicas.network, addresses, ledger, self._random(5))
            java = JavaClients(nameserver, ledger, self._directory / "java", wanted=self._has_java)
            async with java, load, administering, lockers, insiders:
                await asyncio.sleep(CALM_S)
                await nemesis.run(self._steps)
                nemesis.repair()
                await observer.settle()
                await asyncio.sleep(CALM_S)
            found = await self._read_back(observer)
            await observer.until(observer.is_whole, "equal in the end")
            confirmed = next(iter(observer.statuses.values()))["confirmedOffset"]
        await _until_dispatched(replicas, confirmed, administering.records)
        replicas.kill()
        for epoch, number in leaders(replicas.replicas.values()):
            observer.leaders[epoch].add(number)
        self._told_also = checker.held_by_two(lockers.holdings)
        self._counts = f"{len(lockers.holdings)} locks, {insiders.acknowledged} from inside"
        if self._has_java:
            self._counts += f", Java sent {java.acknowledged} and was shown {java.consumed}"
        return self._judge(replicas, observer, administering.records, found, confirmed)

    async def _read_back(self, observer: Observer) -> Found:
        """Read everything from the current master; a slow machine may cause extra elections."""
        for _ in range(READ_BACK_ATTEMPTS - 1):
            with contextlib.suppress(OSError, EOFError):
                return await read_back(observer.master_address, self._ledger)
            observer.statuses.clear()  # they name a master that no longer is one
            await observer.until(observer.is_whole_set, "complete after an election")
        return await read_back(observer.master_address, self._ledger)

    def _judge(
        self,
        replicas: SetOfReplicas,
        observer: Observer,
        records: Records,
        found: Found,
        confirmed: int,
    ) -> Outcome:
        ledger, nemesis = self._ledger, self._nemesis
        periods = nemesis.periods
        verdict = judge(
            ledger,
            found,
            whole_batches=frozenset({Kind.SUNK}),
            may_come_again=lambda settled_s: checker.may_pop_again(settled_s, periods),
        )
        stores = {number: one.store for number, one in replicas.replicas.items()}
        logs = [read_log(number, store, confirmed) for number, store in stores.items()]
        for log in logs:
            verdict.wrong += log.problems
            verdict.wrong += checker.in_short(queue_problems(log, stores[log.replica]))
        for complaints in (
            differences(logs),
            checker.missing_in_logs(ledger, logs),
            checker.moved(ledger, logs),
            checker.out_of_order(ledger.placements),
            checker.forgotten_commits(records, periods),
            checker.forgotten_changes(records, stores),
            checker.second_leaders(observer.leaders),
            self._told_also,
            iter([*records.retractions, *observer.epoch_fell, *sorted(observer.alarms)]),
            self._said(replicas),
            self._unsaid(replicas),
        ):
            verdict.wrong += checker.in_short(complaints)
        outcome = outcome_of(
            self._fault, self._seed, verdict, variant=self._variant, may_repeat=False
        )
        outcome.complaints += checker.in_short(checker.repeats(verdict, nemesis.began_ms))
        outcome.note = (
            f"{len(observer.leaders)} epochs, {len(records.topics)} topics, "
            f"{len(records.groups)} groups, {len(records.commits)} commits, {self._counts}, "
            f"{self._told()}"
        )
        return outcome

    def _said(self, replicas: SetOfReplicas) -> Iterator[str]:
        for replica in replicas.replicas.values():
            for text in tracebacks(list(replica.lines())):
                yield f"replica {replica.id} logged {text[-1500:]}"
            for code in replica.exits:
                # One that has only just started cannot exit cleanly yet.
                if code not in (0, -signal.SIGTERM):
                    yield f"replica {replica.id} ended by itself with {code}"

    def _unsaid(self, replicas: SetOfReplicas) -> Iterator[str]:
        wanted = self._script.says if self._script else ""
        lines = (line for each in replicas.replicas.values() for line in each.lines())
        if not any(wanted in str(line) for line in lines):
            yield f"no replica said {wanted!r}"

    def _outcome_without(self, replicas: SetOfReplicas, problem: str) -> Outcome:
        complaints = [problem, *checker.in_short(self._said(replicas))]
        return Outcome(
            fault=self._fault,
            variant=self._variant,
            seed=self._seed,
            wrong=len(complaints),
            acknowledged=self._ledger.acknowledged_count(),
            complaints=complaints,
            note=self._told(),
        )

    def _told(self) -> str:
        settings = " ".join(f"{key}={value}" for key, value in self._settings.items())
        nemesis = getattr(self, "_nemesis", None)
        done = "; ".join(period.what for period in nemesis.periods) if nemesis else "nothing done"
        lacking = "".join(f" (no {one} here)" for one in self._lacking)
        return (
            f"{settings} etcd={self._etcd_size}{lacking} refused: {self._ledger.refusals}; {done}"
        )


async def _until_dispatched(replicas: SetOfReplicas, confirmed: int, records: Records) -> None:
    """Wait until queues and tables of all replicas match their logs.

    Tables are written a second after a change. If something still lacks, the checker reports it
    later.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SETTLED_WITHIN_S):
            for number, replica in replicas.replicas.items():
                await _until_told(number, replica.store, confirmed, records)


async def _until_told(number: int, store: Path, confirmed: int, records: Records) -> None:
    while True:
        lacks_changes = any(checker.forgotten_changes(records, {number: store}))
        if not lacks_changes and not any(queue_problems(read_log(number, store, confirmed), store)):
            return
        await asyncio.sleep(LOOK_AGAIN_S)


async def rounds(
    workshop: Workshop, seed: int, *, has_java: bool = False
) -> AsyncGenerator[Outcome]:
    """Run one set; with *has_java*, RocketMQ's own clients also use it."""
    yield await _round(workshop, seed, has_java=has_java)


async def script_rounds(
    workshop: Workshop, seed: int, names: Collection[str] = tuple(SCRIPTS)
) -> AsyncGenerator[Outcome]:
    """Run a set for each script that can run here."""
    for script in (SCRIPTS[name] for name in names):
        if not set(script.needs) & set(abilities.lacking()):
            yield await _round(workshop, seed, script)


async def _round(
    workshop: Workshop, seed: int, script: Script | None = None, *, has_java: bool = False
) -> Outcome:
    with workshop.scratch("replicas") as directory:
        outcome = await Round(directory, seed, script, has_java=has_java).run()
        if not outcome.is_good:
            keep(directory, f"{seed}-{script.name}" if script else str(seed))
        return outcome


def keep(directory: Path, name: str) -> None:
    """Save the logs of a failed round, and the files that an operator would look at."""
    kept = KEPT / name
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for path in directory.glob("*.log"):
        shutil.copy(path, kept)
    for path in directory.glob("etcd/*/log"):
        shutil.copy(path, kept / f"{path.parent.name}.log")
