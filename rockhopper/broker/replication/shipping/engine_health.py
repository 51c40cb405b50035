"""How the engine of consensus answers: what is shown of it, and what an alarm rests on."""

from collections.abc import Callable

from rockhopper.broker.replication.election.replica_set import Outcome
from rockhopper.broker.replication.engines.engine import EngineError

UNWRITABLE_PATIENCE_MS = 5000
"""So long after a failed write an engine still answers reads before it counts as read-only."""


class EngineHealth:
    """Of one replica's conversation with it."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._answered_at_ms = now_ms()
        self.renewal_ms = 0
        """What the last renewal of a lease took."""
        self.unknown_count = 0
        """Changes whose outcome it did not tell."""
        self._write_error = ""
        self._unwritable_since_ms: int | None = None

    @property
    def silent_ms(self) -> int:
        """How long it has not answered."""
        return self._now_ms() - self._answered_at_ms

    @property
    def why_unwritable(self) -> str:
        """Why it takes no writes, though it answers; blank if it does, or is silent altogether."""
        since_ms = self._unwritable_since_ms
        if since_ms is None or self._answered_at_ms - since_ms < UNWRITABLE_PATIENCE_MS:
            return ""
        return self._write_error

    def announced(self, error: EngineError | None) -> None:
        """Take note of a try to write, made now and then by every replica."""
        if error is None:
            self._write_error, self._unwritable_since_ms = "", None
            self.answered()
            return
        self._write_error = str(error)
        if self._unwritable_since_ms is None:
            self._unwritable_since_ms = self._now_ms()

    def answered(self) -> None:
        """Take note that it did, just now."""
        self._answered_at_ms = self._now_ms()

    def told(self, outcome: Outcome) -> None:
        """Take note of what became of a change."""
        if outcome is Outcome.UNKNOWN:
            self.unknown_count += 1
        else:
            self.answered()

    def renewed(self, outcome: Outcome, asked_at_ms: int) -> None:
        """Take note of a renewal."""
        self.told(outcome)
        if outcome is not Outcome.UNKNOWN:
            self.renewal_ms = self._now_ms() - asked_at_ms
