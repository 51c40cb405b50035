"""The machine's requests to the engine, and the last ones of a process that ends."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from rockhopper.broker.replication.election import actions
from rockhopper.broker.replication.election.replica_disk import ReplicaDisk
from rockhopper.broker.replication.election.replica_set import (
    Announcement,
    Leader,
    SetState,
    SwapOutcome,
)
from rockhopper.broker.replication.engines.engine import EngineError, MemoryEngine, MemorySet
from rockhopper.broker.replication.shipping import engine_actions
from rockhopper.broker.replication.shipping.engine_actions import EngineAction, EngineActions
from rockhopper.broker.replication.shipping.engine_health import EngineHealth
from rockhopper.broker.replication.shipping.set_presence import SetPresence
from tests.support.hang import HANG_S
from tests.support.replica_rig import MemoryLog


class Rig:
    """The requests of one replica, a set in memory, and a machine that records the answers."""

    def __init__(self, root: Path) -> None:
        self.now_ms = 100
        self.memory = MemorySet(600)
        disk = ReplicaDisk(root)
        disk.count_start("boot", 0, may_have_lost=False)
        self.health = EngineHealth(lambda: self.now_ms)
        engine = MemoryEngine(self.memory, lambda: self.now_ms)
        self.presence = SetPresence(1, disk, MemoryLog(), engine, self.health, lambda: self.now_ms)
        self.actions = EngineActions(engine, self.presence, self.health, lambda: self.now_ms)
        self.answers: list[tuple[Any, ...]] = []
        self.term: Any = SimpleNamespace(epoch=1)
        me = self.presence.me
        self.state = SetState(1, me, frozenset({me}), 1)

    async def perform(self, action: EngineAction) -> tuple[Any, ...]:
        """Return the calls of the machine."""

        def note(name: str) -> Any:
            return lambda *answer: self.answers.append((name, *answer))

        machine: Any = SimpleNamespace(
            term=self.term,
            **{name: note(name) for name in ("campaigned", "altered", "renewed", "saw")},
        )
        await self.actions.perform(action, machine)
        return self.answers.pop() if self.answers else ()

    async def lead(self) -> "Rig":
        assert (await self.perform(actions.Campaign(self.state, 0, None)))[1] is SwapOutcome.DONE
        return self


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "ha")


async def test_a_campaign_takes_the_lease_for_this_process(rig: Rig) -> None:
    name, outcome, view, now_ms = await rig.perform(actions.Campaign(rig.state, 0, None))
    assert (name, outcome, now_ms) == ("campaigned", SwapOutcome.DONE, 100)
    assert view.leader == rig.memory.leader == Leader(1, rig.presence.incarnation, 1)
    outcome, view = (await rig.perform(actions.Campaign(rig.state, 0, None)))[1:3]
    assert (outcome, view) == (SwapOutcome.REFUSED, None)


async def test_an_alteration_reports_the_version_that_it_made(rig: Rig) -> None:
    await rig.lead()
    assert await rig.perform(actions.Alter(rig.state, 1)) == ("altered", SwapOutcome.DONE, 2, 100)
    assert await rig.perform(actions.Alter(rig.state, 1)) == (
        "altered",
        SwapOutcome.REFUSED,
        0,
        100,
    )


async def test_a_renewal_counts_from_its_request(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slowly(_engine: MemoryEngine, _leader: Leader, _version: int) -> SwapOutcome:
        rig.now_ms += 70
        return SwapOutcome.DONE

    monkeypatch.setattr(MemoryEngine, "renew", slowly)
    assert await rig.perform(actions.Renew(1)) == ("renewed", SwapOutcome.DONE, 100)
    assert rig.health.renewal_ms == 70


async def test_a_machine_that_leads_no_more_renews_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(MemoryEngine, "renew")
    rig.term = None
    assert await rig.perform(actions.Renew(1)) == ("renewed", SwapOutcome.REFUSED, 100)


async def test_an_unknown_outcome_is_counted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.memory, "alter", lambda _request: SwapOutcome.UNKNOWN)
    assert (await rig.perform(actions.Alter(rig.state, 1)))[1] is SwapOutcome.UNKNOWN
    assert rig.health.unknown_count == 1


async def test_a_view_is_shown_unless_another_process_has_the_id(rig: Rig) -> None:
    name, view, now_ms = await rig.perform(actions.Read())
    assert (name, view.version, now_ms) == ("saw", 0, 100)
    rig.presence.second_because = "another process"
    assert await rig.perform(actions.Read()) == ()


async def test_an_engine_that_does_not_answer_a_read_is_logged(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise EngineError("away")

    monkeypatch.setattr(MemoryEngine, "read", fail)
    monkeypatch.setattr(MemoryEngine, "resign", fail)
    with structlog.testing.capture_logs() as logs:
        assert await rig.perform(actions.Read()) == ()
        await rig.actions.release(1)
    assert [(each["event"], each["reason"]) for each in logs] == [
        ("the engine does not answer", "away"),
        ("the lease could not be released: it will expire", "away"),
    ]


async def test_a_process_that_ends_releases_the_lease_and_withdraws(rig: Rig) -> None:
    await rig.lead()
    await rig.presence.announce(Announcement(rig.presence.me, rig.presence.incarnation))
    assert await rig.actions.resign_finally(1)
    assert rig.memory.leader is None
    await rig.actions.close(withdraws=False)
    assert 1 in rig.memory.members
    await rig.actions.close(withdraws=True)
    assert rig.memory.members == {}


async def test_an_engine_that_does_not_answer_does_not_delay_the_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(engine_actions, "FAREWELL_TIMEOUT_S", 0.01)
    monkeypatch.setattr(MemoryEngine, "resign", hang)
    monkeypatch.setattr(MemoryEngine, "withdraw", hang)
    async with asyncio.timeout(HANG_S):
        assert not await rig.actions.resign_finally(1)
        await rig.actions.close(withdraws=True)
