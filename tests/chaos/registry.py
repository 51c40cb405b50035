"""The faults, what each needs, and its share of the time."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass

from tests.chaos import (
    bit_rot,
    clock_jumps,
    disk_errors,
    floods,
    full_disk,
    kills,
    power_cuts,
    shared_sinks,
    spark_sinks,
)
from tests.chaos.outcome import Outcome
from tests.chaos.replicas import abilities, switching
from tests.chaos.replicas import rounds as replicas
from tests.chaos.replicas.nemesis.scripts import SCRIPTS
from tests.chaos.workshop import Workshop

Rounds = Callable[[Workshop, int], AsyncGenerator[Outcome]]


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    rounds: Rounds
    share: float
    """The fault's share of the time."""
    long_rounds: int
    """The number of rounds in the long form."""
    needs: tuple[str, ...] = ()
    is_asked_for: bool = False
    """Whether the fault is run only if it is named."""
    lacking: Callable[[], Mapping[str, str]] = dict
    """The parts of the fault that cannot run here -> what they need; the other parts still run."""
    is_made_once: bool = False
    """Whether one pass is enough, regardless of the number of rounds."""
    has_hosts: bool = False
    """Whether the fault creates hosts, for which the suite uses its own network if it can."""


FAULTS = (
    Fault("power-cut", power_cuts.rounds, 4, 1000, ("root", "loop", "xfs", "ext4")),
    Fault("kill", kills.rounds, 2, 1000),
    Fault("disk-error", disk_errors.rounds, 2, 400, ("strace",)),
    Fault("full-disk", full_disk.rounds, 1, 400, ("root", "loop", "xfs", "ext4")),
    Fault("bit-rot", bit_rot.rounds, 1.5, 5000),
    Fault("flood", floods.rounds, 1, 500),
    Fault("clock-jump", clock_jumps.rounds, 1.5, 600, ("faketime",)),
    Fault(
        "replica-scripts",
        replicas.script_rounds,
        1,
        len(SCRIPTS),
        ("etcd",),
        is_asked_for=True,
        lacking=abilities.lacking,
        is_made_once=True,
        has_hosts=True,
    ),
    Fault(
        "replicas",
        replicas.rounds,
        1,
        200,
        ("etcd",),
        is_asked_for=True,
        lacking=abilities.lacking,
        has_hosts=True,
    ),
    Fault("shared-sinks", shared_sinks.rounds, 1, 1000, is_asked_for=True),
    Fault("spark-sinks", spark_sinks.rounds, 1, 14, is_asked_for=True),
    Fault("switches", switching.rounds, 1, 1000, ("etcd",), is_asked_for=True),
    Fault("java-switches", switching.java_rounds, 1, 100, ("etcd", "java"), is_asked_for=True),
)
