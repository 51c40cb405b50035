"""When a replica campaigns for the mastership, and what it requests.

Electing any candidate of the stored in-sync set is safe at any time. These rules only prevent two
candidates from campaigning at once, and the displacement of a master that still runs.
"""

from collections.abc import Callable
from dataclasses import replace

from rockhopper.broker.replication.election.actions import Campaign
from rockhopper.broker.replication.election.replica_set import (
    Announcement,
    Leader,
    Replica,
    SetState,
    SetView,
)
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing

CONNECTIONS_REFUSED = 2

FIRST_START = "first start"
LEASE_OVER = "the lease expired"
PROCESS_GONE = "the master's process ended"
STARTED_ANEW = "the master's process was restarted"
PLANNED = "a planned switch"
BY_OPERATOR = "an operator's decision, which may lose messages"
POWER_CUT = "a power cut of all replicas (uncleanAfterPowerCut), which may lose messages"
CAUSES = {
    FIRST_START: "first-start",
    LEASE_OVER: "lease-over",
    PROCESS_GONE: "process-gone",
    STARTED_ANEW: "started-anew",
    PLANNED: "planned-switch",
    BY_OPERATOR: "operator",
    POWER_CUT: "power-cut",
}
"""Maps each stored reason of an election to its label in the metrics."""
WITHOUT_LOSS = frozenset({LEASE_OVER, PROCESS_GONE, STARTED_ANEW, PLANNED})
"""The reasons of elections that only a replica in sync can win."""


