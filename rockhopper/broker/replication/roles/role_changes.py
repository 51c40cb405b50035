"""RoleChanges: the role that a replica was given, the one it has, and one change at a time.

The machine decides at any moment; a change takes a while. A single task performs all of them, so
that their steps never overlap:

    elected              promote; a long promotion asks ``is_wanted`` whether to continue
    deposed              demote, then promote if the machine won another election meanwhile
    a promotion fails    demote if the machine deposed the replica meanwhile; otherwise give up
    a demotion fails     give up: a replica that cannot follow must not go on without a role
    the replica stops    the change under way is completed, and no other begins

Truncating the log closes the store as well, so it takes its turn among the changes (``in_turn``).
"""

import asyncio
from typing import Protocol

import structlog

from rockhopper.broker.store.files.errors import StoreError
from rockhopper.tasks import end_task, run_in_background

log = structlog.get_logger("broker.ha")


class RolePlayer(Protocol):
    """Takes the roles of one replica."""

    async def promote(self, epoch: int) -> None:
        """Become the master in this epoch, and call ``enter``; return early if it is not wanted."""

    async def demote(self) -> None:
        """Leave the master's role, and follow again."""

    def give_up(self) -> None:
        """Stop the process: a change has failed, so this replica has no role."""


class RoleChanges:
    """The changes of one replica's role. Belongs to the event loop."""

    def __init__(self, player: RolePlayer) -> None:
        self._player = player
        self.leads_in = 0
        """The epoch in which the store takes this master's writes; 0 if it does not."""
        self.deposed = asyncio.Event()
        """Set from the end of a term until this replica follows again."""
        self.in_turn = asyncio.Lock()
        """Held by each change."""
        self.is_closing = False
        self._elected_in = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Perform changes from now on."""
        self._task = run_in_background(
            self._run(),
            "the roles of this replica",
            on_failure=lambda _: self._player.give_up(),
        )

    def elect(self, epoch: int) -> None:
        """Request a promotion: the machine has won this epoch."""
        self._elected_in = epoch
        self._changed.set()

    def depose(self) -> None:
        """Note that the machine leads no more; ``request`` the demotion once writes are refused."""
        self._elected_in = 0
        self.deposed.set()

    def request(self) -> None:
        """Perform the change that is due."""
        self._changed.set()

    def is_wanted(self, epoch: int) -> bool:
        """Return whether to continue a promotion."""
        return self.is_elected(epoch) and not self.is_closing

    def is_elected(self, epoch: int) -> bool:
        """Return whether the machine still leads in this epoch."""
        return self._elected_in == epoch

    def enter(self, epoch: int) -> None:
        """Note that the store takes this master's writes."""
        self.leads_in = epoch

    def leave(self) -> None:
        """Note that the store takes no more of a master's writes."""
        self.leads_in = 0

    def follow(self) -> None:
        """Note that the store is open as a follower's."""
        self.deposed.clear()

    async def close(self) -> None:
        """Wait for a change that is under way, and begin no other."""
        self.is_closing = True
        async with self.in_turn:
            if self._task is not None:
                end_task(self._task)
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            async with self.in_turn:
                try:
                    await self._take_role()
                except (StoreError, OSError, RuntimeError) as error:
                    log.critical("this replica cannot take its new role", reason=str(error))
                    self._player.give_up()
                    return

    async def _take_role(self) -> None:
        if self.is_closing:
            return
        if self.deposed.is_set():
            await self._player.demote()
        if self._elected_in and self._elected_in != self.leads_in:
            try:
                await self._player.promote(self._elected_in)
            except (StoreError, OSError, RuntimeError):
                if not self.deposed.is_set():
                    raise
                self._changed.set()
