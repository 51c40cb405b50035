"""A simulated replica: its disk, which may forget what was not synced, and the process on it."""

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
    """One message; its place in the list is its log offset."""

    id: int
    queue_offset: int


@dataclass(slots=True)
class Disk:
    """What a store directory holds. The lists are the page cache; ``synced`` what a cut leaves."""

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
        """A backup."""
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
        """Lose what was not synced, or a part of it."""
        del self.log[random.randint(min(self.synced, len(self.log)), len(self.log)) :]
        self.synced = len(self.log)
        self.confirmed = min(self.confirmed, len(self.log))
        if not sync_flush:
            self.mark_unclean()

    def begin_anew(self) -> None:
        """Throw the log away, as an operator has asked; the mark is on disk before that."""
        self.mark_unclean()
        self.log, self.epochs, self.synced, self.confirmed = [], (), 0, 0
        self.log_start = 0

    def mark_unclean(self) -> None:
        """Note that something which was acknowledged may be missing."""
        self.is_clean = False

    def cut(self, end: int, epochs: tuple[Epoch, ...], *, seed: bool) -> None:
        """Cut the log, or begin it anew."""
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
    """Up to where its confirmed log was compared with what was ever confirmed."""
    leads_epoch: int = 0
    """In which it leads, 0 if it does not."""
    checked_epoch: int = 0
    """Of the truth that it was compared with."""
    may_lose: bool = False
    """Whether an operator lets it be elected though it may lack what was confirmed."""
    is_given_up: bool = False
    """Whether an operator lets its log be replaced, whatever it holds."""
    disk_due_ms: float = 0.0
    """When all is on disk that was asked for: one thing after the other."""
    takes_no_sends: bool = False
    """Whether it is about to hand over."""
    next_queue_offset: int = 0
    backup: Disk | None = None
    is_announced: bool = False

    def now(self, time_ms: float) -> int:
        """The time of its own clock."""
        return int(time_ms * self.rate + self.offset_ms)

    @property
    def held_offset(self) -> int:
        """Up to where the log is by the promise of ASYNC_FLUSH."""
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
        """Start the process; the count of starts is on the disk before anything else."""
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
            held_offset=end,
            confirmed_offset=min(disk.confirmed, end),
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
        """What it tells of itself."""
        epochs = cut(self.disk.epochs, len(self.disk.log))
        return Announcement(
            Replica(self.id, self.disk.store),
            self.incarnation,
            last_epoch=epochs[-1].number if epochs else 0,
            log_end=len(self.disk.log),
            is_clean=self.disk.is_clean,
            seen_state=self.disk.seen_state,
        )
