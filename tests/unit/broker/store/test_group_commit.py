"""When a flush begins under SYNC_FLUSH: at once, or when a crowd of producers has sent again."""

import asyncio
from typing import cast

from rockhopper.broker.store.flush import SKIPPED_AFTER_A_VAIN_HOLD, FlushService, GroupCommit

LONG_S = 3600.0


class Flushes:
    """Counts the flushes that a group commit requests."""

    def __init__(self, hold_s: float = LONG_S) -> None:
        self.count = 0
        self.requested = asyncio.Event()
        self.group = GroupCommit(cast(FlushService, self), hold_s)

    def request(self) -> None:
        """Stand in for the flush service."""
        self.count += 1
        self.requested.set()


async def test_producers_alone_and_in_pairs_are_never_held() -> None:
    flushes = Flushes()
    for crowd in (0, 1, 2):
        flushes.group.flushed(crowd)
        flushes.group.written(0)
    assert flushes.count == 3


async def test_a_flush_waits_until_the_crowd_of_the_last_one_is_there() -> None:
    flushes = Flushes()
    flushes.group.flushed(100)
    flushes.group.written(30)
    for waiting_count in (31, 99):
        flushes.group.arrived(waiting_count)
        flushes.group.written(waiting_count)
    assert flushes.count == 0
    flushes.group.arrived(100)
    assert flushes.count == 1


async def test_what_comes_during_a_flush_is_not_flushed_before_its_end_is_known() -> None:
    flushes = Flushes()
    flushes.group.flushed(100)
    flushes.group.written(100)
    flushes.group.written(130)
    flushes.group.arrived(130)
    assert flushes.count == 1
    flushes.group.flushed(130)
    flushes.group.written(30)
    flushes.group.arrived(130)
    assert flushes.count == 2


async def test_a_crowd_that_does_not_come_is_not_awaited_again_for_a_while() -> None:
    flushes = Flushes(hold_s=0)
    flushes.group.flushed(100)
    flushes.group.written(1)
    assert flushes.count == 0
    await flushes.requested.wait()
    for _ in range(SKIPPED_AFTER_A_VAIN_HOLD):
        before = flushes.count
        flushes.group.written(1)
        assert flushes.count == before + 1
        flushes.group.flushed(100)
    before = flushes.count
    flushes.group.written(1)
    assert flushes.count == before
    flushes.group.close()


async def test_what_needs_the_disk_at_once_is_not_held() -> None:
    flushes = Flushes()
    flushes.group.flushed(100)
    flushes.group.written(1)
    flushes.group.flush()
    assert flushes.count == 1
    flushes.group.arrived(100)
    assert flushes.count == 1
