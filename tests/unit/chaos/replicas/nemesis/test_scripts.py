"""Scripts name what there is: faults, abilities, and those whom they are about."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.ledger import Ledger
from tests.chaos.replicas import abilities
from tests.chaos.replicas.nemesis.nemesis import Nemesis
from tests.chaos.replicas.nemesis.scene import Scene
from tests.chaos.replicas.nemesis.schedule import Act
from tests.chaos.replicas.nemesis.scripts import SCRIPTS, Script

ABILITIES = {"cuts", "disks", "strace", "clocks"}
NEEDED = {"cut": "cuts", "fill-disk": "disks", "slow-disk": "strace", "cut-power": "disks"}


def scene(master: int | None) -> Scene:
    replicas: Any = SimpleNamespace(
        replicas={}, network=None, etcd=SimpleNamespace(members=[]), machines={}
    )
    observer: Any = SimpleNamespace(master=master)
    return Scene(replicas, observer, random.Random(1))


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
def test_a_script_asks_for_what_there_is(script: Script) -> None:
    kinds = Nemesis(scene(1), Ledger()).kinds
    assert {act.kind for act in script.acts} <= kinds.keys()
    assert set(script.needs) <= ABILITIES
    needed = {
        need for act in script.acts for kind, need in NEEDED.items() if act.kind.startswith(kind)
    }
    assert needed <= set(script.needs)


def test_what_scripts_need_is_what_abilities_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "can_cut", lambda: False)
    monkeypatch.setattr(abilities, "missing", lambda _: "all of it")
    assert abilities.lacking().keys() == ABILITIES


def test_names_stay_with_those_who_had_them() -> None:
    cast = scene(2)
    cast.begin()
    object.__setattr__(cast, "observer", SimpleNamespace(master=3))
    targets = [cast.target(Act("kill", name, 0)) for name in ("then-master", "first", "second")]
    assert targets == [2, 1, 3]
    assert cast.target(Act("kill", "master", 0)) == 3
