"""Nemesis: does to the processes and to the network what the schedule says, and mends it."""

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rockhopper.protocol.codes import RequestCode
from tests.chaos.replicas.network import CLIENTS, Network
from tests.chaos.replicas.observing import Observer
from tests.chaos.replicas.schedule import Act, Step
from tests.chaos.replicas.set_of_replicas import REPLICAS, SetOfReplicas
from tests.support.raw_peer import RawPeer

SWITCH_TIMEOUT_S = 3.0
MENDED_WITHIN_S = 8.0
"""How long after the end of a fault it may still be to blame: a lease, an election, a start."""


@dataclass(frozen=True, slots=True)
class Period:
    """When a fault was made, in seconds of the monotonic clock."""

    what: str
    began_s: float
    ended_s: float

    def touches(self, from_s: float, to_s: float) -> bool:
        """Whether it may have to do with what happened between two moments."""
        return self.began_s <= to_s and from_s <= self.ended_s + MENDED_WITHIN_S


class Nemesis:
    """Belongs to one round."""

    def __init__(self, replicas: SetOfReplicas, observer: Observer, dice: random.Random) -> None:
        self._set, self._observer, self._dice = replicas, observer, dice
        self._network: Network = replicas.network
        self._began_s = time.monotonic()
        self.began_ms = time.time_ns() // 1_000_000
        self.periods: list[Period] = []
        self._acts: dict[str, Callable[[Act], Awaitable[None]]] = {
            "kill": self._kill,
            "end": self._end,
            "freeze": self._freeze,
            "switch": self._switch,
            "switch-back": self._switch_back,
            "kill-two": self._kill_two,
            "kill-all": self._kill_all,
            "kill-engine": self._kill_engine,
            "freeze-engine": self._freeze_engine,
            "cut-off": self._cut_off,
            "cut-pair": self._cut_pair,
            "cut-one-way": self._cut_one_way,
            "cut-engine": self._cut_engine,
            "cut-clients": self._cut_clients,
        }

    async def run(self, steps: Sequence[Step]) -> None:
        """All of it."""
        for step in steps:
            await asyncio.sleep(step.pause_s)
            await asyncio.gather(*(self._do(act) for act in step.acts))

    async def _do(self, act: Act) -> None:
        began_s = time.monotonic()
        try:
            await self._acts[act.kind](act)
        finally:
            what = f"{act} at {began_s - self._began_s:.1f} (master {self._observer.master})"
            self.periods.append(Period(what, began_s, time.monotonic()))

    def mend(self) -> None:
        """Let everything run that was stopped or killed."""
        for member in self._set.etcd.members:
            if member.process is not None:
                member.signal(signal.SIGCONT)
            else:
                member.start()
        for replica in self._set.replicas.values():
            replica.signal(signal.SIGCONT)
            replica.start()

    def _target(self, act: Act) -> int:
        master = self._observer.master or self._dice.choice(REPLICAS)
        if act.target == "master":
            return master
        return self._dice.choice([number for number in REPLICAS if number != master])

    async def _kill(self, act: Act) -> None:
        await self._kill_these([self._target(act)], act.lasting_s)

    async def _kill_two(self, act: Act) -> None:
        await self._kill_these(self._dice.sample(REPLICAS, 2), act.lasting_s)

    async def _kill_all(self, act: Act) -> None:
        await self._kill_these(REPLICAS, act.lasting_s)

    async def _kill_these(self, numbers: Sequence[int], lasting_s: float) -> None:
        for number in numbers:
            self._set.replicas[number].kill()
        for number in self._dice.sample(numbers, len(numbers)):
            await asyncio.sleep(lasting_s / len(numbers))
            self._set.replicas[number].start()

    async def _end(self, act: Act) -> None:
        replica = self._set.replicas[self._target(act)]
        replica.signal(signal.SIGTERM)
        await asyncio.sleep(act.lasting_s)
        replica.kill()  # if it has not ended by now
        replica.start()

    async def _freeze(self, act: Act) -> None:
        replica = self._set.replicas[self._target(act)]
        replica.signal(signal.SIGSTOP)
        await asyncio.sleep(act.lasting_s)
        replica.signal(signal.SIGCONT)

    async def _switch(self, act: Act) -> None:
        """Ask the master to hand over, which it may refuse."""
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(act.lasting_s + SWITCH_TIMEOUT_S):
                async with RawPeer(self._observer.master_address) as peer:
                    await peer.ask(RequestCode.CHANGE_REPLICA_SET, {"action": "switch"})

    async def _switch_back(self, act: Act) -> None:
        """Twice, the second time while the first one's clients are passed on."""
        await self._switch(act)
        await asyncio.sleep(act.lasting_s)
        await self._switch(act)

    async def _kill_engine(self, act: Act) -> None:
        some = self._dice.sample(self._set.etcd.members, self._how_many())
        for member in some:
            member.kill()
        await asyncio.sleep(act.lasting_s)
        for member in some:
            if member.process is None:
                member.start()

    async def _freeze_engine(self, act: Act) -> None:
        some = self._dice.sample(self._set.etcd.members, self._how_many())
        for member in some:
            if member.process is not None:
                member.signal(signal.SIGSTOP)
        await asyncio.sleep(act.lasting_s)
        for member in some:
            if member.process is not None:
                member.signal(signal.SIGCONT)

    def _how_many(self) -> int:
        return self._dice.randint(1, len(self._set.etcd.members))

    async def _cut_off(self, act: Act) -> None:
        me = f"r{self._target(act)}"
        others = [name for name in self._network.hosts if name != me]
        await self._cut(
            [(me, other) for other in others] + [(other, me) for other in others], act.lasting_s
        )

    async def _cut_pair(self, act: Act) -> None:
        one, other = self._pair(act)
        await self._cut([(one, other), (other, one)], act.lasting_s)

    async def _cut_one_way(self, act: Act) -> None:
        one, other = self._pair(act)
        await self._cut([self._dice.choice([(one, other), (other, one)])], act.lasting_s)

    async def _cut_engine(self, act: Act) -> None:
        me = f"r{self._target(act)}"
        engines = [name for name in self._network.hosts if name.startswith("e")]
        await self._cut([(me, engine) for engine in engines], act.lasting_s)

    async def _cut_clients(self, act: Act) -> None:
        me = f"r{self._target(act)}"
        await self._cut([(me, CLIENTS)], act.lasting_s)

    def _pair(self, act: Act) -> tuple[str, str]:
        one = self._target(act)
        other = self._dice.choice([number for number in REPLICAS if number != one])
        return f"r{one}", f"r{other}"

    async def _cut(self, ways: Sequence[tuple[str, str]], lasting_s: float) -> None:
        for way in ways:
            self._network.cut(*way)
        try:
            await asyncio.sleep(lasting_s)
        finally:
            for way in ways:
                self._network.heal(*way)
