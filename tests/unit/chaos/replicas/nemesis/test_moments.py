"""A fault is made when its moment comes, and at no other."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.ledger import Ledger
from tests.chaos.replicas.nemesis import moments
from tests.chaos.replicas.nemesis.moments import Moments
from tests.chaos.replicas.nemesis.schedule import Act
from tests.support.raw_peer import until


async def test_a_moment_makes_a_fault_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "BETWEEN_S", 0)
    monkeypatch.setattr(moments, "AFTER_S", 0)
    made: list[Act] = []

    async def make(act: Act) -> None:
        made.append(act)

    ledger = Ledger()
    scene: Any = SimpleNamespace(dice=random.Random(1))
    processes: Any = SimpleNamespace(kinds={"switch": make, "kill": make})
    kinds = Moments(scene, ledger, processes).kinds
    idle = ledger.about_to
    doing = asyncio.ensure_future(kinds["kill-at"](Act("kill-at", "publish", 1e9)))
    await until(lambda: ledger.about_to is not idle)
    ledger.about_to("delivery")
    await asyncio.sleep(0)
    assert made == []
    for count in (1, 2):

        def is_made(count: int = count) -> bool:
            ledger.about_to("publish")
            return len(made) >= count

        await until(is_made)
    assert {act.target for act in made} == {"master"}
    doing.cancel()
    await asyncio.gather(doing, return_exceptions=True)
    ledger.about_to("publish")


async def test_a_moment_that_does_not_come_is_not_waited_for() -> None:
    scene: Any = SimpleNamespace(dice=random.Random(1))
    processes: Any = SimpleNamespace(kinds={"switch": None, "kill": None})
    made = Moments(scene, Ledger(), processes).kinds["switch-at"]
    await made(Act("switch-at", "publish", 0))
