"""What the engine of consensus keeps of a replica set, and the changes of it that are allowed.

The state of a set is one value that is only ever changed by compare-and-swap on its version: epoch,
master and in-sync set change together. Everything here is a plain value without I/O.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

HISTORY_MAX = 8
STATE_WRITER = 1
"""What this release knows of a set's state: one that asks for more of its writers is only read."""
TRAIL_MAX = 16


class Replica(NamedTuple):
    """A member: a machine with an empty or an exchanged disk is another one."""

    id: int
    store: str
    """Made at random with the store's directory."""


@dataclass(frozen=True, slots=True)
class Term:
    """One election, for operators to read."""

    epoch: int
    master: Replica
    why: str


class Sight(NamedTuple):
    """Which state of a set that was: as a replica remembers it longer than its process lives.

    An engine that was put back from a backup has an older one, in which replicas count as in sync
    that have left since. By itself it looks as good as any.
    """

    changes: int = 0
    """How often the set was changed by then: each change has a larger number than the last."""
    mark: int = 0
    """Of what was changed, this time and before: two changes of one state have different ones."""


NOTHING_SEEN = Sight()


@dataclass(frozen=True, slots=True)
class SetState:
    """The stored state of a set.

    An answer says OK only when all of ``in_sync`` have the bytes, and only they may lead.
    """

    epoch: int
    master: Replica
    in_sync: frozenset[Replica]
    min_in_sync: int
    history: tuple[Term, ...] = ()
    trail: tuple[Sight, ...] = ()
    """What this state and some before it are known by; the last is its own."""
    writer: int = STATE_WRITER
    """Only a release that knows this version of the state may change it."""
    unknown: tuple[tuple[str, bytes], ...] = ()
    """Fields of a later release, as they are stored: they are stored again with each change."""
    unknown_inside: tuple[tuple[str, bytes, tuple[tuple[str, bytes], ...]], ...] = field(
        default=(), compare=False
    )
    """Those of the objects within it, which are stored again with these."""

    @property
    def is_writable(self) -> bool:
        """Whether this release knows enough of it to change it."""
        return self.writer <= STATE_WRITER

    @property
    def sight(self) -> Sight:
        """What to remember of it."""
        return self.trail[-1] if self.trail else NOTHING_SEEN

    def contradicts(self, sight: Sight) -> bool:
        """Whether this is from before a state that was seen, or has forgotten that and gone on."""
        if sight.changes > self.sight.changes:
            return True
        is_kept = bool(self.trail) and sight.changes >= self.trail[0].changes
        return is_kept and sight not in self.trail

    def followed_by(self, state: "SetState", number_min: int = 0) -> "SetState":
        """A state that comes after this one, with what it is known by."""
        before = self.sight
        content = f"{before.mark} {state.epoch} {state.master} {sorted(state.in_sync)}"
        sight = Sight(max(before.changes + 1, number_min), zlib.crc32(content.encode()))
        return replace(state, trail=(*self.trail, sight)[-TRAIL_MAX:])

    @property
    def is_complete(self) -> bool:
        """Whether enough replicas are in sync for messages to be acknowledged."""
        return len(self.in_sync) >= self.min_in_sync

    def elected(
        self, master: Replica, epoch: int, why: str, *, without_old: bool, number_min: int = 0
    ) -> "SetState":
        """The state under a new master; the old one leaves if asked and the floor allows.

        *number_min*: this change is to have a larger number than others that are known.
        """
        in_sync = self.in_sync
        if without_old and self.master != master and len(in_sync) > self.min_in_sync:
            in_sync -= {self.master}
        history = (*self.history, Term(epoch, master, why))[-HISTORY_MAX:]
        state = replace(self, epoch=epoch, master=master, in_sync=in_sync, history=history)
        return self.followed_by(state, number_min)

    def changed(
        self, *, joining: Replica | None = None, leaving: Replica | None = None
    ) -> "SetState | None":
        """The state with another set; None if it would be the same, or fall below the floor."""
        in_sync = self.in_sync - {leaving} if leaving else self.in_sync
        if joining:
            in_sync = in_sync | {joining}
        is_below = len(in_sync) < min(self.min_in_sync, len(self.in_sync))
        if in_sync == self.in_sync or is_below or self.master not in in_sync:
            return None
        return self.followed_by(replace(self, in_sync=in_sync))

    def with_floor(self, floor: int) -> "SetState":
        """The state with another floor, which the set in sync reaches."""
        return self.followed_by(replace(self, min_in_sync=floor))


@dataclass(frozen=True, slots=True)
class Leader:
    """Who holds the lease; a process that was started anew has another incarnation."""

    id: int
    incarnation: str
    epoch: int
    unknown: tuple[tuple[str, bytes], ...] = field(default=(), compare=False)
    """As of a state: of another's lease, which is stored again with what lies beside it."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a running replica tells of itself, to whom it may concern."""

    replica: Replica
    incarnation: str
    address: str = ""
    ha_address: str = ""
    last_epoch: int = 0
    log_end: int = 0
    is_clean: bool = True
    priority: int = 0
    sight: Sight = NOTHING_SEEN
    """Of the newest state that it saw."""
    misses_master: bool = False
    """Whether it follows, and its master has been silent for a moment: it runs, and is cut off."""
    settings: tuple[tuple[str, str], ...] = ()
    """What all replicas should have set alike, as it is set there; empty of an earlier release."""
    own_address: str = ""
    """Where this very replica answers, also where clients have one address for all; empty likewise.
    """

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Larger is the better candidate; any order is safe."""
        return self.last_epoch, self.log_end, self.priority, -self.replica.id


@dataclass(frozen=True, slots=True)
class View:
    """All of a set at one moment, as the engine had it; the version of an absent state is 0."""

    state: SetState | None
    version: int
    leader: Leader | None
    members: Mapping[int, Announcement] = field(default_factory=dict)
    designated: int | None = None
    """The id of the only replica that an operator lets be elected, 0 of none; None: any may be."""

    def is_behind(self, sight: Sight) -> bool:
        """Whether the state is from the past, by what this replica or a running one remembers."""
        state = self.state
        if state is None:
            return False
        return state.contradicts(sight) or any(
            member.last_epoch > state.epoch or state.contradicts(member.sight)
            for member in self.members.values()
        )


class Outcome(Enum):
    """What became of a compare-and-swap."""

    DONE = "done"
    REFUSED = "refused"
    """The version was another one: nothing was changed, and never will be by this request."""
    UNKNOWN = "unknown"
    """The answer was lost: it may have happened, or happen yet."""
