"""The contract of every consensus engine; the engines' test modules run all of it.

A subclass named ``Test...`` provides the fixture ``pair``.
"""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from rockhopper.broker.replication.election import actions
from rockhopper.broker.replication.election.actions import Alter, Campaign
from rockhopper.broker.replication.election.machine import Machine, ReplicaRole
from rockhopper.broker.replication.election.replica_set import (
    Announcement,
    Leader,
    Replica,
    SeenState,
    SetState,
    SetView,
    SwapOutcome,
    Term,
)
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing
from rockhopper.broker.replication.engines.engine import Engine

A, B = Replica(1, "a1b2"), Replica(2, "c3d4")
LEADER_A, LEADER_B = Leader(1, "first", 1), Leader(2, "second", 2)
SIGHT = SeenState(7, 11)
STATE = SetState(1, A, frozenset({A, B}), 1, (Term(1, A, "first start"),), (SIGHT,))
FIRST = Campaign(STATE, 0, None)
TIMING = Timing()
MEMBER = Announcement(B, "second", "h2:10911", "h2:10912", 4, 1 << 40, False, -3, SIGHT)


class Pair(Protocol):
    """Two replicas' engines of one unused set."""

    one: Engine
    two: Engine

    async def lose_leases(self) -> None:
        """Return when all leases have expired."""


async def won(pair: Pair, request: Campaign = FIRST, leader: Leader = LEADER_A) -> SetView:
    """Make the first replica win the election."""
    outcome, view = await pair.one.campaign(request, leader)
    assert outcome is SwapOutcome.DONE
    assert view is not None
    return view


def over(view: SetView) -> Campaign:
    """Return the second replica's request to displace the leader of *view*."""
    assert view.state
    state = view.state.elected(B, view.state.epoch + 1, "displaced", without_old=True)
    return Campaign(state, view.version, view.leader)


