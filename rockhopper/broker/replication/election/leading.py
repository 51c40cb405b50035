"""A master's term: the followers' positions, the replicated offset, and the in-sync set.

An offset is confirmed once every replica holds it of **every in-sync set that may be stored now**.
These are the last known set and the sets of alterations whose outcome is unknown. So a replica's
acknowledgement is required before it enters the set, and until its removal is known. Therefore any
replica that can be elected has every acknowledged message.

    in sync {1, 2}; 1 leads; 1 holds up to 300, 2 up to 200     200 is confirmed
    3 has caught up: the master asks the engine for {1, 2, 3}   from now on 3 must acknowledge too
    the answer is lost                                          {1, 2} or {1, 2, 3} may be stored
    1 crashes                                                   2 has 200; 3 has it too, if in sync
"""

from dataclasses import dataclass

from rockhopper.broker.replication.election.replica_set import Replica, SetState, SwapOutcome
from rockhopper.broker.replication.election.timing import Timing


@dataclass(slots=True)
class Follower:
    """A follower and its last connection, as the master sees them."""

    link: int | None
    is_clean: bool
    heard_at_ms: int
    moved_at_ms: int
    """When the follower last made progress or held the whole log."""
    acknowledgeable_offset: int = -1
    """-1 until the follower's log is known to be a prefix of ours."""
    left_at_ms: int = 0
    vouched_at_ms: int = 0
    """A time at or after which the follower still followed this master.

    A message may have waited unread while this process was suspended. So its time counts from
    before the process was last seen to run.
    """


class MasterTerm:
    """One epoch of this replica as master."""

    def __init__(
        self,
        me: Replica,
        state: SetState,
        version: int,
        log_end: int,
        acknowledgeable_offset: int,
        replicated_offset: int,
        now_ms: int,
        timing: Timing,
    ) -> None:
        """Start a term; the log ends at *log_end*, and all of it has to be confirmed first."""
        self.me = me
        self.epoch = state.epoch
        self.start_offset = log_end
        self.state = state
        self.version = version
        self.acknowledgeable_offset = acknowledgeable_offset
        """The offset this replica may acknowledge: written (async) or fsynced (sync)."""
        self.replicated_offset = replicated_offset
        self.followers: dict[Replica, Follower] = {}
        self._began_at_ms = now_ms
        self._timing = timing
        self.floor = state.min_in_sync
        """The minInSyncReplicas of this master's settings, which may differ from the stored one."""
        self.asked: SetState | None = None
        """The alteration in flight, or the one whose outcome is unknown."""
        self.is_asking = False
        self._waited_for: tuple[Replica, ...] = ()
        self._waited_for_by: tuple[SetState, SetState | None] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the log as of the start of the term is confirmed, so that clients may read."""
        return self.replicated_offset >= self.start_offset

    @property
    def required(self) -> frozenset[Replica]:
        """The replicas that must acknowledge: those of every set that may be stored now."""
        return self.state.in_sync | self.asked.in_sync if self.asked else self.state.in_sync

    def confirm(self) -> bool:
        """Advance the confirmed offset as far as possible; return whether it moved."""
        if not self.state.is_complete:
            return False
        confirmed = self.acknowledgeable_offset
        for replica in self._list_others():
            follower = self.followers.get(replica)
            if follower is None:
                return False
            confirmed = min(confirmed, follower.acknowledgeable_offset)
        if confirmed <= self.replicated_offset:
            return False
        self.replicated_offset = confirmed
        return True

    def _list_others(self) -> tuple[Replica, ...]:
        """Return the replicas besides this one that must acknowledge.

        The result is cached, because every frame needs it.
        """
        by = self._waited_for_by
        if by is None or by[0] is not self.state or by[1] is not self.asked:
            self._waited_for_by = self.state, self.asked
            self._waited_for = tuple(self.required - {self.me})
        return self._waited_for

    def all_vouch_within(self, age_ms: int, now_ms: int) -> bool:
        """Return whether all required replicas followed so recently that no other can be elected.

        A follower closes its connection before it campaigns.
        """
        followers = [self.followers.get(each) for each in self.required - {self.me}]
        return all(
            each is not None and each.link is not None and now_ms - each.vouched_at_ms <= age_ms
            for each in followers
        )

    def unheard(self, age_ms: int, now_ms: int) -> list[Replica]:
        """Return the required replicas that have not spoken for *age_ms*."""
        silent = []
        for replica in self._list_others():
            follower = self.followers.get(replica)
            is_linked = follower is not None and follower.link is not None
            if follower is None or not is_linked or now_ms - follower.heard_at_ms > age_ms:
                silent.append(replica)
        return silent

    def is_young(self, now_ms: int) -> bool:
        """Return whether running replicas may still be connecting to this master."""
        return now_ms - self._began_at_ms < self._timing.catch_up_ms

    def has_floor(self, now_ms: int) -> bool:
        """Return whether enough in-sync replicas are connected to confirm new messages.

        The stored set stays unchanged if a smaller one would fall below the floor.
        """
        there = [each for each in self.state.in_sync if not self._is_gone(each, now_ms)]
        return len(there) >= self.state.min_in_sync

    def proposal(self, now_ms: int) -> SetState | None:
        """Return the in-sync set to request, if it has to change."""
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
        """Require the acknowledgements of both sets from now on.

        The request is sent only afterwards.
        """
        self.asked, self.is_asking = state, True

    def answered(self, outcome: SwapOutcome, version: int) -> None:
        """Record the outcome of an alteration, and the version it created."""
        self.is_asking = False
        if outcome is SwapOutcome.DONE and self.asked:
            self.saw(self.asked, version)

    def saw(self, state: SetState, version: int) -> None:
        """Adopt a state of this term; a newer version settles every pending alteration."""
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
            and follower.acknowledgeable_offset >= max(self.replicated_offset, self.start_offset)
        )
