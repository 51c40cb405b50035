"""Whether and how fast the consensus engine answers: input to the metrics and the alarms."""

from collections.abc import Callable

from rockhopper.broker.replication.election.replica_set import SwapOutcome
from rockhopper.broker.replication.engines.engine import EngineError

UNWRITABLE_PATIENCE_MS = 5000
"""How long after a failed write an engine may still answer reads before it counts as read-only."""


class EngineHealth:
    """The health of the engine from one replica's view."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._answered_at_ms = now_ms()
        self.renewal_ms = 0
        """The duration of the last lease renewal."""
        self.unknown_count = 0
        """The number of changes whose outcome is unknown."""
        self._write_error = ""
        self._unwritable_since_ms: int | None = None

    @property
    def silent_ms(self) -> int:
        """The time since the last answer."""
        return self._now_ms() - self._answered_at_ms

    @property
    def why_unwritable(self) -> str:
        """Why the engine refuses writes although it answers.

        The reason is blank if the engine accepts them, or does not answer.
        """
        since_ms = self._unwritable_since_ms
        if since_ms is None or self._answered_at_ms - since_ms < UNWRITABLE_PATIENCE_MS:
            return ""
        return self._write_error

    def announced(self, error: EngineError | None) -> None:
        """Record the result of a write attempt; every replica makes one from time to time."""
        if error is None:
            self._write_error, self._unwritable_since_ms = "", None
            self.answered()
            return
        self._write_error = str(error)
        if self._unwritable_since_ms is None:
            self._unwritable_since_ms = self._now_ms()

    def answered(self) -> None:
        """Record that the engine has just answered."""
        self._answered_at_ms = self._now_ms()

    def record_outcome(self, outcome: SwapOutcome) -> None:
        """Record the outcome of a change."""
        if outcome is SwapOutcome.UNKNOWN:
            self.unknown_count += 1
        else:
            self.answered()

    def renewed(self, outcome: SwapOutcome, asked_at_ms: int) -> None:
        """Record the outcome of a lease renewal."""
        self.record_outcome(outcome)
        if outcome is not SwapOutcome.UNKNOWN:
            self.renewal_ms = self._now_ms() - asked_at_ms
