"""Changes of a replica's role: one at a time, in order, and what ends them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import structlog

from rockhopper.broker.replication.roles.role_changes import RoleChanges
from rockhopper.broker.store.files.errors import StoreError
from tests.support.turns import until


class Player:
    """Records its changes of role; each lasts until ``may_end`` is set."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.fails_with: Exception | None = None
        self.cannot_follow: Exception | None = None
        self.roles = RoleChanges(self)

    async def promote(self, epoch: int) -> None:
        self.told.append(f"promote {epoch}")
        await self.may_end.wait()
        if self.fails_with is not None:
            raise self.fails_with
        if self.roles.is_wanted(epoch):
            self.roles.enter(epoch)
            self.told.append(f"lead {epoch}")

    async def demote(self) -> None:
        self.told.append("demote")
        self.roles.leave()
        await self.may_end.wait()
        if self.cannot_follow is not None:
            raise self.cannot_follow
        self.roles.follow()
        self.told.append("follow")

    def give_up(self) -> None:
        self.told.append("give up")

    async def has_told(self, *told: str) -> None:
        await until(lambda: self.told == [*told])


@pytest.fixture
async def player() -> AsyncIterator[Player]:
    player = Player()
    player.roles.start()
    yield player
    player.may_end.set()
    await player.roles.close()


async def test_an_elected_replica_is_promoted_once(player: Player) -> None:
    player.roles.elect(3)
    await player.has_told("promote 3", "lead 3")
    assert player.roles.leads_in == 3
    player.roles.request()
    player.roles.elect(5)
    await player.has_told("promote 3", "lead 3", "promote 5", "lead 5")


async def test_a_deposed_replica_follows_once_the_demotion_is_requested(player: Player) -> None:
    player.roles.elect(3)
    await player.has_told("promote 3", "lead 3")
    player.roles.depose()
    assert player.roles.deposed.is_set()
    player.roles.request()
    await player.has_told("promote 3", "lead 3", "demote", "follow")
    assert not player.roles.deposed.is_set()
    assert player.roles.leads_in == 0


async def test_a_replica_deposed_during_its_promotion_does_not_lead(player: Player) -> None:
    player.may_end.clear()
    player.roles.elect(3)
    await player.has_told("promote 3")
    player.roles.depose()
    player.roles.request()
    player.roles.elect(5)
    assert not player.roles.is_wanted(3)
    player.may_end.set()
    await player.has_told("promote 3", "demote", "follow", "promote 5", "lead 5")


async def test_a_promotion_that_fails_because_of_the_deposition_ends_in_a_demotion(
    player: Player,
) -> None:
    player.may_end.clear()
    player.roles.elect(3)
    await player.has_told("promote 3")
    player.roles.depose()
    player.fails_with = StoreError("this broker no longer leads its set")
    player.may_end.set()
    await player.has_told("promote 3", "demote", "follow")


@pytest.mark.parametrize("error", [StoreError("full"), OSError("full"), RuntimeError("full")])
async def test_a_change_that_fails_for_another_reason_gives_up(
    player: Player, error: Exception
) -> None:
    player.fails_with = error
    with structlog.testing.capture_logs() as logs:
        player.roles.elect(3)
        await player.has_told("promote 3", "give up")
    assert [each["reason"] for each in logs] == ["full"]


async def test_a_demotion_that_fails_gives_up_at_once(player: Player) -> None:
    player.roles.elect(3)
    await player.has_told("promote 3", "lead 3")
    player.cannot_follow = StoreError("a table cannot be read")
    with structlog.testing.capture_logs() as logs:
        player.roles.depose()
        player.roles.request()
        await until(lambda: player.told[-1] == "give up")
    assert player.told[2:] == ["demote", "give up"]
    assert [each["reason"] for each in logs] == ["a table cannot be read"]


async def test_a_bug_gives_up_too(player: Player) -> None:
    player.fails_with = KeyError("a bug")
    player.roles.elect(3)
    await player.has_told("promote 3", "give up")


async def test_a_stop_waits_for_the_change_under_way_and_begins_no_other(player: Player) -> None:
    player.may_end.clear()
    player.roles.elect(3)
    await player.has_told("promote 3")
    closing = asyncio.create_task(player.roles.close())
    await until(lambda: player.roles.is_closing)
    assert not player.roles.is_wanted(3)
    assert player.roles.is_elected(3)
    player.roles.elect(5)
    assert not closing.done()
    player.may_end.set()
    await closing
    assert player.told == ["promote 3"]


async def test_no_change_begins_while_another_holds_the_turn(player: Player) -> None:
    async with player.roles.in_turn:
        player.roles.elect(3)
        for _ in range(5):
            await asyncio.sleep(0)
        assert player.told == []
    await player.has_told("promote 3", "lead 3")


async def test_roles_that_never_started_are_closed() -> None:
    player = Player()
    await player.roles.close()
    assert player.told == []
