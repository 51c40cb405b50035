"""How the engine answers."""

from rockhopper.broker.replication.election.replica_set import SwapOutcome
from rockhopper.broker.replication.engines.engine import EngineError
from rockhopper.broker.replication.shipping.engine_health import (
    UNWRITABLE_PATIENCE_MS,
    EngineHealth,
)


class Clock:
    now_ms = 1000

    def __call__(self) -> int:
        return self.now_ms


def test_an_answer_ends_the_silence_and_an_unknown_outcome_does_not() -> None:
    clock = Clock()
    health = EngineHealth(clock)
    clock.now_ms = 5000
    health.record_outcome(SwapOutcome.UNKNOWN)
    assert (health.silent_ms, health.unknown_count) == (4000, 1)
    health.record_outcome(SwapOutcome.REFUSED)
    assert (health.silent_ms, health.unknown_count) == (0, 1)
    clock.now_ms = 6000
    health.answered()
    assert health.silent_ms == 0


def test_a_renewal_is_timed_if_it_was_answered() -> None:
    clock = Clock()
    health = EngineHealth(clock)
    clock.now_ms = 1030
    health.renewed(SwapOutcome.DONE, 1000)
    clock.now_ms = 3000
    health.renewed(SwapOutcome.UNKNOWN, 1000)
    assert health.renewal_ms == 30


def test_an_engine_that_is_silent_is_not_said_to_take_no_writes() -> None:
    clock = Clock()
    health = EngineHealth(clock)
    health.announced(EngineError("cannot be reached"))
    clock.now_ms += UNWRITABLE_PATIENCE_MS
    health.announced(EngineError("permission denied"))
    assert health.why_unwritable == ""
    health.answered()
    assert health.why_unwritable == "permission denied"
    health.announced(None)
    assert health.why_unwritable == ""
