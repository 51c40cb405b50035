"""Scripts: named cases, each of which has lost messages somewhere, or may.

The replicas that *then-master*, *first* and *second* (of its followers) mean are determined when a
script begins, and do not change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.chaos.replicas.nemesis.schedule import Act, Step


@dataclass(frozen=True)
class Script:
    """One case."""

    name: str
    acts: tuple[Act, ...]
    needs: tuple[str, ...] = ()
    """The required abilities (see ``abilities.py``)."""
    settings: Mapping[str, object] = field(default_factory=dict)
    etcd_size: int = 3
    says: str = ""
    """A text that some replica must log during the script."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The script as the nemesis reads it."""
        return (Step(0.5, self.acts),)


FLOOR_1 = {"minInSyncReplicas": 1, "flushDiskType": "SYNC_FLUSH"}
FLOOR_2 = {"minInSyncReplicas": 2, "flushDiskType": "ASYNC_FLUSH"}

SCRIPTS = {
    one.name: one
    for one in (
        # KIP-966: the others return before the last one, and lack what it acknowledged alone.
        Script(
            "last-standing",
            (
                Act("kill", "first", 9),
                Act("kill", "second", 9.5, after_s=1.5),
                Act("cut-power", "then-master", 8, after_s=5),
            ),
            ("cuts", "disks"),
            FLOOR_1,
        ),
        # The same with the floor in force: the first to leave returns first, and may not lead.
        Script(
            "last-two-standing",
            (
                Act("kill", "first", 8),
                Act("kill", "second", 8, after_s=3),
                Act("cut-power", "then-master", 9, after_s=5),
            ),
            ("cuts", "disks"),
            FLOOR_2,
        ),
        # RocketMQ #7017: two masters in a partition, and clients of both.
        Script("master-cut-away", (Act("cut-away", "then-master", 10),), ("cuts",), FLOOR_2),
        Script(
            "master-beside-engine-leader",
            (Act("cut-off-with-engine", "then-master", 12),),
            ("cuts",),
            FLOOR_2,
        ),
        # RocketMQ #5663: the in-sync set changes while the replicated offset does.
        Script("flapping-follower", (Act("cut-off-and-on", "first", 12),), ("cuts",), FLOOR_2),
        # RocketMQ 5.5.0: the master drops a follower before the frozen controller has agreed, and
        # acknowledges alone; then that follower is elected.
        Script(
            "frozen-engine",
            (
                Act("freeze-engine", "", 8),
                Act("cut-off", "first", 7, after_s=0.5),
                Act("freeze", "second", 6, after_s=1),
                Act("kill", "then-master", 5, after_s=7),
            ),
            ("cuts",),
            {"minInSyncReplicas": 1, "flushDiskType": "ASYNC_FLUSH"},
            etcd_size=1,
        ),
        # RocketMQ #7689: a new master assigns queue offsets that its undispatched tail already
        # uses.
        Script(
            "killed-again-and-again",
            tuple(Act("kill", "master", 0.3, after_s=2.5 * number) for number in range(6)),
            settings=FLOOR_2,
        ),
        # The master is frozen and the engine returns old data: that must not elect any replica.
        Script(
            "engine-from-a-backup",
            (
                Act("switch", "master", 0),
                Act("restore-engine", "", 9, after_s=3),
                Act("freeze", "master", 7, after_s=4),
            ),
            settings=FLOOR_2,
            says="restored from a backup",
        ),
        Script(
            "promoted-while-seeding",
            (
                Act("lose-disk", "first", 0),
                Act("slow-disk", "first", 6, after_s=0.5),
                Act("kill", "then-master", 5, after_s=1.5),
            ),
            ("strace",),
            FLOOR_2,
        ),
        *(
            Script(f"{how}-at-{moment}", (Act(f"{how}-at", moment, 14),), settings=FLOOR_2)
            for how in ("switch", "kill")
            for moment in ("publish", "delivery", "transaction-end")
        ),
    )
}
