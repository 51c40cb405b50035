"""A consensus engine that is reliable only in its compare-and-swap.

Leases end early or late, and reads may return old data. A request may be lost before the engine
gets it, its answer may be lost, or the engine may carry it out seconds after the caller has given
up.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random

from rockhopper.broker.replication.election.actions import Alter, Campaign
from rockhopper.broker.replication.election.replica_set import Leader, SetView, SwapOutcome
from rockhopper.broker.replication.engines.engine import MemorySet


@dataclass
class FakeEngine(MemorySet):
    """The engine of one set."""

    random: Random = field(kw_only=True)
    past: deque[SetView] = field(default_factory=lambda: deque(maxlen=8))
    is_lying: bool = False
    behind: SetView | None = None
    """The old data that answers every read, if set."""

    def campaign(self, request: Campaign, leader: Leader, now_ms: float) -> SwapOutcome:
        """Campaign, and remember the previous view."""
        before = self.read(now_ms)
        outcome = super().campaign(request, leader, now_ms)
        if outcome is SwapOutcome.DONE:
            self.past.append(before)
        return outcome

    def alter(self, request: Alter) -> SwapOutcome:
        """Alter the set, and remember the previous view."""
        before = SetView(self.state, self.version, self.leader, dict(self.members))
        outcome = super().alter(request)
        if outcome is SwapOutcome.DONE:
            self.past.append(before)
        return outcome

    def answer(self, now_ms: float) -> SetView:
        """Return the view that a read gets; an old view at times, if the engine is lying."""
        if self.behind:
            return self.behind
        if self.past and self.is_lying and self.random.random() < 0.3:
            return self.random.choice(self.past)
        return self.read(now_ms)

    def _grant(self, now_ms: float) -> None:
        factor = self.random.choice((0.05, 0.5, 1, 3)) if self.is_lying else 1
        self.lease_until_ms = now_ms + self.lease_ms * factor
