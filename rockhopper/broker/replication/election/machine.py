"""The state machine of one replica: events in, actions out, no clock and no socket of its own.

    JOINING -- learnt the state --> FOLLOWING -- the master is gone --> CANDIDATE -- won --> LEADING
    CANDIDATE -- lost --> FOLLOWING        LEADING -- another master, a larger epoch --> FOLLOWING

Safety depends on five rules, and on no clock:

    acknowledge   every in-sync set that may be stored holds what is confirmed (leading.py)
    elect         only a clean member of the stored set, by one compare-and-swap (campaigning.py)
    vote          a candidate stops acknowledging its old master, on disk, before it campaigns
    fence         a replica takes nothing from a master of a smaller epoch, and tells it so
    prefix        a follower acknowledges once its log is a prefix of the master's (following.py)

Every method takes the time of a monotonic clock in milliseconds. It appends the work to do to
``actions``, in order.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from rockhopper.broker.replication.election.actions import (
    Action,
    Alter,
    Campaign,
    Close,
    Confirm,
    EnterEpoch,
    GiveUp,
    Lead,
    NoteClean,
    NoteSeenState,
    Read,
    Release,
    Renew,
    Resign,
    SendMessage,
    StoreVotedEpoch,
    StreamLog,
)
from rockhopper.broker.replication.election.campaigning import BY_OPERATOR, PLANNED, Campaigning
from rockhopper.broker.replication.election.epochs import add_epoch, common_end
from rockhopper.broker.replication.election.following import Following
from rockhopper.broker.replication.election.leading import Follower, MasterTerm
from rockhopper.broker.replication.election.messages import (
    Ack,
    Beat,
    Hello,
    Message,
    Refused,
    TakeOver,
    Welcome,
)
from rockhopper.broker.replication.election.replica_set import (
    NOTHING_SEEN,
    Replica,
    SetState,
    SetView,
    SwapOutcome,
)
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing

RETRY_MS = 200


class ReplicaRole(Enum):
    """The current role of a replica."""

    JOINING = "joining"
    FOLLOWING = "following"
    CANDIDATE = "candidate"
    LEADING = "leading"


class Machine:
    """One replica of a set."""

    def __init__(
        self,
        replica_state: ReplicaState,
        timing: Timing,
        *,
        min_in_sync: int,
        now_ms: int,
        spread: Callable[[], float],
        replicas_after_power_cut: int = 0,
    ) -> None:
        """Start as a replica that knows only its own disk.

        Campaigning explains the last parameter.
        """
        self.replica_state = replica_state
        self.actions: list[Action] = []
        self.role = ReplicaRole.JOINING
        self.view: SetView | None = None
        self.term: MasterTerm | None = None
        self.lease_until_ms = 0
        self.renewed_at_ms = now_ms
        """When the last request was sent whose answer confirmed that this replica leads."""
        self.following = Following(replica_state, timing, self.actions, now_ms)
        self._timing = timing
        self._floor = min_in_sync
        self._campaigning = Campaigning(
            replica_state,
            timing,
            min_in_sync,
            now_ms,
            spread,
            replicas_after_power_cut=replicas_after_power_cut,
        )
        self._request: Campaign | None = None
        """A candidate's request, once its vote is on disk."""
        self._is_asked = False
        self._asked_at_ms = now_ms
        self._epoch = 0
        """The epoch that a candidate requests."""
        self._links: dict[int, Replica] = {}
        self._early: dict[int, Hello] = {}
        """The greetings that a candidate received; it answers them once the election is decided."""
        self._read_ms = now_ms - timing.seek_interval_ms
        self._try_at_ms = now_ms
        self._renew_at_ms = now_ms
        self._is_renewing = False
        self._beat_at_ms = now_ms
        self._stuck_since_ms: int | None = None
        """Since when this master can confirm nothing because a running replica is missing."""
        self._give_up_ms = timing.give_up_ms
        self._others_first_until_ms = now_ms
        self._ticked_ms = self._ticked_before_ms = now_ms
        """The times of the last two ticks."""

    # Events from the engine.

    def saw(self, view: SetView, now_ms: int) -> None:
        """Record the set as the engine stores it; ignore a view older than the last."""
        self._read_ms = now_ms
        if self.view and view.version < self.view.version:
            return
        self.view = view
        if view.state is None:
            return
        self.following.elected_epoch = max(self.following.elected_epoch, view.state.epoch)
        self._remember(view.state)
        if self.term:
            self._note_as_master(self.term, view, now_ms)
        elif self.role is ReplicaRole.CANDIDATE:
            self._note_as_candidate(view, now_ms)
        elif self._is_elected(view):
            self._take_office(view)
        else:
            self.role = ReplicaRole.FOLLOWING
            self._follow(view, now_ms)

    @property
    def is_engine_behind(self) -> bool:
        """Whether the engine was restored from a backup.

        Then its state neither elects a master nor names one to follow.
        """
        view = self.view
        if view and self.term:  # The master knows its own changes before it reads them.
            view = replace(view, state=self.term.state)
        return view is not None and view.is_behind(self.replica_state.seen_state)

    def _remember(self, state: SetState) -> None:
        mine = self.replica_state
        if state.seen_state != mine.seen_state and not state.contradicts(mine.seen_state):
            mine.seen_state = state.seen_state
            self.actions.append(NoteSeenState(state.seen_state))

    def _note_as_master(self, term: MasterTerm, view: SetView, now_ms: int) -> None:
        assert view.state is not None
        if view.state.epoch == term.epoch and view.state.master == self.replica_state.me:
            term.saw(view.state, view.version)
            self._confirm(term)
        else:
            self._resign(f"replica {view.state.master.id} leads epoch {view.state.epoch}", now_ms)

    def _note_as_candidate(self, view: SetView, now_ms: int) -> None:
        if self._is_elected(view):
            self._take_office(view)
        elif self._request and view.version > self._request.version:
            self._step_back(now_ms)

    def _is_elected(self, view: SetView) -> bool:
        """Return whether a request of this process won, even if its answer was lost."""
        state, mine = view.state, self.replica_state
        holds = view.leader is not None and view.leader.incarnation == mine.incarnation
        return (
            state is not None
            and holds
            and state.master == mine.me
            and state.epoch == mine.voted_epoch
        )

    def campaigned(self, outcome: SwapOutcome, view: SetView | None, now_ms: int) -> None:
        """Take office if the request won; *view* is then the state it created."""
        self._is_asked = False
        if self.role is not ReplicaRole.CANDIDATE:
            return
        if outcome is SwapOutcome.DONE and view:
            self.view = view
            self.renewed_at_ms = self._asked_at_ms
            self.lease_until_ms = self._asked_at_ms + self._timing.lease_usable_ms
            if view.state:
                self._remember(view.state)
            self._take_office(view)
        elif outcome is SwapOutcome.REFUSED:
            self._step_back(now_ms)
        else:
            self._try_at_ms = now_ms + RETRY_MS
            self.actions.append(Read())

    def altered(self, outcome: SwapOutcome, version: int, now_ms: int) -> None:
        """Record the outcome of an alteration; *version* is the one it created."""
        if not self.term:
            return
        self.term.answered(outcome, version)
        if outcome is SwapOutcome.DONE:
            self._remember(self.term.state)
        else:
            self._try_at_ms = now_ms + RETRY_MS
            self.actions.append(Read())
        self._confirm(self.term)

    def renewed(self, outcome: SwapOutcome, asked_at_ms: int) -> None:
        """Record the outcome of a renewal.

        The lease counts for two thirds of its time from the request on.
        """
        self._is_renewing = False
        if outcome is SwapOutcome.DONE:
            self.renewed_at_ms = asked_at_ms
            self.lease_until_ms = asked_at_ms + self._timing.lease_usable_ms
        elif outcome is SwapOutcome.REFUSED:
            self.actions.append(Read())

    # Events from the disk.

    def voted_epoch_stored(self, epoch: int, now_ms: int) -> None:
        """Send the request to the engine, or start to follow, now that the vote is on disk."""
        if self.role is not ReplicaRole.CANDIDATE:
            self.following.voted_epoch_stored(epoch)
        elif epoch == self._epoch and self.view:
            if self._campaigning.may_ask(self.view, epoch):
                self._ask(self._campaigning.request(self.view, epoch), now_ms)
            else:
                self._step_back(now_ms)

    def entered(self, now_ms: int) -> None:
        """Start to lead, now that the epoch is on disk."""
        mine, view = self.replica_state, self.view
        if self.role is not ReplicaRole.CANDIDATE or not view:
            return
        if not self._is_elected(view):
            self._step_back(now_ms)
            return
        assert view.state is not None
        self.role = ReplicaRole.LEADING
        self.term = MasterTerm(
            mine.me,
            view.state,
            view.version,
            mine.log_end,
            mine.acknowledgeable_offset,
            mine.replicated_offset,
            now_ms,
            self._timing,
        )
        self.term.floor = self._floor
        self._renew_at_ms, self._is_renewing = now_ms, False
        self._try_at_ms = now_ms
        self.actions.append(Lead(view.state.epoch))
        self._confirm(self.term)
        self._answer_early(now_ms)

    def log_is_cut(self, log_end: int, *, is_awaited: bool = True) -> None:
        """Start to acknowledge, unless another Welcome has arrived since the request."""
        self.replica_state.log_end = log_end
        self.replica_state.acknowledgeable_offset = log_end
        if is_awaited:
            self.following.log_is_cut()

    def noted_clean(self) -> None:
        """Continue after the unclean mark was removed from disk.

        A follower acknowledges as a clean replica. A candidate that won although it was unclean
        enters its epoch.
        """
        if self.role is ReplicaRole.CANDIDATE:
            if self.view and self._is_elected(self.view):
                self.replica_state.is_clean = True
                self._take_office(self.view)
        elif self.following.is_noting_clean:
            self.replica_state.is_clean = True
            self.following.noted_clean()

    def wrote(self, log_end: int, acknowledgeable_offset: int) -> None:
        """Record the end of the log and the offset that this replica may acknowledge."""
        self.replica_state.log_end, self.replica_state.acknowledgeable_offset = (
            log_end,
            acknowledgeable_offset,
        )
        if self.term:
            self.term.acknowledgeable_offset = acknowledgeable_offset
            self._confirm(self.term)
        elif self.following.link is not None:
            self.following.acknowledge()

    # Events from other replicas.

    def takes(self, link: int, epoch: int) -> bool:
        """Return whether to append a frame of the log from a master."""
        return self.role is ReplicaRole.FOLLOWING and self.following.takes(link, epoch)

    def hand_over(self, replica_id: int) -> None:
        """Ask a follower to take over from this master; the ``Resign`` action shows that it did.

        Raises:
            ValueError: the follower cannot; the message gives the reason.
        """
        link = self.successor(replica_id).link
        if link is not None and self.term:
            self._send(link, TakeOver(self.term.epoch))

    def best_successor(self) -> int | None:
        """Return the id of the in-sync follower with the longest log, if there is one."""
        term = self.term
        found = [
            (follower.acknowledgeable_offset, -replica.id)
            for replica, follower in (term.followers.items() if term else ())
            if term and replica in term.state.in_sync and follower.link is not None
        ]
        return -max(found)[1] if found else None

    def successor(self, replica_id: int) -> Follower:
        """Return the follower with that id, which may take over from this master.

        Raises:
            ValueError: it cannot; the message gives the reason.
        """
        term = self.term
        if not term:
            raise ValueError("this replica does not lead")
        found = [each for each in term.state.in_sync if each.id == replica_id]
        if not found or found[0] == self.replica_state.me:
            others = sorted(each.id for each in term.state.in_sync - {self.replica_state.me})
            raise ValueError(
                f"replica {replica_id} cannot take over: in sync besides this replica are "
                f"{', '.join(map(str, others)) or 'none'}"
            )
        # If a replica's disk was exchanged, both stores may count.
        followers = [term.followers.get(each) for each in found]
        connected = [each for each in followers if each and each.link is not None]
        if not connected:
            raise ValueError(f"replica {replica_id} is not connected")
        return connected[0]

    def step_down(self, why: str, now_ms: int) -> None:
        """Stop leading; any electable replica may be elected, this one included."""
        if self.term:
            self._resign(why, now_ms)

    def yield_to_other(self, now_ms: int) -> None:
        """Forget the set: another process runs as this replica."""
        if term := self.term:
            self._resign("another process is announced as this replica", now_ms)
            self.actions.append(Release(term.epoch))
        self.following.forget_master()
        self.role, self.view, self._request = ReplicaRole.JOINING, None, None
        self._answer_early(now_ms)

    def lead_by_operator(self, now_ms: int) -> None:
        """Campaign although acknowledged messages may be missing here.

        An unclean replica stays unclean until it has won, so a refused request changes nothing.

        Raises:
            ValueError: there is a master, or the set is not known.
        """
        view = self.view
        if self.term or self.role is ReplicaRole.CANDIDATE:
            raise ValueError("this replica leads, or is being elected")
        if not view or not view.state:
            raise ValueError("the engine has not reported this set yet")
        if not view.state.is_writable:
            raise ValueError(
                "a later release must lead this set: it wrote state that this release cannot write"
            )
        if view.leader or now_ms - self.following.heard_at_ms < self._timing.silence_ms:
            raise ValueError(self._explain_no_operator(view, view.state))
        self.replica_state.is_fenced = False
        self._campaigning.why = BY_OPERATOR
        self._campaigning.may_lose = True
        self._campaign(view)

    def _explain_no_operator(self, view: SetView, state: SetState) -> str:
        number = state.master.id
        if not self.is_engine_behind:
            return f"replica {number} leads: an unclean election is not needed"
        member = view.members.get(number)
        theirs = f"{member.log_end:,}" if member else "an unknown offset"
        return (
            f"replica {number} leads, but its engine was restored to an earlier state: its log "
            f"ends at {theirs}, this one's at {self.replica_state.log_end:,}. The longest log "
            f"must lead: stop replica {number}, give the same command again, start replica "
            f"{number} again and seed it (rockhopper ha reseed)"
        )

    def reseed(self) -> None:
        """Replace this log by the master's, without comparing them.

        Raises:
            ValueError: this log may be the last complete one.
        """
        state = self.view.state if self.view else None
        mine = self.replica_state
        if self.term or self.role is ReplicaRole.CANDIDATE or not state or state.master == mine.me:
            raise ValueError(
                "this replica leads, or no replica does: there is no master to seed it"
            )
        if mine.me in state.in_sync and len(state.in_sync) <= state.min_in_sync:
            raise ValueError(
                f"this replica is one of {len(state.in_sync)} in sync, and "
                f"minInSyncReplicas={state.min_in_sync}: its log is needed until another replica "
                "is in sync"
            )
        self.following.leave()
        self.following.is_noting_clean = False
        mine.epochs, mine.is_fenced, mine.is_clean = (), False, False
        mine.has_left = False
        mine.seen_state = NOTHING_SEEN
        self.actions.append(GiveUp())

    def closed(self, link: int, now_ms: int) -> None:
        """Record that a connection in either direction broke."""
        self._early.pop(link, None)
        replica = self._links.pop(link, None)
        follower = self.term.followers.get(replica) if self.term and replica else None
        if follower and follower.link == link:
            follower.link, follower.left_at_ms = None, now_ms
        self.following.closed(link, now_ms)

    def received(self, link: int, message: Message, now_ms: int) -> None:
        """Handle a message from another replica."""
        if link == self.following.link:
            if isinstance(message, TakeOver):
                self._take_over(message, now_ms)
            else:
                self.following.received(message, now_ms)
            return
        if isinstance(message, Hello):
            self._handle_greeting(link, message, now_ms)
        elif isinstance(message, Ack):
            self._note_acknowledgement(link, message, now_ms)
        elif isinstance(message, Refused):
            self._outrun(message.voted_epoch, now_ms)

    def _take_over(self, message: TakeOver, now_ms: int) -> None:
        view = self.view
        is_of_master = message.epoch == self.following.epoch and self.role is ReplicaRole.FOLLOWING
        if not is_of_master or not view or not view.state:
            return
        if self._campaigning.is_electable(view.state):
            self._campaigning.why = PLANNED
            self._campaign(view)

    def _handle_greeting(self, link: int, hello: Hello, now_ms: int) -> None:
        term, mine = self.term, self.replica_state
        if self.role is ReplicaRole.CANDIDATE:
            self._early[link] = hello
            return
        if term and hello.voted_epoch > term.epoch:
            self._outrun(hello.voted_epoch, now_ms)
            term = None
        if not term:
            self._send(link, Refused(mine.voted_epoch, "this replica is not the master"))
            self.actions.append(Close(link))
            return
        before = term.followers.get(hello.replica)
        if before and before.link is not None:
            self.actions.append(Close(before.link))
            self._links.pop(before.link, None)
        term.followers[hello.replica] = Follower(
            link,
            hello.is_clean,
            heard_at_ms=now_ms,
            moved_at_ms=now_ms,
            vouched_at_ms=self._ticked_before_ms,
        )
        self._links[link] = hello.replica
        common = common_end(hello.epochs, hello.log_end, mine.epochs, mine.log_end)
        if common is None and hello.log_end == mine.log_start:
            common = mine.log_start
        self._send(
            link,
            Welcome(
                term.epoch,
                mine.epochs,
                mine.log_start,
                mine.log_end,
                max(term.replicated_offset, term.start_offset),
                common or 0,
                seed=common is None or common < mine.log_start,
            ),
        )

    def _answer_early(self, now_ms: int) -> None:
        early, self._early = self._early, {}
        for link, hello in early.items():
            self._handle_greeting(link, hello, now_ms)

    def _note_acknowledgement(self, link: int, ack: Ack, now_ms: int) -> None:
        term, replica = self.term, self._links.get(link)
        if not term or not replica or ack.epoch != term.epoch:
            return
        follower = term.followers[replica]
        if ack.acknowledgeable_offset > self.replica_state.log_end:
            self.actions.append(Close(link))
            self.closed(link, now_ms)
            return
        follower.heard_at_ms, follower.is_clean = now_ms, ack.is_clean
        follower.vouched_at_ms = self._ticked_before_ms
        if follower.acknowledgeable_offset < 0:
            self.actions.append(StreamLog(link, ack.acknowledgeable_offset, term.epoch))
        if (
            ack.acknowledgeable_offset > follower.acknowledgeable_offset
            or ack.acknowledgeable_offset == self.replica_state.log_end
        ):
            follower.moved_at_ms = now_ms
        follower.acknowledgeable_offset = max(
            follower.acknowledgeable_offset, ack.acknowledgeable_offset
        )
        self._confirm(term)

    # Time.

    def tick(self, now_ms: int) -> None:
        """Do the work that is due; call it several times in each interval of ``Timing``."""
        self._ticked_before_ms, self._ticked_ms = self._ticked_ms, now_ms
        if now_ms - self._read_ms >= self._read_interval_ms():
            self._read_ms = now_ms
            self.actions.append(Read())
        if self.term:
            self._tick_as_master(self.term, now_ms)
        elif self.role is ReplicaRole.CANDIDATE:
            if self._request and not self._is_asked and now_ms >= self._try_at_ms:
                self._ask(self._request, now_ms)
        elif not self.replica_state.is_fenced or self.replica_state.has_left:
            self._tick_as_follower(now_ms)

    def _read_interval_ms(self) -> int:
        is_settled = self.term is not None or self.following.link is not None
        return self._timing.read_interval_ms if is_settled else self._timing.seek_interval_ms

    def takes_sends(self, now_ms: int) -> bool:
        """Return whether new messages may be stored.

        They may be if this replica leads, and if they can be confirmed.
        """
        return self.leads_alone(now_ms) and self.term is not None and self.term.has_floor(now_ms)

    def leads_alone(self, now_ms: int) -> bool:
        """Return whether this replica leads and no other can have been elected meanwhile."""
        term = self.term
        return term is not None and (
            now_ms < self.lease_until_ms or term.all_vouch_within(self._timing.silence_ms, now_ms)
        )

    def misses_master(self, now_ms: int) -> bool:
        """Return whether this replica follows a master that has been silent for a moment."""
        following = self.following
        is_silent = now_ms - following.heard_at_ms >= self._timing.silence_ms
        return self.role is ReplicaRole.FOLLOWING and following.master is not None and is_silent

    def is_led(self, now_ms: int) -> bool:
        """Return whether this replica leads, or heard a master within the time of a lease."""
        led_at_ms = self.following.led_at_ms
        is_heard = led_at_ms is not None and now_ms - led_at_ms <= self._timing.lease_ms
        return self.term is not None or is_heard

    def may_be_replaced(self, now_ms: int) -> bool:
        """Return whether a required replica announces that it lost this master.

        Such a replica runs and could lead. A dead replica announces nothing.
        """
        if not self.term or not self.view:
            return False
        silent = self.term.unheard(self._timing.silence_ms, now_ms)
        return any(
            each.replica in silent and each.is_clean and each.misses_master
            for each in self.view.members.values()
        )

    def _is_to_give_up(self, now_ms: int) -> bool:
        """Return whether another replica should lead: this master has confirmed nothing for long.

        While it renews its lease, no other replica can be elected.
        """
        if not self.may_be_replaced(now_ms):
            self._stuck_since_ms = None
            return False
        if self._stuck_since_ms is None:
            self._stuck_since_ms = now_ms
        is_over = now_ms - self._stuck_since_ms >= self._give_up_ms
        # A renewal in flight might take the lease again.
        return is_over and not self._is_renewing and now_ms < self.lease_until_ms

    def _give_up(self, term: MasterTerm, now_ms: int) -> None:
        self._stuck_since_ms = None
        self._others_first_until_ms = now_ms + 2 * self._timing.silence_ms
        self._give_up_ms = min(2 * self._give_up_ms, self._timing.give_up_ms_max)
        self.lease_until_ms = now_ms
        self._resign(
            "it cannot reach the replicas that must confirm, and the engine knows that one of "
            "them runs",
            now_ms,
        )
        self.actions.append(Release(term.epoch))

    def _tick_as_master(self, term: MasterTerm, now_ms: int) -> None:
        if self._is_to_give_up(now_ms):
            self._give_up(term, now_ms)
            return
        if now_ms >= self._renew_at_ms and not self._is_renewing:
            self._renew_at_ms = now_ms + self._timing.renew_interval_ms
            self._is_renewing = True
            self.actions.append(Renew(term.version))
        if now_ms >= self._beat_at_ms:
            self._beat_at_ms = now_ms + self._timing.beat_interval_ms
            self._beat(term, now_ms)
        if now_ms >= self._try_at_ms and not term.is_asking and (state := term.proposal(now_ms)):
            term.ask(state)
            self.actions.append(Alter(state, term.version))

    def _beat(self, term: MasterTerm, now_ms: int) -> None:
        beat = Beat(term.epoch, term.replicated_offset)
        for follower in term.followers.values():
            if follower.link is None:
                continue
            if now_ms - follower.heard_at_ms >= self._timing.connection_ms:
                self.actions.append(Close(follower.link))
                self.closed(follower.link, now_ms)
            else:
                self._send(follower.link, beat)

    def _tick_as_follower(self, now_ms: int) -> None:
        view, following = self.view, self.following
        if not view:
            return
        if now_ms >= self._others_first_until_ms and self._campaigning.is_due(
            view, following.heard_at_ms, following.refusals, now_ms
        ):
            self._campaign(view)
        else:
            self._follow(view, now_ms)

    def _follow(self, view: SetView, now_ms: int) -> None:
        """Connect to the master, unless this replica cannot append the master's log now."""
        mine, state = self.replica_state, view.state
        is_needed = state is not None and mine.me in state.in_sync
        if state is not None and state.contradicts(mine.seen_state):
            self.following.forget_master()
            return
        if mine.is_fenced or (mine.is_away and not is_needed):
            return
        if state is None or state.master == mine.me:
            return
        if state.master.id == mine.me.id:  # That master has a store that no longer exists.
            self.following.forget_master()
            return
        self.following.follow(state.master, now_ms)

    # Roles.

    def _campaign(self, view: SetView) -> None:
        self.following.leave()
        known = view.state.epoch if view.state else 0
        held = max((each.last_epoch for each in view.members.values()), default=0)
        mine, larger = self.replica_state, self.following.larger_epoch
        self._epoch = max(known, held, mine.voted_epoch, larger) + 1
        self.role, self._request, self._is_asked = ReplicaRole.CANDIDATE, None, False
        self.replica_state.voted_epoch = self._epoch
        self.actions.append(StoreVotedEpoch(self._epoch))

    def _ask(self, request: Campaign, now_ms: int) -> None:
        self._request, self._is_asked = request, True
        self._asked_at_ms, self.lease_until_ms = now_ms, now_ms
        self.actions.append(request)

    def _take_office(self, view: SetView) -> None:
        assert view.state is not None
        mine = self.replica_state
        if mine.epochs and mine.epochs[-1].number == view.state.epoch:
            return
        self.following.leave()
        self.role, self._request = ReplicaRole.CANDIDATE, None
        if not mine.is_clean:
            self.actions.append(NoteClean())
            return
        # A log without any epoch belongs to this one from its beginning on.
        start_offset = mine.log_end if mine.epochs else mine.log_start
        mine.epochs = add_epoch(mine.epochs, view.state.epoch, start_offset)
        self.actions.append(EnterEpoch(mine.epochs))

    def _step_back(self, now_ms: int) -> None:
        self.role = ReplicaRole.FOLLOWING if self.view and self.view.state else ReplicaRole.JOINING
        self._request = None
        self._campaigning.over()
        self.following.heard_at_ms = now_ms
        self.actions.append(Read())
        self._answer_early(now_ms)

    def _outrun(self, voted_epoch: int, now_ms: int) -> None:
        self.following.larger_epoch = max(self.following.larger_epoch, voted_epoch)
        if self.term and voted_epoch > self.term.epoch:
            self._resign(f"a replica voted for epoch {voted_epoch}", now_ms)

    def _resign(self, why: str, now_ms: int) -> None:
        assert self.term
        self.actions.append(Resign(self.term.epoch, why))
        for link in self._links:
            self.actions.append(Close(link))
        self._links.clear()
        self.term = None
        self.following.led_at_ms = now_ms
        self._step_back(now_ms)

    def _confirm(self, term: MasterTerm) -> None:
        if term.confirm():
            self._give_up_ms = self._timing.give_up_ms
            self.replica_state.replicated_offset = term.replicated_offset
            self.actions.append(Confirm(term.replicated_offset))

    def _send(self, link: int, message: Message) -> None:
        self.actions.append(SendMessage(link, message))
