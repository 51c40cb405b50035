"""An engine over a record in memory: swaps that are lost, refused or tried again."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.replication.election.actions import Alter
from rockhopper.broker.replication.election.replica_set import SwapOutcome
from rockhopper.broker.replication.engines.consensus.record_engine import (
    SWAP_TRIES_MAX,
    RecordEngine,
)
from rockhopper.broker.replication.engines.consensus.set_record import (
    MemberRecord,
    SetRecord,
    Stored,
)
from rockhopper.broker.replication.engines.engine import MEMBER_LEASE_MS, Engine, EngineError
from tests.support.engine_contract import (
    FIRST,
    LEADER_A,
    LEADER_B,
    MEMBER,
    STATE,
    A,
    EngineContract,
    over,
    won,
)


class MemoryKeeper:
    """A record that keepers share; others change it, and answers are lost, when a test says so."""

    name = "the record"

    def __init__(self, shared: "MemoryKeeper | None" = None) -> None:
        self.kept: list[Stored] = shared.kept if shared else [Stored(SetRecord(), None)]
        self.changed: asyncio.Event = shared.changed if shared else asyncio.Event()
        self.conflicts = 0
        self.is_answer_lost = False
        self.failures = 0
        self.is_closed = False

    @property
    def stored(self) -> Stored:
        return self.kept[0]

    def put(self, stored: Stored) -> None:
        """Replace all of it."""
        self.kept[0] = stored
        self.changed.set()

    async def load(self) -> Stored:
        if self.failures:
            self.failures -= 1
            raise EngineError("it is away")
        return self.stored

    async def swap(self, record: SetRecord, tag: str | None) -> str | None:
        if self.conflicts:
            self.conflicts -= 1
            return None
        if tag != self.stored.tag:
            return None
        tag = str(int(tag or 0) + 1)
        self.put(replace(self.stored, record=record, tag=tag))
        if self.is_answer_lost:
            raise EngineError("the answer was lost")
        return tag

    async def store_member(self, member: MemberRecord) -> None:
        members = {**self.stored.members, member.announcement.replica.id: member}
        self.put(replace(self.stored, members=members))

    async def remove_member(self, member: MemberRecord) -> None:
        number = member.announcement.replica.id
        held = self.stored.members.get(number)
        if held and held.is_of_same_process(member):
            members = {each: kept for each, kept in self.stored.members.items() if each != number}
            self.put(replace(self.stored, members=members))

    async def snapshots(self) -> AsyncGenerator[Stored, None]:
        while not self.is_closed:
            self.changed.clear()
            yield await self.load()
            await self.changed.wait()

    async def close(self) -> None:
        self.is_closed = True
        self.changed.set()


class RecordPair:
    """Two engines over one record."""

    def __init__(self) -> None:
        self.now_ms = 1000.0
        self.keeper = MemoryKeeper()
        self.one: Engine = self.engine(self.keeper)
        self.two: Engine = self.engine(MemoryKeeper(self.keeper))

    def engine(self, keeper: MemoryKeeper) -> RecordEngine:
        """Another one."""
        return RecordEngine(keeper, now_ms=lambda: self.now_ms, retry_ms=1)

    async def lose_leases(self) -> None:
        """Let time pass for those who have seen them."""
        for engine in (self.one, self.two):
            await engine.read()
        self.now_ms += MEMBER_LEASE_MS


@pytest.fixture
async def pair() -> RecordPair:
    return RecordPair()


class TestRecordEngine(EngineContract):
    """All of it."""


async def test_a_swap_is_tried_again_when_something_else_changed(pair: RecordPair) -> None:
    view = await won(pair)
    pair.keeper.conflicts = SWAP_TRIES_MAX - 1
    assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.DONE
    pair.keeper.conflicts = SWAP_TRIES_MAX
    with capture_logs() as told:
        assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.UNKNOWN
    assert "by other processes" in told[0]["reason"]


async def test_a_swap_whose_answer_is_lost_is_unknown_and_not_repeated(pair: RecordPair) -> None:
    pair.keeper.is_answer_lost = True
    assert await pair.one.campaign(FIRST, LEADER_A) == (SwapOutcome.UNKNOWN, None)
    assert pair.keeper.stored.tag == "1"
    view = await pair.two.read()
    assert view.leader == LEADER_A
    assert await pair.one.alter(Alter(STATE, view.version)) == (SwapOutcome.UNKNOWN, 0)
    assert pair.keeper.stored.tag == "2"


async def test_a_record_that_went_back_is_refused(pair: RecordPair) -> None:
    view = await won(pair)
    before = pair.keeper.stored
    _, version = await pair.one.alter(Alter(replace(STATE, in_sync=frozenset({A})), view.version))
    pair.keeper.put(before)
    with pytest.raises(EngineError, match="restored from a backup"):
        await pair.one.read()
    assert await pair.one.alter(Alter(STATE, version)) == (SwapOutcome.UNKNOWN, 0)
    assert await pair.two.read() == view
    assert (await pair.two.alter(Alter(STATE, view.version)))[1] != version


async def test_a_renewal_keeps_the_lease_for_who_looks(pair: RecordPair) -> None:
    view = await won(pair)
    for _ in range(3):
        await pair.two.read()
        pair.now_ms += 3999
        assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.DONE
        assert (await pair.two.read()).leader == LEADER_A
    pair.now_ms += 4000
    assert (await pair.two.read()).leader is None


async def test_who_is_not_designated_is_refused(pair: RecordPair) -> None:
    view = await won(pair)
    stored = pair.keeper.stored
    pair.keeper.put(replace(stored, record=stored.record.designating(1), tag="9"))
    assert (await pair.two.read()).designated == 1
    assert await pair.two.campaign(over(view), LEADER_B) == (SwapOutcome.REFUSED, None)
    assert (await pair.one.campaign(over(view), LEADER_A))[0] is SwapOutcome.DONE


async def test_where_an_operator_decides_nobody_leads_at_first(pair: RecordPair) -> None:
    engine = RecordEngine(pair.keeper, now_ms=lambda: 0.0, is_by_operator=True)
    assert (await engine.read()).designated == 0
    assert await engine.campaign(FIRST, LEADER_A) == (SwapOutcome.REFUSED, None)


async def test_a_watch_goes_on_after_a_failure_and_passes_over_beats(pair: RecordPair) -> None:
    view = await won(pair)
    pair.keeper.failures = 1
    async with aclosing(pair.one.watch()) as views:
        with capture_logs() as told:
            assert await anext(views) == view
        assert told[0]["reason"] == "it is away"
        following = asyncio.ensure_future(anext(views))
        await pair.one.renew(LEADER_A, view.version)
        await asyncio.sleep(0)
        assert not following.done()
        await pair.two.announce(MEMBER)
        assert (await following).members == {2: MEMBER}
