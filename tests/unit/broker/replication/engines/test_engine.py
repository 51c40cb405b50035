"""The engine in memory keeps what every engine keeps."""

import pytest

from rockhopper.broker.replication.election.replica_set import SwapOutcome
from rockhopper.broker.replication.engines.engine import MEMBER_LEASE_MS, MemoryEngine, MemorySet
from tests.support.engine_contract import FIRST, LEADER_A, EngineContract


class MemoryPair:
    """Two engines over one memory, and the clock that they share."""

    def __init__(self) -> None:
        self.now_ms = 1000.0
        self.memory = MemorySet(lease_ms=4000)
        self.one = MemoryEngine(self.memory, lambda: self.now_ms)
        self.two = MemoryEngine(self.memory, lambda: self.now_ms)

    async def lose_leases(self) -> None:
        """Let time pass."""
        self.now_ms += MEMBER_LEASE_MS


@pytest.fixture
def pair() -> MemoryPair:
    return MemoryPair()


class TestMemoryEngine(EngineContract):
    """All of it."""


async def test_a_lease_ends_by_its_callers_clock(pair: MemoryPair) -> None:
    await pair.one.campaign(FIRST, LEADER_A)
    pair.now_ms += 3999
    assert (await pair.two.read()).leader == LEADER_A
    assert await pair.one.renew(LEADER_A, 1) is SwapOutcome.DONE
    pair.now_ms += 3999
    assert (await pair.two.read()).leader == LEADER_A
    pair.now_ms += 1
    assert (await pair.two.read()).leader is None


async def test_a_watcher_that_left_is_told_nothing(pair: MemoryPair) -> None:
    views = pair.one.watch()
    await anext(views)
    assert len(pair.memory.watchers) == 1
    await views.aclose()
    assert pair.memory.watchers == []
