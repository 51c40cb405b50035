"""What a set must bear follows from its settings, and what can be made from the machine."""

import random
from typing import Any

import pytest

from tests.chaos.replicas import abilities


def chosen(lacks: tuple[str, ...] = (), **settings: Any) -> list[set[str]]:
    given = {"minInSyncReplicas": 2, "flushDiskType": "SYNC_FLUSH"} | settings
    return [set(abilities.chosen(random.Random(seed), given, lacks)) for seed in range(50)]


def test_a_set_with_one_copy_at_times_loses_no_disk_and_no_memory() -> None:
    for has in chosen(minInSyncReplicas=1, flushDiskType="ASYNC_FLUSH"):
        assert not has & {"power", "losses"}
    assert all("power" in has for has in chosen(minInSyncReplicas=1))
    assert not any("losses" in has for has in chosen(minInSyncReplicas=1))


def test_without_syncing_one_thing_is_lost_and_not_both() -> None:
    lost = [has & {"power", "losses"} for has in chosen(flushDiskType="ASYNC_FLUSH")]
    assert {len(each) for each in lost} == {1}
    assert set().union(*lost) == {"power", "losses"}


def test_clocks_jump_now_and_then() -> None:
    assert {"clocks" in has for has in chosen()} == {True, False}


@pytest.mark.parametrize("ability", ["cuts", "disks", "strace", "clocks"])
def test_what_is_lacking_is_not_chosen(ability: str) -> None:
    assert not any(ability in has for has in chosen((ability,)))


@pytest.mark.parametrize("ability", ["cuts", "disks"])
def test_the_power_is_cut_where_disks_and_hosts_can_be_made(ability: str) -> None:
    assert not any("power" in has for has in chosen((ability,)))


def test_what_is_lacking_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "can_cut", lambda: False)
    monkeypatch.setattr(abilities, "missing", lambda needs: "strace" if "strace" in needs else "")
    assert abilities.lacking() == {
        "strace": "strace",
        "cuts": "network namespaces: to be root, and ip (iproute2)",
    }
