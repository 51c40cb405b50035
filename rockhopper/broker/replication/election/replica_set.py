"""The replica set as the consensus engine stores it, and its permitted changes.

The state of a set is one value. Only a compare-and-swap on its version changes it, so epoch, master
and in-sync set change together. Everything here is a plain value without I/O.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

HISTORY_MAX = 8
STATE_WRITER = 1
"""The state version of this release: a state that requires a later writer is read-only here."""
TRAIL_MAX = 16


class Replica(NamedTuple):
    """A member; a machine with an empty or exchanged disk is another member."""

    id: int
    store: str
    """A random id, created with the store's directory."""


@dataclass(frozen=True, slots=True)
class Term:
    """One election, for operators."""

    epoch: int
    master: Replica
    why: str


class SeenState(NamedTuple):
    """Identifies a state of a set; a replica stores it on disk.

    An engine that was restored from a backup has an older state, whose in-sync set may contain
    replicas that have left since. Such a state looks valid by itself; only a stored SeenState
    reveals its age.
    """

    changes: int = 0
    """The number of changes to the set so far.

    Each change has a larger number than the one before.
    """
    mark: int = 0
    """A checksum of this change and the ones before.

    Two changes to one state have different marks.
    """


NOTHING_SEEN = SeenState()


@dataclass(frozen=True, slots=True)
class SetState:
    """The stored state of a set.

    The master answers OK only after all of ``in_sync`` hold the bytes, and only these may lead.
    """

    epoch: int
    master: Replica
    in_sync: frozenset[Replica]
    min_in_sync: int
    history: tuple[Term, ...] = ()
    trail: tuple[SeenState, ...] = ()
    """The sights of this state and of some before it; the last is its own."""
    writer: int = STATE_WRITER
    """Only a release that knows this version of the state may change it."""
    unknown: tuple[tuple[str, bytes], ...] = ()
    """Fields of a later release, in stored form: each change stores them again."""
    unknown_inside: tuple[tuple[str, bytes, tuple[tuple[str, bytes], ...]], ...] = field(
        default=(), compare=False
    )
    """Unknown fields of the objects within the state, stored again in the same way."""

    @property
    def why_elected(self) -> str:
        """The reason for which the master was elected; blank if unknown."""
        return self.history[-1].why if self.history else ""

    @property
    def is_writable(self) -> bool:
        """Whether this release understands the state well enough to change it."""
        return self.writer <= STATE_WRITER

    @property
    def seen_state(self) -> SeenState:
        """The SeenState to store for this state."""
        return self.trail[-1] if self.trail else NOTHING_SEEN

    def contradicts(self, seen_state: SeenState) -> bool:
        """Return whether this state is older than *seen_state*, or lacks it in its history."""
        if seen_state.changes > self.seen_state.changes:
            return True
        is_kept = bool(self.trail) and seen_state.changes >= self.trail[0].changes
        return is_kept and seen_state not in self.trail

    def make_successor(self, state: "SetState", number_min: int = 0) -> "SetState":
        """Return a successor of this state, with its own SeenState."""
        before = self.seen_state
        content = f"{before.mark} {state.epoch} {state.master} {sorted(state.in_sync)}"
        seen_state = SeenState(max(before.changes + 1, number_min), zlib.crc32(content.encode()))
        return replace(state, trail=(*self.trail, seen_state)[-TRAIL_MAX:])

    @property
    def is_complete(self) -> bool:
        """Whether enough replicas are in sync to acknowledge messages."""
        return len(self.in_sync) >= self.min_in_sync

    def elected(
        self, master: Replica, epoch: int, why: str, *, without_old: bool, number_min: int = 0
    ) -> "SetState":
        """Return the state under a new master.

        The old master leaves the set if this is requested, and if the floor allows.

        *number_min*: the smallest change number of the new state, so that it exceeds every known
        one.
        """
        in_sync = self.in_sync
        if without_old and self.master != master and len(in_sync) > self.min_in_sync:
            in_sync -= {self.master}
        history = (*self.history, Term(epoch, master, why))[-HISTORY_MAX:]
        state = replace(self, epoch=epoch, master=master, in_sync=in_sync, history=history)
        return self.make_successor(state, number_min)

    def changed(
        self, *, joining: Replica | None = None, leaving: Replica | None = None
    ) -> "SetState | None":
        """Return the state with another set.

        Return None if nothing changes, or if the set would be too small.
        """
        in_sync = self.in_sync - {leaving} if leaving else self.in_sync
        if joining:
            in_sync = in_sync | {joining}
        is_below = len(in_sync) < min(self.min_in_sync, len(self.in_sync))
        if in_sync == self.in_sync or is_below or self.master not in in_sync:
            return None
        return self.make_successor(replace(self, in_sync=in_sync))

    def with_floor(self, floor: int) -> "SetState":
        """Return the state with another floor, which the in-sync set reaches."""
        return self.make_successor(replace(self, min_in_sync=floor))


@dataclass(frozen=True, slots=True)
class Leader:
    """The holder of the lease; a restarted process has another incarnation."""

    id: int
    incarnation: str
    epoch: int
    unknown: tuple[tuple[str, bytes], ...] = field(default=(), compare=False)
    """Unknown fields of another replica's lease, stored again with its neighbours."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a running replica announces about itself to the others."""

    replica: Replica
    incarnation: str
    address: str = ""
    ha_address: str = ""
    last_epoch: int = 0
    log_end: int = 0
    is_clean: bool = True
    priority: int = 0
    seen_state: SeenState = NOTHING_SEEN
    """The SeenState of the newest state that it saw."""
    misses_master: bool = False
    """Whether it follows a master that has been silent for a moment: it runs and is cut off."""
    settings: tuple[tuple[str, str], ...] = ()
    """Its values of the settings that all replicas should share; empty from an earlier release."""
    own_address: str = ""
    """The replica's own address, even if clients use one address for all.

    Empty from an earlier release.
    """

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """The candidate's rank: larger is better. Any order is safe."""
        return self.last_epoch, self.log_end, self.priority, -self.replica.id


@dataclass(frozen=True, slots=True)
class SetView:
    """A consistent view of a set in the engine; the version of an absent state is 0."""

    state: SetState | None
    version: int
    leader: Leader | None
    members: Mapping[int, Announcement] = field(default_factory=dict)
    designated: int | None = None
    """The id of the only replica that the operator allows to be elected; 0: none; None: any."""

    def is_behind(self, seen_state: SeenState) -> bool:
        """Return whether this replica or a running one has seen a newer state."""
        state = self.state
        if state is None:
            return False
        return state.contradicts(seen_state) or any(
            member.last_epoch > state.epoch or state.contradicts(member.seen_state)
            for member in self.members.values()
        )


class SwapOutcome(Enum):
    """The outcome of a compare-and-swap."""

    DONE = "done"
    REFUSED = "refused"
    """The version differed: nothing was changed, and this request will never change anything."""
    UNKNOWN = "unknown"
    """The answer was lost: the change may have happened, or may still happen."""
