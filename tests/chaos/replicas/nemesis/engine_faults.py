"""Faults of the etcd: its members are killed, frozen, or restored from an old backup."""

import asyncio
import shutil
import signal
from collections.abc import Awaitable, Callable

from tests.chaos.replicas.nemesis.scene import Faults, Scene
from tests.chaos.replicas.nemesis.schedule import Act
from tests.chaos.workshop import run
from tests.interop.etcd import Member

BACKUP, REAL = "backup", "real"


class EngineFaults:
    """The etcd faults of a scene, one at a time, because they would undo each other."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._members = scene, scene.replicas.etcd.members
        self._lock = asyncio.Lock()
        self.kinds: Faults = {
            "kill-engine": self._alone(self._kill),
            "freeze-engine": self._alone(self._freeze),
            "back-up-engine": self._alone(self._back_up),
            "restore-engine": self._alone(self._restore),
        }

    def _alone(self, make: Callable[[Act], Awaitable[None]]) -> Callable[[Act], Awaitable[None]]:
        async def made(act: Act) -> None:
            async with self._lock:
                await make(act)

        return made

    def repair(self) -> None:
        """Make all members run."""
        for member in self._members:
            if member.process is not None:
                member.signal(signal.SIGCONT)
            else:
                member.start()

    def _some(self) -> list[Member]:
        dice = self._scene.dice
        return dice.sample(self._members, dice.randint(1, len(self._members)))

    async def _kill(self, act: Act) -> None:
        some = self._some()
        for member in some:
            member.kill()
        await asyncio.sleep(act.lasting_s)
        for member in some:
            member.start()

    async def _freeze(self, act: Act) -> None:
        some = self._some()
        for member in some:
            member.signal(signal.SIGSTOP)
        await asyncio.sleep(act.lasting_s)
        for member in some:
            member.signal(signal.SIGCONT)

    async def _back_up(self, _: Act) -> None:
        """Copy the members' data on disk while they are stopped."""
        for member in self._members:
            member.signal(signal.SIGSTOP)
        try:
            await asyncio.to_thread(self._copy)
        finally:
            self.repair()

    def _copy(self) -> None:
        for member in self._members:
            shutil.rmtree(member.directory / BACKUP, ignore_errors=True)
            # Most of a member's data is preallocated and unused.
            data, backup = member.directory / "data", member.directory / BACKUP
            run("cp", "--archive", "--sparse=always", data, backup)

    async def _restore(self, act: Act) -> None:
        """Replace the data with the backup for a while, until an operator restores it."""
        await self._exchange(REAL, BACKUP)
        try:
            await asyncio.sleep(act.lasting_s)
        finally:
            await self._exchange(BACKUP, REAL)

    async def _exchange(self, aside: str, instead: str) -> None:
        for member in self._members:
            member.kill()
            (member.directory / "data").rename(member.directory / aside)
            (member.directory / instead).rename(member.directory / "data")
            member.start()
