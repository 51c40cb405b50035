"""A master's term: what its followers hold, what is confirmed by that, and who is in sync.

Confirmed is what every replica holds of **every in-sync set that may be stored now**: the last one
known, and those of alterations whose outcome is unknown. A replica is asked for its word before it
is put into the set, and until it is known to be out of it; so whoever may be elected has all that
was ever acknowledged.
"""

from dataclasses import dataclass

from rockhopper.broker.replication.election.replica_set import Outcome, Replica, SetState
from rockhopper.broker.replication.election.timing import Timing


@dataclass(slots=True)
class Follower:
    """A follower's last connection, as its master sees it."""

    link: int | None
    is_clean: bool
    heard_at_ms: int
    moved_at_ms: int
    """When it last held more, or all there was."""
    held_offset: int = -1
    """-1 until its log is known to be a part of ours."""
    left_at_ms: int = 0
    vouched_at_ms: int = 0
    """It followed this master at that time, or later. What was read may have waited here unread,
    while this process stood still: it counts from before the process was last seen to run."""


class MasterTerm:
    """One epoch of this replica as the master."""

    def __init__(
        self,
        me: Replica,
        state: SetState,
        version: int,
        log_end: int,
        held_offset: int,
        confirmed_offset: int,
        now_ms: int,
        timing: Timing,
    ) -> None:
        """Begin with a log that ends at *log_end*, all of which is to be confirmed first."""
        self.me = me
        self.epoch = state.epoch
        self.start_offset = log_end
        self.state = state
        self.version = version
        self.held_offset = held_offset
        """What this replica itself holds, by its own kind of promise."""
        self.confirmed_offset = confirmed_offset
        self.followers: dict[Replica, Follower] = {}
        self._began_at_ms = now_ms
        self._timing = timing
        self.floor = state.min_in_sync
        """The floor that this master is to have: by its settings, which may have been changed."""
        self.asked: SetState | None = None
        """The alteration that is on its way, or whose outcome is unknown."""
        self.is_asking = False
        self._waited_for: tuple[Replica, ...] = ()
        self._waited_for_by: tuple[SetState, SetState | None] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether all that the log held at the beginning is confirmed, so that it may be shown."""
        return self.confirmed_offset >= self.start_offset

    @property
    def required(self) -> frozenset[Replica]:
        """Whose word it takes to confirm: every set that may be the stored one."""
        return self.state.in_sync | self.asked.in_sync if self.asked else self.state.in_sync

    def confirm(self) -> bool:
        """Move what is confirmed as far as it goes; return whether it moved."""
        if not self.state.is_complete:
            return False
        confirmed = self.held_offset
        for replica in self._others():
            follower = self.followers.get(replica)
            if follower is None:
                return False
            confirmed = min(confirmed, follower.held_offset)
        if confirmed <= self.confirmed_offset:
            return False
        self.confirmed_offset = confirmed
        return True

    def _others(self) -> tuple[Replica, ...]:
        """Whose word it takes besides this replica's; asked for with every frame."""
        by = self._waited_for_by
        if by is None or by[0] is not self.state or by[1] is not self.asked:
            self._waited_for_by = self.state, self.asked
            self._waited_for = tuple(self.required - {self.me})
        return self._waited_for

    def all_vouch_within(self, age_ms: int, now_ms: int) -> bool:
        """Whether all whose word it takes have followed so lately: nobody else can be elected.

        A follower that asks for the mastership hangs up before.
        """
        followers = [self.followers.get(each) for each in self.required - {self.me}]
        return all(
            each is not None and each.link is not None and now_ms - each.vouched_at_ms <= age_ms
            for each in followers
        )

    def unheard(self, age_ms: int, now_ms: int) -> list[Replica]:
        """Those whose word it takes, and that have not spoken so lately."""
        silent = []
        for replica in self._others():
            follower = self.followers.get(replica)
            is_linked = follower is not None and follower.link is not None
            if follower is None or not is_linked or now_ms - follower.heard_at_ms > age_ms:
                silent.append(replica)
        return silent

    def is_young(self, now_ms: int) -> bool:
        """Whether replicas that run may still be on their way to this master."""
        return now_ms - self._began_at_ms < self._timing.catch_up_ms

    def has_floor(self, now_ms: int) -> bool:
        """Whether enough replicas are in sync and there: what is stored now can be confirmed.

        The stored set stays as it is when another one of it would be too small.
        """
        there = [each for each in self.state.in_sync if not self._is_gone(each, now_ms)]
        return len(there) >= self.state.min_in_sync

    def proposal(self, now_ms: int) -> SetState | None:
        """The in-sync set as it should be, if it should be another one."""
        if self.asked:
            return self.asked if not self.is_asking else None
        leaving = next(
            (each for each in sorted(self.state.in_sync) if self._is_gone(each, now_ms)), None
        )
        joining = next((each for each in sorted(self.followers) if self._is_caught_up(each)), None)
        if leaving and (found := self.state.changed(leaving=leaving)):
            return found
        if joining and (found := self.state.changed(joining=joining, leaving=leaving)):
            return found
        if self.floor == self.state.min_in_sync or len(self.state.in_sync) < self.floor:
            return None
        return self.state.with_floor(self.floor)

    def ask(self, state: SetState) -> None:
        """Count on both sets from now on: the alteration leaves only after this."""
        self.asked, self.is_asking = state, True

    def answered(self, outcome: Outcome, version: int) -> None:
        """Take note of an alteration's outcome, and the version that it made."""
        self.is_asking = False
        if outcome is Outcome.DONE and self.asked:
            self.saw(self.asked, version)

    def saw(self, state: SetState, version: int) -> None:
        """Take over a state of this term; a newer one tells what became of all that was asked."""
        if version > self.version:
            self.state, self.version, self.asked = state, version, None

    def _is_gone(self, replica: Replica, now_ms: int) -> bool:
        if replica == self.me:
            return False
        follower = self.followers.get(replica)
        if follower is None:
            return now_ms - self._began_at_ms >= 2 * self._timing.gone_ms
        if follower.link is None:
            return now_ms - follower.left_at_ms >= self._timing.gone_ms
        return not follower.is_clean or now_ms - follower.moved_at_ms >= self._timing.catch_up_ms

    def _is_caught_up(self, replica: Replica) -> bool:
        follower = self.followers[replica]
        return (
            replica not in self.state.in_sync
            and follower.link is not None
            and follower.is_clean
            and follower.held_offset >= max(self.confirmed_offset, self.start_offset)
        )