class EngineContract:
    """The tests."""

    async def test_a_set_that_nobody_has_made_is_empty(self, pair: Pair) -> None:
        assert await pair.one.read() == SetView(None, 0, None, {})

    async def test_a_campaign_makes_state_and_lease_together(self, pair: Pair) -> None:
        view = await won(pair)
        assert (view.state, view.leader) == (STATE, LEADER_A)
        assert view.version > 0
        assert await pair.two.read() == view

    async def test_of_two_campaigns_at_once_one_wins(self, pair: Pair) -> None:
        rival = Campaign(replace(STATE, master=B), 0, None)
        outcomes = await asyncio.gather(
            pair.one.campaign(FIRST, LEADER_A), pair.two.campaign(rival, LEADER_B)
        )
        assert {outcome for outcome, _ in outcomes} == {SwapOutcome.DONE, SwapOutcome.REFUSED}
        view = next(view for outcome, view in outcomes if outcome is SwapOutcome.DONE)
        assert await pair.one.read() == view

    async def test_a_leader_is_displaced_only_by_name(self, pair: Pair) -> None:
        view = await won(pair)
        assert await pair.two.read() == view
        asked = over(view)
        for displaced in (None, replace(LEADER_A, incarnation="an earlier one")):
            outcome, _ = await pair.two.campaign(replace(asked, displaced=displaced), LEADER_B)
            assert outcome is SwapOutcome.REFUSED
        outcome, after = await pair.two.campaign(asked, LEADER_B)
        assert outcome is SwapOutcome.DONE
        assert after
        assert (after.state, after.leader) == (asked.state, LEADER_B)
        assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.REFUSED

    async def test_whom_a_candidate_displaces_may_have_gone_already(self, pair: Pair) -> None:
        view = await won(pair)
        await pair.two.read()
        await pair.one.resign(LEADER_A)
        outcome, _ = await pair.two.campaign(over(view), LEADER_B)
        assert outcome is SwapOutcome.DONE

    async def test_an_alteration_is_done_once_for_each_version(self, pair: Pair) -> None:
        view = await won(pair)
        smaller = replace(STATE, in_sync=frozenset({A}))
        outcome, version = await pair.one.alter(Alter(smaller, view.version))
        assert outcome is SwapOutcome.DONE
        assert version > view.version
        assert await pair.one.alter(Alter(STATE, view.version)) == (SwapOutcome.REFUSED, 0)
        assert await pair.two.read() == SetView(smaller, version, LEADER_A)
        outcome, _ = await pair.two.campaign(over(view), LEADER_B)
        assert outcome is SwapOutcome.REFUSED

    async def test_a_lease_is_renewed_by_who_has_it(self, pair: Pair) -> None:
        view = await won(pair)
        assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.DONE
        assert await pair.two.renew(LEADER_B, view.version) is SwapOutcome.REFUSED
        assert await pair.two.read() == view

    async def test_a_lost_lease_is_given_again_while_nobody_was_elected(self, pair: Pair) -> None:
        view = await won(pair)
        await pair.lose_leases()
        assert await pair.two.read() == replace(view, leader=None)
        assert await pair.one.renew(LEADER_A, view.version + 1) is SwapOutcome.REFUSED
        assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.DONE
        assert await pair.two.read() == view

    async def test_a_lost_lease_is_not_given_to_who_was_replaced(self, pair: Pair) -> None:
        view = await won(pair)
        await pair.lose_leases()
        outcome, after = await pair.two.campaign(replace(over(view), displaced=None), LEADER_B)
        assert outcome is SwapOutcome.DONE
        assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.REFUSED
        assert await pair.one.read() == after

    async def test_members_are_announced_and_forgotten(self, pair: Pair) -> None:
        await pair.two.announce(replace(MEMBER, address="an earlier one"))
        await pair.two.announce(MEMBER)
        assert (await pair.one.read()).members == {2: MEMBER}
        await pair.lose_leases()
        assert (await pair.one.read()).members == {}
        await pair.two.announce(MEMBER)
        assert (await pair.one.read()).members == {2: MEMBER}

    async def test_a_member_withdraws_what_it_has_announced(self, pair: Pair) -> None:
        await pair.two.withdraw()
        await pair.two.announce(MEMBER)
        async with aclosing(pair.one.watch()) as views:
            assert (await anext(views)).members == {2: MEMBER}
            await pair.two.withdraw()
            assert (await anext(views)).members == {}
        await pair.two.withdraw()
        await pair.one.announce(MEMBER)
        assert (await pair.two.read()).members == {2: MEMBER}

    async def test_a_member_withdraws_nothing_of_another_process(self, pair: Pair) -> None:
        later = replace(MEMBER, incarnation="a later one")
        await pair.two.announce(MEMBER)
        await pair.one.announce(later)
        await pair.two.withdraw()
        assert (await pair.two.read()).members == {2: later}
        await pair.one.withdraw()
        assert (await pair.two.read()).members == {}

    async def test_starts_are_counted_for_each_store(self, pair: Pair) -> None:
        assert await pair.one.count_start(A, 1)
        assert await pair.one.count_start(A, 4)
        assert not await pair.two.count_start(A, 4)
        assert not await pair.one.count_start(A, 3)
        assert await pair.one.count_start(Replica(1, "another"), 1)
        assert not await pair.one.count_start(A, 4 - 1)
        assert await pair.two.read() == SetView(None, 0, None)

    async def test_who_resigns_gives_back_no_lease_but_his(self, pair: Pair) -> None:
        view = await won(pair)
        await pair.two.resign(LEADER_B)
        assert await pair.two.read() == view
        await pair.one.resign(LEADER_A)
        assert await pair.two.read() == replace(view, leader=None)

    async def test_a_watch_tells_what_there_is_and_what_changes(self, pair: Pair) -> None:
        async with aclosing(pair.two.watch()) as views:
            assert await anext(views) == SetView(None, 0, None)
            view = await won(pair)
            assert await anext(views) == view
            await pair.two.announce(MEMBER)
            assert await anext(views) == replace(view, members={2: MEMBER})
            await pair.one.resign(LEADER_A)
            assert (await anext(views)).leader is None

    async def test_a_watch_ends_with_its_engine(self, pair: Pair) -> None:
        views = pair.two.watch()
        await anext(views)
        last = asyncio.ensure_future(anext(views, None))
        await asyncio.sleep(0)
        await pair.two.close()
        assert await last is None

    async def test_a_machine_is_elected_and_replaced(self, pair: Pair) -> None:
        first, second = Played(A, pair.one), Played(B, pair.two)
        first.machine.saw(await pair.one.read(), 0)
        await first.play(TIMING.first_start_ms)
        await first.play(TIMING.first_start_ms + 100)
        assert first.machine.role is ReplicaRole.LEADING
        assert first.machine.takes_sends(first.machine.lease_until_ms - 1)

        view = await pair.one.read()
        assert view.state
        both = replace(view.state, in_sync=frozenset({A, B}))
        assert (await pair.one.alter(Alter(both, view.version)))[0] is SwapOutcome.DONE
        await pair.one.resign(Leader(A.id, first.incarnation, both.epoch))
        second.machine.saw(await pair.two.read(), 20_000)
        await second.play(20_000)
        await second.play(20_500)
        assert second.machine.role is ReplicaRole.LEADING
        first.machine.saw(await pair.one.read(), 20_500)
        assert first.machine.term is None
        assert first.machine.view == second.machine.view


@dataclass
class Played:
    """A machine whose disk completes every request at once, and which has no network."""

    me: Replica
    engine: Engine

    def __post_init__(self) -> None:
        """Start it, with an empty log."""
        self.incarnation = f"start of {self.me.id}"
        replica_state = ReplicaState(self.me, self.incarnation)
        self.machine = Machine(replica_state, TIMING, min_in_sync=1, now_ms=0, spread=lambda: -1)

    async def play(self, now_ms: int) -> None:
        """Tick, and perform the requested actions until none are left."""
        self.machine.tick(now_ms)
        while self.machine.actions:
            await self._do(self.machine.actions.pop(0), now_ms)

    async def _do(self, action: actions.Action, now_ms: int) -> None:
        machine = self.machine
        match action:
            case actions.Read():
                machine.saw(await self.engine.read(), now_ms)
            case actions.StoreVotedEpoch(epoch):
                machine.voted_epoch_stored(epoch, now_ms)
            case actions.EnterEpoch():
                machine.entered(now_ms)
            case actions.Campaign(state):
                leader = Leader(self.me.id, self.incarnation, state.epoch)
                machine.campaigned(*await self.engine.campaign(action, leader), now_ms)
            case actions.Alter():
                machine.altered(*await self.engine.alter(action), now_ms)
            case actions.Renew(version):
                assert machine.term
                leader = Leader(self.me.id, self.incarnation, machine.term.epoch)
                machine.renewed(await self.engine.renew(leader, version), now_ms)
