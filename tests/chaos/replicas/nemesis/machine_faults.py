"""Faults of machines: full and slow disks, lost disks, power cuts, clocks that jump."""

import asyncio
import shutil
import time

from tests.chaos.clock_jumps import JUMPS_S
from tests.chaos.disk_errors import Injection, injected
from tests.chaos.ledger import Ledger
from tests.chaos.replicas.nemesis.scene import Faults, Scene
from tests.chaos.replicas.nemesis.schedule import Act

LEFT_BYTES_MAX = 2 << 20
SLOW_MS = (20, 200, 1500)


class MachineFaults:
    """The machine faults of a scene; *ledger* records when a clock was set."""

    def __init__(self, scene: Scene, ledger: Ledger) -> None:
        self._scene, self._ledger = scene, ledger
        self.kinds: Faults = {
            "fill-disk": self._fill_disk,
            "slow-disk": self._slow_disk,
            "lose-disk": self._lose_disk,
            "cut-power": self._cut_power,
            "set-clock": self._set_clock,
        }

    async def _fill_disk(self, act: Act) -> None:
        machine = self._scene.process(act).machine
        machine.fill(self._scene.dice.randrange(LEFT_BYTES_MAX))
        try:
            await asyncio.sleep(act.lasting_s)
        finally:
            machine.free()

    async def _slow_disk(self, act: Act) -> None:
        """Delay each fsync by longer than some of the time-outs of the other replicas."""
        replica = self._scene.process(act)
        slow = Injection("fsync,fdatasync", delay_ms=self._scene.dice.choice(SLOW_MS))
        pid = replica.pid
        if pid is not None:  # else it has been killed meanwhile
            async with injected(pid, slow, "1+", replica.store):
                await asyncio.sleep(act.lasting_s)

    async def _lose_disk(self, act: Act) -> None:
        """Delete the replica's store; it returns with an empty store and its old id."""
        replica = self._scene.process(act)
        replica.kill()
        shutil.rmtree(replica.store)
        await asyncio.sleep(act.lasting_s)
        replica.start()

    async def _cut_power(self, act: Act) -> None:
        replica = self._scene.process(act)
        replica.kill()
        replica.machine.cut_power()
        await asyncio.sleep(act.lasting_s)
        replica.start()

    async def _set_clock(self, act: Act) -> None:
        clock = self._scene.process(act).machine.clock
        if clock is not None:
            clock.set(clock.offset_s + self._scene.dice.choice(JUMPS_S), time.monotonic())
            self._ledger.clock_set_s = self._ledger.now_s()

    def repair(self) -> None:
        """Set all clocks to the latest time that any showed; delayed messages become due."""
        machines = self._scene.replicas.machines.values()
        clocks = [machine.clock for machine in machines if machine.clock]
        for clock in clocks:
            clock.set(max(one.furthest_s for one in clocks), time.monotonic())
            self._ledger.clock_set_s = self._ledger.now_s()