class Campaigning:
    """Decides when one replica campaigns; belongs to one machine."""

    def __init__(
        self,
        replica_state: ReplicaState,
        timing: Timing,
        min_in_sync: int,
        began_at_ms: int,
        spread: Callable[[], float],
        *,
        replicas_after_power_cut: int = 0,
    ) -> None:
        """*spread* returns a random number between -1 and 1 on each call.

        If all in-sync replicas lost their machines' memory, the best replica may lead once
        *replicas_after_power_cut* replicas are running. 0: an operator decides.
        """
        self.replica_state = replica_state
        self._timing = timing
        self._min_in_sync = min_in_sync
        self._began_at_ms = began_at_ms
        self._spread = spread
        self._replicas_after_power_cut = replicas_after_power_cut
        self.why = ""
        """The reason for a campaign that displaces a running master or may lose messages."""
        self.may_lose = False
        """Whether this replica may lead although it may lack acknowledged messages."""
        self._since_ms: int | None = None
        self._since_why = ""
        self._pause_ms = 0.0

    def is_due(self, view: SetView, heard_at_ms: int, refusals: int, now_ms: int) -> bool:
        """Return whether to campaign now.

        The replica waits for a moment after a campaign becomes possible, and longer if others have
        a better rank.
        """
        why = ""
        if not self._is_possible(view, heard_at_ms, refusals, now_ms):
            if not self._is_best_after_power_cut(view):
                self._since_ms = None
                return False
            why = POWER_CUT
        if self._since_ms is None or self._since_why != why:
            self._since_ms, self._since_why = now_ms, why
            spread_ms = self._timing.rank_spread_ms * (1 + self._spread())
            self._pause_ms = self._timing.rank_ms * self._better(view) + spread_ms
            if why:
                self._pause_ms = self._timing.power_cut_ms
        if now_ms - self._since_ms < self._pause_ms:
            return False
        self.why, self.may_lose = why, bool(why)
        return True

    def over(self) -> None:
        """Restart the wait before the next campaign."""
        self._since_ms, self.why, self.may_lose = None, "", False

    def request(self, view: SetView, epoch: int) -> Campaign:
        """Return the request by which this replica would lead under *epoch*."""
        me, state = self.replica_state.me, view.state
        seen = (self.replica_state.seen_state, *(each.seen_state for each in view.members.values()))
        number_min = max(seen).changes + 1
        if state is None:
            first = SetState(0, me, frozenset({me}), self._min_in_sync)
            state = first.elected(me, epoch, FIRST_START, without_old=False, number_min=number_min)
            return Campaign(state, 0, None)
        why = self.why or self._cause(view.leader)
        if self.may_lose:
            state = replace(state, in_sync=frozenset({me}))
        if why == BY_OPERATOR:
            state = replace(state, trail=())
        state = state.elected(me, epoch, why, without_old=True, number_min=number_min)
        return Campaign(state, view.version, None if self.may_lose else view.leader)

    def _cause(self, displaced: Leader | None) -> str:
        if displaced is None:
            return LEASE_OVER
        return STARTED_ANEW if displaced.id == self.replica_state.me.id else PROCESS_GONE

    def may_ask(self, view: SetView, epoch: int) -> bool:
        """Return whether to campaign under *epoch* after the vote was stored.

        The view may have changed.
        """
        if view.state is None:
            return True
        if self.may_lose and view.leader:
            return False
        if self.why != BY_OPERATOR and view.is_behind(self.replica_state.seen_state):
            return False
        if self.why == POWER_CUT and not self._is_best_after_power_cut(view):
            return False
        return view.state.epoch < epoch and self.is_electable(view.state)

    def is_electable(self, state: SetState) -> bool:
        """Return whether this replica has every acknowledged message, or may lead without them."""
        mine = self.replica_state
        if not state.is_writable:
            return False
        if self.may_lose:
            return True
        return mine.me in state.in_sync and mine.is_clean and mine.may_lead

    def _is_possible(self, view: SetView, heard_at_ms: int, refusals: int, now_ms: int) -> bool:
        if view.designated not in (None, self.replica_state.me.id):
            return False
        if view.state is None:
            waited = now_ms - self._began_at_ms >= self._timing.first_start_ms
            mine = self.replica_state
            may_lead = mine.may_lead or (mine.has_left and not mine.is_failing)
            return waited and may_lead and not self._better(view)
        if view.is_behind(self.replica_state.seen_state) or not self.is_electable(view.state):
            return False
        if view.leader is None:
            return now_ms - heard_at_ms >= self._timing.silence_ms
        return view.leader.id == self.replica_state.me.id or self._is_dead(
            view, view.leader, refusals
        )

    def _is_best_after_power_cut(self, view: SetView) -> bool:
        """Return whether this replica may lead after a power cut.

        Enough replicas must run, no in-sync replica may be clean, and none may have a longer log
        than this one. A master that was elected unclean announces with a delay that it is clean. So
        its announcement counts only if it is newer than its entry into the epoch.
        """
        state, mine, members = view.state, self.replica_state, view.members
        if not self._replicas_after_power_cut or not state or view.leader or not mine.may_lead:
            return False
        if view.is_behind(mine.seen_state):
            return False
        if len(members) < self._replicas_after_power_cut:
            return False
        for replica in state.in_sync:
            member = members.get(replica.id)
            if member is None or member.replica != replica or member.is_clean:
                return False
            if replica == state.master != mine.me and member.last_epoch < state.epoch:
                return False
        best = max(members.values(), key=lambda member: member.rank)
        return best.replica == mine.me and best.incarnation == mine.incarnation

    def _is_dead(self, view: SetView, leader: Leader, refusals: int) -> bool:
        assert view.state is not None
        return leader.id == view.state.master.id and refusals >= CONNECTIONS_REFUSED

    def _better(self, view: SetView) -> int:
        mine = self.replica_state
        last_epoch = mine.epochs[-1].number if mine.epochs else 0
        own = Announcement(
            mine.me,
            mine.incarnation,
            last_epoch=last_epoch,
            log_end=mine.log_end,
            priority=mine.priority,
        ).rank
        others = [each for each in view.members.values() if each.replica.id != mine.me.id]
        return sum(1 for each in others if self._counts(each.replica, view) and each.rank > own)

    def _counts(self, replica: Replica, view: SetView) -> bool:
        state = view.state
        if state is None:
            return True
        is_gone = replica == state.master
        return replica in state.in_sync and not is_gone
