"""Abilities: the faults that this machine can make, and those that a set must tolerate."""

import random
from collections.abc import Collection, Mapping

from tests.chaos.replicas.network import can_cut
from tests.chaos.workshop import missing

DISK_TOOLS = ("root", "loop", "xfs", "ext4")
WITH_CLOCKS = 0.25
"""How often clocks jump in a round; rare, as a broker then reads the time from a file, slowly."""


def lacking() -> Mapping[str, str]:
    """Return the faults that cannot be made here -> what they need."""
    needs = {"disks": DISK_TOOLS, "strace": ("strace",), "clocks": ("faketime",)}
    found = {ability: missing(tools) for ability, tools in needs.items()}
    found["cuts"] = "" if can_cut() else "network namespaces: to be root, and ip (iproute2)"
    return {ability: what for ability, what in found.items() if what}


def chosen(
    dice: random.Random, settings: Mapping[str, object], lacks: Collection[str]
) -> Collection[str]:
    """Return the abilities that a round uses."""
    has = {"cuts", "disks", "strace", "backups"} - set(lacks)
    if dice.random() < WITH_CLOCKS and "clocks" not in lacks:
        has.add("clocks")
    # With a floor of one, or with one disk, there is sometimes only one copy.
    is_copied = settings["minInSyncReplicas"] != 1
    is_synced = settings["flushDiskType"] == "SYNC_FLUSH"
    is_power = dice.random() < 0.5
    if {"disks", "cuts"} <= has and (is_synced or (is_copied and is_power)):
        has.add("power")
    if is_copied and (is_synced or not is_power):
        has.add("losses")
    return has
