"""Faults are done to those whom they name, told, and repaired."""

import asyncio
import random
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.ledger import Ledger
from tests.chaos.replicas.nemesis.nemesis import MENDED_WITHIN_S, Nemesis, Period
from tests.chaos.replicas.nemesis.scene import Scene
from tests.chaos.replicas.nemesis.schedule import KINDS, Act, Step
from tests.support.raw_peer import until


class Rig:
    """A scene of things that note what is done to them."""

    def __init__(self, directory: Path, master: int | None = 2) -> None:
        self.done: list[tuple[Any, ...]] = []
        replicas = {number: self._replica(number) for number in (1, 2, 3)}
        self.members = [self._member(directory / f"m{number}") for number in range(3)]
        network = SimpleNamespace(
            hosts=["r1", "r2", "r3", "e0"],
            cut=lambda *way: self.done.append(("cut", *way)),
            heal=lambda *way: self.done.append(("heal", *way)),
        )
        fake: Any = SimpleNamespace(
            replicas=replicas,
            network=network,
            etcd=SimpleNamespace(members=self.members),
            machines={number: each.machine for number, each in replicas.items()},
        )
        observer: Any = SimpleNamespace(master=master)
        self.nemesis = Nemesis(Scene(fake, observer, random.Random(1)), Ledger())

    def _replica(self, number: int) -> Any:
        def note(what: str) -> Any:
            return lambda *given: self.done.append((what, number, *given))

        machine = SimpleNamespace(
            clock=None, fill=note("fill"), free=note("free"), cut_power=note("cut power")
        )
        return SimpleNamespace(
            machine=machine, kill=note("kill"), start=note("start"), signal=note("signal")
        )

    def _member(self, directory: Path) -> Any:
        (directory / "data").mkdir(parents=True)
        (directory / "data" / "member").write_text("as it was")
        member = SimpleNamespace(directory=directory, process=object())
        member.signal = lambda number: self.done.append(("member", number))
        member.kill = lambda: setattr(member, "process", None)
        member.start = lambda: setattr(member, "process", object())
        return member


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_every_kind_of_a_schedule_can_be_made(rig: Rig) -> None:
    assert {kind for some in KINDS.values() for kind in some} <= rig.nemesis.kinds.keys()


async def test_the_master_is_who_leads(rig: Rig) -> None:
    await rig.nemesis.do(Act("kill", "master", 0))
    assert rig.done == [("kill", 2), ("start", 2)]
    (period,) = rig.nemesis.periods
    assert period.what.startswith("kill master 0.0 at 0.")
    assert period.what.endswith("(master 2)")


async def test_a_power_cut_takes_a_killed_replica(rig: Rig) -> None:
    await rig.nemesis.do(Act("cut-power", "master", 0))
    assert rig.done == [("kill", 2), ("cut power", 2), ("start", 2)]


async def test_a_disk_is_freed_even_when_the_round_is_given_up(rig: Rig) -> None:
    doing = asyncio.create_task(rig.nemesis.do(Act("fill-disk", "master", 1e9)))
    await until(lambda: bool(rig.done))
    doing.cancel()
    await asyncio.gather(doing, return_exceptions=True)
    assert [what for what, *_ in rig.done] == ["fill", "free"]


async def test_who_is_cut_away_is_reached_by_nobody(rig: Rig) -> None:
    await rig.nemesis.do(Act("cut-away", "master", 0))
    cuts = {(one, other) for what, one, other in rig.done if what == "cut"}
    others = ["r1", "r3", "e0"]
    assert cuts == {
        *(("r2", other) for other in [*others, "10.77.0.254"]),
        *((other, "r2") for other in others),
    }
    healed = {(one, other) for what, one, other in rig.done if what == "heal"}
    assert healed == cuts


async def test_a_backup_is_run_and_what_was_there_comes_back(rig: Rig) -> None:
    await rig.nemesis.do(Act("back-up-engine", "", 0))
    data = [member.directory / "data" / "member" for member in rig.members]
    for path in data:
        path.write_text("later")
    seen: list[str] = []
    rig.members[0].start = lambda: seen.append(data[0].read_text())
    await rig.nemesis.do(Act("restore-engine", "", 0))
    assert seen == ["as it was", "later"]
    assert [path.read_text() for path in data] == ["later"] * 3


async def test_all_is_mended(rig: Rig) -> None:
    rig.members[1].process = None
    rig.nemesis.repair()
    assert rig.members[1].process is not None
    assert rig.done.count(("member", signal.SIGCONT)) == 2
    assert ("signal", 3, signal.SIGCONT) in rig.done
    assert ("start", 3) in rig.done


async def test_steps_are_made_one_after_the_other_and_their_acts_at_once(rig: Rig) -> None:
    both = (Act("kill", "master", 0), Act("fill-disk", "master", 0))
    await rig.nemesis.run([Step(0, both), Step(0, (Act("freeze", "master", 0),))])
    whats = [period.what.split(" ")[0] for period in rig.nemesis.periods]
    assert whats[0] == "back-up-engine"
    assert sorted(whats[1:3]) == ["fill-disk", "kill"]
    assert whats[3] == "freeze"


def test_a_fault_is_to_blame_for_a_while() -> None:
    period = Period("kill", 10, 12)
    assert period.touches(0, 10)
    assert period.touches(12 + MENDED_WITHIN_S, 99)
    assert not period.touches(0, 9)
    assert not period.touches(13 + MENDED_WITHIN_S, 99)
