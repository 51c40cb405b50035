"""An engine of consensus that keeps its word about compare-and-swap, and about nothing else.

Leases end early or late, and reads may be answered from the past. A request may be lost on its way
in, or its answer on its way out, or it may be done seconds after whoever asked has given up.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random

from rockhopper.broker.replication.election.actions import Alter, Campaign
from rockhopper.broker.replication.election.replica_set import Leader, Outcome, View
from rockhopper.broker.replication.engines.engine import MemorySet


@dataclass
class FakeEngine(MemorySet):
    """One set."""

    random: Random = field(kw_only=True)
    past: deque[View] = field(default_factory=lambda: deque(maxlen=8))
    is_lying: bool = False
    behind: View | None = None
    """What every read is answered with, from the past."""

    def campaign(self, request: Campaign, leader: Leader, now_ms: float) -> Outcome:
        """Keep what there was before as well."""
        before = self.read(now_ms)
        outcome = super().campaign(request, leader, now_ms)
        if outcome is Outcome.DONE:
            self.past.append(before)
        return outcome

    def alter(self, request: Alter) -> Outcome:
        """Keep what there was before as well."""
        before = View(self.state, self.version, self.leader, dict(self.members))
        outcome = super().alter(request)
        if outcome is Outcome.DONE:
            self.past.append(before)
        return outcome

    def answer(self, now_ms: float) -> View:
        """What a read brings; from a member of the engine that is behind, if it lies."""
        if self.behind:
            return self.behind
        if self.past and self.is_lying and self.random.random() < 0.3:
            return self.random.choice(self.past)
        return self.read(now_ms)

    def _grant(self, now_ms: float) -> None:
        factor = self.random.choice((0.05, 0.5, 1, 3)) if self.is_lying else 1
        self.lease_until_ms = now_ms + self.lease_ms * factor
