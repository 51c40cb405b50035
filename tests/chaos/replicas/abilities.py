"""Abilities: which faults this machine can make, and which a set with its settings must bear."""

import random
from collections.abc import Collection, Mapping

from tests.chaos.replicas.network import can_cut
from tests.chaos.workshop import missing

DISK_TOOLS = ("root", "loop", "xfs", "ext4")
WITH_CLOCKS = 0.25
"""How often clocks jump in a round: a broker asks for the time by a file there, which is slow."""


def lacking() -> Mapping[str, str]:
    """What cannot be made here -> what it needs."""
    needs = {"disks": DISK_TOOLS, "strace": ("strace",), "clocks": ("faketime",)}
    found = {ability: missing(tools) for ability, tools in needs.items()}
    found["cuts"] = "" if can_cut() else "network namespaces: to be root, and ip (iproute2)"
    return {ability: what for ability, what in found.items() if what}


def chosen(
    dice: random.Random, settings: Mapping[str, object], lacks: Collection[str]
) -> Collection[str]:
    """Which of all a round makes use of."""
    has = {"cuts", "disks", "strace", "backups"} - set(lacks)
    if dice.random() < WITH_CLOCKS and "clocks" not in lacks:
        has.add("clocks")
    # With a floor of one, and with one disk, there is one copy at times.
    is_copied = settings["minInSyncReplicas"] != 1
    is_synced = settings["flushDiskType"] == "SYNC_FLUSH"
    is_power = dice.random() < 0.5
    if {"disks", "cuts"} <= has and (is_synced or (is_copied and is_power)):
        has.add("power")
    if is_copied and (is_synced or not is_power):
        has.add("losses")
    return has
