"""Moments: a master is made to hand over, or killed, in the middle of one particular operation."""

import asyncio

from tests.chaos.ledger import Ledger
from tests.chaos.replicas.nemesis.process_faults import ProcessFaults
from tests.chaos.replicas.nemesis.scene import Faults, Make, Scene
from tests.chaos.replicas.nemesis.schedule import Act

AFTER_S = 0.03
"""The longest delay after a client's request."""
DOWN_S = 0.3
BETWEEN_S = 2.5


class Moments:
    """Faults that start when a client of the load is *about to* request an operation."""

    def __init__(self, scene: Scene, ledger: Ledger, processes: ProcessFaults) -> None:
        self._scene, self._ledger = scene, ledger
        self.kinds: Faults = {
            "switch-at": self._at(processes.kinds["switch"]),
            "kill-at": self._at(processes.kinds["kill"]),
        }

    def _at(self, make: Make) -> Make:
        async def made(act: Act) -> None:
            """Repeat the fault; the act's target is the moment."""
            came = asyncio.Event()
            self._ledger.about_to = lambda what: came.set() if what == act.target else None
            end_s = asyncio.get_running_loop().time() + act.lasting_s
            try:
                while asyncio.get_running_loop().time() < end_s:
                    came.clear()
                    async with asyncio.timeout_at(end_s):
                        await came.wait()
                    await asyncio.sleep(self._scene.dice.uniform(0, AFTER_S))
                    await make(Act(act.kind, "master", DOWN_S))
                    await asyncio.sleep(BETWEEN_S)
            except TimeoutError:
                pass  # the moment did not occur again
            finally:
                self._ledger.about_to = lambda _: None

        return made
