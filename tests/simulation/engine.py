"""An engine of consensus that keeps its word about compare-and-swap, and about nothing else.

Leases end early or late, and reads may be answered from the past. A request may be lost on its way
in, or its answer on its way out, or it may be done seconds after whoever asked has given up.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random

from rockhopper.broker.ha.actions import Alter, Campaign
from rockhopper.broker.ha.replica_set import (
    Announcement,
    Leader,
    Outcome,
    Replica,
    SetState,
    View,
)


@dataclass(slots=True)
class FakeEngine:
    """One set."""

    random: Random
    lease_ms: int
    state: SetState | None = None
    version: int = 0
    leader: Leader | None = None
    lease_until_ms: float = 0.0
    members: dict[int, Announcement] = field(default_factory=dict)
    starts: dict[Replica, int] = field(default_factory=dict)
    past: deque[View] = field(default_factory=lambda: deque(maxlen=8))
    is_lying: bool = False
    behind: View | None = None
    """What every read is answered with, from the past."""

    def read(self, now_ms: float) -> View:
        """What there is now, the lease's end included."""
        if self.leader and now_ms >= self.lease_until_ms:
            self.leader = None
        return View(self.state, self.version, self.leader, dict(self.members))

    def campaign(self, request: Campaign, leader: Leader, now_ms: float) -> Outcome:
        """Do it if state and leader are what they were taken for."""
        held = self.read(now_ms).leader
        if request.version != self.version or (held and held != request.displaced):
            return Outcome.REFUSED
        self.past.append(self.read(now_ms))
        self.state, self.leader = request.state, leader
        self.version += 1
        self._grant(now_ms)
        return Outcome.DONE

    def alter(self, request: Alter) -> Outcome:
        """Do it if the state is what it was taken for."""
        if request.version != self.version:
            return Outcome.REFUSED
        self.past.append(View(self.state, self.version, self.leader, dict(self.members)))
        self.state = request.state
        self.version += 1
        return Outcome.DONE

    def renew(self, leader: Leader, version: int, now_ms: float) -> Outcome:
        """Renew, or give the lease again if nobody was elected."""
        held = self.read(now_ms).leader
        if held != leader and (held or version != self.version):
            return Outcome.REFUSED
        self.leader = leader
        self._grant(now_ms)
        return Outcome.DONE

    def answer(self, now_ms: float) -> View:
        """What a read brings; from a member of the engine that is behind, if it lies."""
        if self.behind:
            return self.behind
        if self.past and self.is_lying and self.random.random() < 0.3:
            return self.random.choice(self.past)
        return self.read(now_ms)

    def count_start(self, replica: Replica, count: int) -> bool:
        """Whether no later start of that store is known."""
        is_later = self.starts.get(replica, 0) < count
        if is_later:
            self.starts[replica] = count
        return is_later

    def _grant(self, now_ms: float) -> None:
        factor = self.random.choice((0.05, 0.5, 1, 3)) if self.is_lying else 1
        self.lease_until_ms = now_ms + self.lease_ms * factor
