"""Nemesis: carries out a schedule's faults on processes and network, and repairs them."""

import asyncio
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.ledger import Ledger
from tests.chaos.replicas.nemesis.cuts import Cuts
from tests.chaos.replicas.nemesis.engine_faults import EngineFaults
from tests.chaos.replicas.nemesis.machine_faults import MachineFaults
from tests.chaos.replicas.nemesis.moments import Moments
from tests.chaos.replicas.nemesis.process_faults import ProcessFaults
from tests.chaos.replicas.nemesis.scene import Scene
from tests.chaos.replicas.nemesis.schedule import Act, Step

MENDED_WITHIN_S = 8.0
"""How long after its end a fault may still have effects: a lease, an election, a start."""


@dataclass(frozen=True, slots=True)
class Period:
    """The time of a fault, in seconds of the monotonic clock."""

    what: str
    began_s: float
    ended_s: float

    def touches(self, from_s: float, to_s: float) -> bool:
        """Return whether the fault may have affected what happened between two moments."""
        return self.began_s <= to_s and from_s <= self.ended_s + MENDED_WITHIN_S


class Nemesis:
    """The nemesis of one round."""

    def __init__(self, scene: Scene, ledger: Ledger) -> None:
        self._scene = scene
        self._began_s = time.monotonic()
        self.began_ms = time.time_ns() // 1_000_000
        self.periods: list[Period] = []
        processes = ProcessFaults(scene)
        self._engine, self._machines = EngineFaults(scene), MachineFaults(scene, ledger)
        self.kinds = {
            **processes.kinds,
            **Moments(scene, ledger, processes).kinds,
            **Cuts(scene).kinds,
            **self._machines.kinds,
            **self._engine.kinds,
        }

    async def run(self, steps: Sequence[Step]) -> None:
        """Carry out all steps, after a backup of the engine for the faults that need one."""
        self._scene.begin()
        await self.do(Act("back-up-engine", "", 0))
        for step in steps:
            await asyncio.sleep(step.pause_s)
            await asyncio.gather(*(self.do(act) for act in step.acts))

    async def do(self, act: Act) -> None:
        """Cause one fault, and repair it when its time is over."""
        await asyncio.sleep(act.after_s)
        began_s = time.monotonic()
        try:
            await self.kinds[act.kind](act)
        finally:
            what = f"{act} at {began_s - self._began_s:.1f} (master {self._scene.observer.master})"
            self.periods.append(Period(what, began_s, time.monotonic()))

    def repair(self) -> None:
        """Resume everything that was stopped or killed, and make delayed messages due."""
        self._engine.repair()
        for replica in self._scene.replicas.replicas.values():
            replica.signal(signal.SIGCONT)
            replica.start()
        self._machines.repair()
