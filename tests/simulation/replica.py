"""A simulated replica: its disk, which may forget unsynced data, and its process."""

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from rockhopper.broker.replication.election.epochs import Epoch, cut
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.replica_set import (
    NOTHING_SEEN,
    Announcement,
    Replica,
    SeenState,
)
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing


class Entry(NamedTuple):
    """One message; its index in the list is its log offset."""

    id: int
    queue_offset: int


@dataclass(slots=True)
class Disk:
    """The content of a store directory.

    The lists are the page cache; a power cut leaves the first ``synced`` entries.
    """

    store: str
    log: list[Entry] = field(default_factory=list)
    log_start: int = 0
    synced: int = 0
    voted_epoch: int = 0
    epochs: tuple[Epoch, ...] = ()
    is_clean: bool = True
    confirmed: int = 0
    starts: int = 0
    seen_state: SeenState = NOTHING_SEEN

    def copy(self) -> "Disk":
        """Return a backup."""
        return Disk(
            self.store,
            list(self.log),
            self.log_start,
            len(self.log),
            self.voted_epoch,
            self.epochs,
            self.is_clean,
            self.confirmed,
            self.starts,
            self.seen_state,
        )

    def lose_power(self, random: Random, *, sync_flush: bool) -> None:
        """Lose all or part of the unsynced data."""
        del self.log[random.randint(min(self.synced, len(self.log)), len(self.log)) :]
        self.synced = len(self.log)
        self.confirmed = min(self.confirmed, len(self.log))
        if not sync_flush:
            self.mark_unclean()

    def begin_anew(self) -> None:
        """Discard the log as an operator ordered; the mark is on disk first."""
        self.mark_unclean()
        self.log, self.epochs, self.synced, self.confirmed = [], (), 0, 0
        self.log_start = 0

    def mark_unclean(self) -> None:
        """Note that acknowledged messages may be missing."""
        self.is_clean = False

    def cut(self, end: int, epochs: tuple[Epoch, ...], *, seed: bool) -> None:
        """Truncate the log, or start a new one."""
        if seed:
            self.mark_unclean()
            self.log_start = end
            self.log = [Entry(-1, -1)] * end
        else:
            del self.log[end:]
        self.epochs = epochs
        self.synced = min(self.synced, len(self.log))


@dataclass(slots=True)
class Node:
    """A machine of the set."""

    id: int
    disk: Disk
    rate: float
    offset_ms: float
    incarnation: str = ""
    machine: Machine | None = None
    paused_until_ms: float = 0.0
    checked: int = 0
    """The offset up to which its confirmed log was compared with everything ever confirmed."""
    leads_epoch: int = 0
    """The epoch in which it leads, 0 if it does not."""
    checked_epoch: int = 0
    """The epoch of the truth with which its log was compared."""
    may_lose: bool = False
    """Whether an operator permits its election although it may lack confirmed messages."""
    is_given_up: bool = False
    """Whether an operator permits its log to be replaced, whatever it contains."""
    disk_due_ms: float = 0.0
    """When all requested writes are on disk; they are done one after another."""
    takes_no_sends: bool = False
    """Whether it is about to hand over."""
    next_queue_offset: int = 0
    backup: Disk | None = None
    is_announced: bool = False

    def now(self, time_ms: float) -> int:
        """Return the time of its own clock."""
        return int(time_ms * self.rate + self.offset_ms)

    @property
    def acknowledgeable_offset(self) -> int:
        """The end of its log, which ASYNC_FLUSH promises to keep."""
        return len(self.disk.log)

    def start(
        self,
        time_ms: float,
        timing: Timing,
        min_in_sync: int,
        random: Random,
        *,
        replicas_after_power_cut: int,
    ) -> Machine:
        """Start the process; the number of starts is on disk before anything else."""
        disk = self.disk
        self.incarnation = f"{self.id}.{disk.store}.{disk.starts}.{random.randrange(1 << 30)}"
        self.checked = disk.log_start
        end = len(disk.log)
        replica_state = ReplicaState(
            Replica(self.id, disk.store),
            self.incarnation,
            voted_epoch=disk.voted_epoch,
            epochs=cut(disk.epochs, end),
            is_clean=disk.is_clean,
            log_start=disk.log_start,
            log_end=end,
            acknowledgeable_offset=end,
            replicated_offset=min(disk.confirmed, end),
            seen_state=disk.seen_state,
        )
        self.machine = Machine(
            replica_state,
            timing,
            min_in_sync=min_in_sync,
            now_ms=self.now(time_ms),
            spread=lambda: random.uniform(-1, 1),
            replicas_after_power_cut=replicas_after_power_cut,
        )
        return self.machine

    def announcement(self) -> Announcement:
        """Return the announcement that it sends to the engine."""
        epochs = cut(self.disk.epochs, len(self.disk.log))
        return Announcement(
            Replica(self.id, self.disk.store),
            self.incarnation,
            last_epoch=epochs[-1].number if epochs else 0,
            log_end=len(self.disk.log),
            is_clean=self.disk.is_clean,
            seen_state=self.disk.seen_state,
        )
