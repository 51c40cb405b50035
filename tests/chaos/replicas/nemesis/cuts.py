"""Cuts of hosts: one from all others, two from each other, from the engine, from clients."""

import asyncio
from collections.abc import Iterable, Sequence

from tests.chaos.replicas.nemesis.scene import Faults, Scene
from tests.chaos.replicas.nemesis.schedule import Act
from tests.chaos.replicas.network import CLIENTS

Way = tuple[str, str]
"""A sender, and the receiver that does not get its packets."""
FLAP_S = (0.1, 1.0)


class Cuts:
    """The network faults of a scene."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._network = scene, scene.replicas.network
        self.kinds: Faults = {
            "cut-off": self._cut_off,
            "cut-off-and-on": self._cut_off_and_on,
            "cut-off-with-engine": self._cut_off_with_engine,
            "cut-away": self._cut_away,
            "cut-pair": self._cut_pair,
            "cut-one-way": self._cut_one_way,
            "cut-engine": self._cut_engine,
            "cut-clients": self._cut_clients,
        }

    def _host(self, act: Act) -> str:
        return f"r{self._scene.target(act)}"

    def _around(self, inside: Iterable[str], *, clients: bool = False) -> list[Way]:
        """Return all ways between *inside* and the other hosts, and to the clients if *clients*."""
        ones = list(inside)
        others = [name for name in self._network.hosts if name not in ones]
        ways = [(one, other) for one in ones for other in others]
        lost = [(one, CLIENTS) for one in ones] if clients else []
        return [*ways, *((receiver, sender) for sender, receiver in ways), *lost]

    async def _cut_off(self, act: Act) -> None:
        """Cut the replica off from the other hosts; clients still reach it."""
        await self._cut(self._around([self._host(act)]), act.lasting_s)

    async def _cut_away(self, act: Act) -> None:
        """Cut the replica off from everything except processes on its own host."""
        await self._cut(self._around([self._host(act)], clients=True), act.lasting_s)

    async def _cut_off_and_on(self, act: Act) -> None:
        ways = self._around([self._host(act)])
        end_s = asyncio.get_running_loop().time() + act.lasting_s
        while asyncio.get_running_loop().time() < end_s:
            await self._cut(ways, self._scene.dice.uniform(*FLAP_S))
            await asyncio.sleep(self._scene.dice.uniform(*FLAP_S))

    async def _cut_off_with_engine(self, act: Act) -> None:
        """Cut off a replica and the etcd's leader together, as if they shared a machine."""
        leader = await self._scene.replicas.engine_host()
        await self._cut(self._around([self._host(act), leader], clients=True), act.lasting_s)

    async def _cut_pair(self, act: Act) -> None:
        one, other = self._pair(act)
        await self._cut([(one, other), (other, one)], act.lasting_s)

    async def _cut_one_way(self, act: Act) -> None:
        one, other = self._pair(act)
        await self._cut([self._scene.dice.choice([(one, other), (other, one)])], act.lasting_s)

    async def _cut_engine(self, act: Act) -> None:
        me = self._host(act)
        engines = [name for name in self._network.hosts if name.startswith("e")]
        await self._cut([(me, engine) for engine in engines], act.lasting_s)

    async def _cut_clients(self, act: Act) -> None:
        await self._cut([(self._host(act), CLIENTS)], act.lasting_s)

    def _pair(self, act: Act) -> Way:
        one = self._scene.target(act)
        return f"r{one}", f"r{self._scene.other(one)}"

    async def _cut(self, ways: Sequence[Way], lasting_s: float) -> None:
        for way in ways:
            self._network.cut(*way)
        try:
            await asyncio.sleep(lasting_s)
        finally:
            for way in ways:
                self._network.heal(*way)
