"""A replica's entry in the engine: who has the id, old copies of a disk, and announcements."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from rockhopper.broker.replication.election.replica_disk import ReplicaDisk
from rockhopper.broker.replication.election.replica_set import Announcement, Leader, SetView
from rockhopper.broker.replication.engines.engine import (
    ENDED_AFTER_MS,
    EngineError,
    MemoryEngine,
    MemorySet,
)
from rockhopper.broker.replication.shipping import set_presence
from rockhopper.broker.replication.shipping.engine_health import EngineHealth
from rockhopper.broker.replication.shipping.set_presence import Incarnation, SetPresence
from tests.support.replica_rig import MemoryLog
from tests.support.turns import until

OURS = Incarnation(1, "abcd0123", 7, "0000beef", "11112222")


class Rig:
    """A replica on a disk of its own, and the set that the engine stores."""

    def __init__(self, root: Path) -> None:
        self.now_ms = 0
        self.memory = MemorySet(600)
        self.log = MemoryLog(data=bytearray(100))
        self.disk = ReplicaDisk(root)
        self.disk.count_start("boot", 0, may_have_lost=False)
        self.health = EngineHealth(lambda: self.now_ms)
        self.presence = self.presence_on(self.disk)

    def presence_on(self, disk: ReplicaDisk) -> SetPresence:
        engine = MemoryEngine(self.memory, lambda: self.now_ms)
        return SetPresence(1, disk, self.log, engine, self.health, lambda: self.now_ms)

    def announcement(self, incarnation: str = "", log_end: int = 100) -> Announcement:
        incarnation = incarnation or self.presence.incarnation
        return Announcement(self.presence.me, incarnation, log_end=log_end)

    def be_another(self, log_end: int = 100) -> None:
        """Announce another process under the replica's id."""
        self.memory.announce(self.announcement("another", log_end), self.now_ms)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(set_presence, "ENGINE_PAUSE_S", 0)
    return Rig(tmp_path / "ha")


async def test_an_id_that_nobody_has_is_claimed_at_once(rig: Rig) -> None:
    assert not await rig.presence.claim()
    assert rig.presence.seen_view == SetView(None, 0, None)
    assert rig.presence.second_because == ""
    assert rig.presence.leader(7) == Leader(1, rig.presence.incarnation, 7)


async def test_an_earlier_start_on_the_same_disk_does_not_count(rig: Rig, tmp_path: Path) -> None:
    rig.memory.announce(rig.announcement(), 0)
    disk = ReplicaDisk(tmp_path / "ha")
    disk.count_start("boot", 0, may_have_lost=False)
    assert not await rig.presence_on(disk).claim()


@pytest.mark.parametrize(
    ("log_end", "waited_ms", "is_copy"),
    [(100, 0, False), (101, 0, True), (100, ENDED_AFTER_MS + 1, True)],
)
async def test_a_process_waits_until_another_with_its_id_is_gone(
    rig: Rig, log_end: int, waited_ms: int, is_copy: bool
) -> None:
    rig.be_another(log_end)
    claiming = asyncio.create_task(rig.presence.claim())
    await until(lambda: "another" in rig.presence.second_because)
    rig.now_ms = waited_ms
    del rig.memory.members[1]
    assert await claiming == is_copy
    assert rig.presence.second_because == ""


async def test_a_leader_with_its_id_is_another_process_too(rig: Rig) -> None:
    rig.memory.leader, rig.memory.lease_until_ms = Leader(1, "another", 3), 10
    claiming = asyncio.create_task(rig.presence.claim())
    await until(lambda: "another" in rig.presence.second_because)
    rig.now_ms = 10
    assert not await claiming


async def test_an_engine_that_does_not_answer_is_asked_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([EngineError("away")] * 3)
    read = MemoryEngine.read

    async def reading(engine: MemoryEngine) -> SetView:
        for error in answers:
            raise error
        return await read(engine)

    monkeypatch.setattr(MemoryEngine, "read", reading)
    assert not await rig.presence.claim()
    assert next(answers, None) is None


async def test_a_start_that_is_not_the_latest_is_known(rig: Rig) -> None:
    assert await rig.presence.count_start()
    rig.memory.starts[rig.presence.me] = 5
    assert not await rig.presence.count_start()


async def test_an_announcement_is_repeated_only_when_more_than_the_log_changed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []
    announce = MemoryEngine.announce

    async def announcing(engine: MemoryEngine, member: Announcement) -> None:
        ends.append(member.log_end)
        await announce(engine, member)

    monkeypatch.setattr(MemoryEngine, "announce", announcing)
    await rig.presence.announce(rig.announcement(log_end=1))
    await rig.presence.announce(rig.announcement(log_end=2))
    assert ends == [1]
    await rig.presence.announce(replace(rig.announcement(log_end=3), is_clean=False))
    assert ends == [1, 3]
    await rig.presence.claim()
    await rig.presence.announce(replace(rig.announcement(log_end=4), is_clean=False))
    assert ends == [1, 3, 4]


async def test_a_refused_announcement_is_the_engines_fault_and_tried_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_engine: MemoryEngine, _member: Announcement) -> None:
        raise EngineError("permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryEngine, "announce", refuse)
        await rig.presence.announce(rig.announcement())
        rig.now_ms = 10_000
        await rig.presence.announce(rig.announcement())
    assert rig.health.why_unwritable == "permission denied"
    await rig.presence.announce(rig.announcement())
    assert rig.health.why_unwritable == ""
    assert rig.memory.members[1] == rig.announcement()


async def test_views_end_when_another_process_is_announced_under_the_id(rig: Rig) -> None:
    views: list[SetView] = []

    async def watch() -> None:
        async for view in rig.presence.views():
            views.append(view)

    watching = asyncio.create_task(watch())
    await until(lambda: len(views) == 1)
    rig.memory.announce(rig.announcement(), 0)
    await until(lambda: len(views) == 2)
    rig.be_another()
    await watching
    assert len(views) == 2
    assert "another" in rig.presence.second_because


@pytest.mark.parametrize(
    ("other", "comes_after"),
    [
        (OURS, True),
        (replace(OURS, starts=6, token="33334444"), True),
        (replace(OURS, token="33334444"), False),
        (replace(OURS, starts=8), False),
        (replace(OURS, starts=6, place="0000cafe"), False),
        (replace(OURS, starts=6, store="abcd9999"), False),
        (replace(OURS, starts=6, id=2), False),
    ],
)
def test_only_an_earlier_process_in_the_same_place_has_surely_ended(
    other: Incarnation, comes_after: bool
) -> None:
    assert OURS.comes_after(str(other)) is comes_after


@pytest.mark.parametrize("other", ["", "another", "1-abcd0123-6", "1-abcd0123-x-0000beef-1"])
def test_a_process_of_another_form_may_run(other: str) -> None:
    assert not OURS.comes_after(other)
