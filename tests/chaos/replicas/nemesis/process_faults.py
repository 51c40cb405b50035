"""Faults of replica processes: killed, ended, frozen, and made to hand over."""

import asyncio
import contextlib
import signal
from collections.abc import Sequence

from rockhopper.protocol.codes import RequestCode
from tests.chaos.replicas.nemesis.scene import Faults, Scene
from tests.chaos.replicas.nemesis.schedule import Act
from tests.chaos.replicas.set_of_replicas import REPLICAS
from tests.support.raw_peer import RawPeer

SWITCH_TIMEOUT_S = 3.0
FLAP_S = (0.05, 0.8)


class ProcessFaults:
    """The process faults of a scene."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._replicas = scene.replicas.replicas
        self.kinds: Faults = {
            "kill": self._kill,
            "end": self._end,
            "freeze": self._freeze,
            "flap": self._flap,
            "switch": self.switch,
            "switch-back": self._switch_back,
            "kill-two": self._kill_two,
            "kill-all": self._kill_all,
        }

    async def _kill(self, act: Act) -> None:
        await self._kill_these([self._scene.target(act)], act.lasting_s)

    async def _kill_two(self, act: Act) -> None:
        await self._kill_these(self._scene.dice.sample(REPLICAS, 2), act.lasting_s)

    async def _kill_all(self, act: Act) -> None:
        await self._kill_these(REPLICAS, act.lasting_s)

    async def _kill_these(self, numbers: Sequence[int], lasting_s: float) -> None:
        for number in numbers:
            self._replicas[number].kill()
        for number in self._scene.dice.sample(numbers, len(numbers)):
            await asyncio.sleep(lasting_s / len(numbers))
            self._replicas[number].start()

    async def _end(self, act: Act) -> None:
        replica = self._scene.process(act)
        replica.signal(signal.SIGTERM)
        await asyncio.sleep(act.lasting_s)
        replica.kill()  # if it has not ended by now
        replica.start()

    async def _freeze(self, act: Act) -> None:
        replica = self._scene.process(act)
        replica.signal(signal.SIGSTOP)
        await asyncio.sleep(act.lasting_s)
        replica.signal(signal.SIGCONT)

    async def _flap(self, act: Act) -> None:
        """Freeze one replica repeatedly, sometimes long enough to be missed, sometimes not."""
        replica = self._scene.process(act)
        end_s = asyncio.get_running_loop().time() + act.lasting_s
        try:
            while asyncio.get_running_loop().time() < end_s:
                replica.signal(signal.SIGSTOP)
                await asyncio.sleep(self._scene.dice.uniform(*FLAP_S))
                replica.signal(signal.SIGCONT)
                await asyncio.sleep(self._scene.dice.uniform(*FLAP_S))
        finally:
            replica.signal(signal.SIGCONT)

    async def switch(self, act: Act) -> None:
        """Ask the master to hand over, which it may refuse."""
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(act.lasting_s + SWITCH_TIMEOUT_S):
                async with RawPeer(self._scene.observer.master_address) as peer:
                    await peer.ask(RequestCode.CHANGE_REPLICA_SET, {"action": "switch"})

    async def _switch_back(self, act: Act) -> None:
        """Switch twice; the second time, the first switch's clients are still being forwarded."""
        await self.switch(act)
        await asyncio.sleep(act.lasting_s)
        await self.switch(act)
