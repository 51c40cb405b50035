"""Logs one line for each change of a replica's role, with the reason and all offsets."""

from typing import Any

import structlog

from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.replica_set import Replica

log = structlog.get_logger("broker.ha")


class RoleLog:
    """Logs the role changes of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._told: tuple[int, Replica | None] = 0, None

    def elected(self, epoch: int) -> None:
        """Log that the replica was elected; it serves once its whole log is confirmed."""
        self._told = 0, None
        view = self._machine.view
        history = view.state.history if view and view.state else ()
        before = history[-2].master.id if len(history) > 1 else None
        why = history[-1].why if history else ""
        log.info("this replica leads", why=why, epoch=epoch, before=before, **self._place())

    def resigned(self, epoch: int, why: str) -> None:
        """Log that the replica stopped leading."""
        log.warning("this replica stopped leading", why=why, epoch=epoch, **self._place())

    def look(self) -> None:
        """Log the followed master, once this log is known to be a prefix of that master's.

        A reconnection to the same master is not logged.
        """
        following = self._machine.following
        told = following.epoch, following.master
        if not following.epoch or following.link is None or told == self._told:
            return
        why = (
            "another master was elected" if self._told[0] else "this replica found the set's master"
        )
        self._told = told
        master = following.master.id if following.master else None
        log.info("following", why=why, epoch=following.epoch, master=master, **self._place())

    def _place(self) -> dict[str, Any]:
        mine = self._machine.replica_state
        view = self._machine.view
        in_sync = view.state.in_sync if view and view.state else ()
        return {
            "id": mine.me.id,
            "in_sync": sorted(replica.id for replica in in_sync),
            "log_start": mine.log_start,
            "log_end": mine.log_end,
            "held_offset": mine.acknowledgeable_offset,
            "confirmed_offset": mine.replicated_offset,
            "promise": mine.voted_epoch,
            "is_clean": mine.is_clean,
        }
