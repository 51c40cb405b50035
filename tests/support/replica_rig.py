"""A replica set in one process: real connections and files, logs and an engine in memory."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from rockhopper.broker.replication.election.replica_disk import ReplicaDisk
from rockhopper.broker.replication.election.timing import Timing
from rockhopper.broker.replication.engines.engine import MemoryEngine, MemorySet
from rockhopper.broker.replication.shipping.links import SetFacts
from rockhopper.broker.replication.shipping.membership import Membership
from rockhopper.broker.replication.shipping.replica import RunningReplica, now_ms, wall_ms
from tests.support.turns import until

FILE_SIZE_BYTES = 4096
QUICK = Timing(
    lease_ms=600,
    beat_interval_ms=50,
    silence_ms=200,
    gone_ms=150,
    catch_up_ms=600,
    connection_ms=500,
    reconnect_ms=50,
    rank_ms=60,
    rank_spread_ms=20,
    first_start_ms=100,
    read_interval_ms=200,
)
# A replica that keeps up reads its clock several times in each of its ticks, of 50 ms.
_STEP_MS_MAX = 20


class RigClock:
    """A clock that runs while the replicas run; a pause of the whole process counts as a moment.

    The replicas share one event loop. Otherwise a machine that stalls for longer than a lease would
    end the master's term in an unrelated test.
    """

    def __init__(self) -> None:
        self._now_ms = 0
        self._looked_at_ms = now_ms()

    def __call__(self) -> int:
        looked_at_ms = now_ms()
        self._now_ms += min(looked_at_ms - self._looked_at_ms, _STEP_MS_MAX)
        self._looked_at_ms = looked_at_ms
        return self._now_ms


@dataclass
class MemoryLog:
    """The bytes of a log from an offset on."""

    start_offset: int = 0
    data: bytearray = field(default_factory=bytearray)
    is_away: bool = False

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.data)

    @property
    def next_offset(self) -> int:
        return self.end_offset

    @property
    def acknowledgeable_offset(self) -> int:
        return self.end_offset

    def read(self, offset: int, size_bytes_max: int) -> bytes:
        of_file = FILE_SIZE_BYTES - offset % FILE_SIZE_BYTES
        position = offset - self.start_offset
        if position < 0:
            return b""
        return bytes(self.data[position : position + min(size_bytes_max, of_file)])

    def append(self, offset: int, data: bytes) -> None:
        assert offset == self.end_offset
        self.data += data

    def drop_torn(self) -> None:
        pass

    async def cut(self, end_offset: int) -> None:
        del self.data[end_offset - self.start_offset :]

    async def begin_at(self, offset: int) -> None:
        self.start_offset, self.data = offset, bytearray()


class Member:
    """One replica of the rig; it can be stopped and started again on its disk."""

    def __init__(
        self, number: int, root: Path, memory: MemorySet, facts: SetFacts, clock: RigClock
    ) -> None:
        self.number = number
        self.log = MemoryLog()
        self.told: list[object] = []
        self.confirmed = 0
        self.facts = facts
        self.min_in_sync = 1
        self._root = root
        self._memory = memory
        self.clock = clock
        self.ahead_ms = 0
        self.replica: RunningReplica | None = None
        # That of the running replica. A second ReplicaDisk would repair the files that this one is
        # writing.
        self.replica_disk: ReplicaDisk | None = None

    async def start(self) -> None:
        self.replica_disk = replica_disk = ReplicaDisk(self._root)
        replica_disk.count_start("boot", self.log.end_offset, may_have_lost=False)
        self.replica = RunningReplica(
            Membership(
                self.number, self.facts, self.min_in_sync, f"b{self.number}:1", host="127.0.0.1"
            ),
            self.log,
            replica_disk,
            MemoryEngine(self._memory, self.clock),
            self,
            QUICK,
            self.clock,
            lambda: wall_ms() + self.ahead_ms,
        )
        await self.replica.start()

    async def stop(self) -> None:
        if self.replica:
            replica, self.replica = self.replica, None
            await replica.close()

    @property
    def leads(self) -> bool:
        return self.replica is not None and self.replica.takes_sends

    def write(self, data: bytes) -> int:
        """Append like a master; return the end."""
        assert self.replica
        self.log.data += data
        self.replica.wrote()
        return self.log.end_offset

    def lead(self, epoch: int) -> None:
        self.told.append(epoch)

    def resign(self, why: str) -> None:
        self.told.append(why)

    def confirm(self, offset: int) -> None:
        self.confirmed = offset

    def require_operator(self, why: str) -> None:
        self.told.append(why)

    def replication_stopped(self, why: str) -> None:
        self.told.append(why)


class ReplicaRig:
    """Some replicas and their shared state."""

    def __init__(self, root: Path, count: int = 3, secret: bytes = b"secret") -> None:
        self.memory = MemorySet(QUICK.lease_ms)
        self.facts = SetFacts("DefaultCluster", "broker-a", FILE_SIZE_BYTES, secret)
        clock = RigClock()
        self.members = [
            Member(number, root / str(number), self.memory, self.facts, clock)
            for number in range(1, count + 1)
        ]

    async def __aenter__(self) -> "ReplicaRig":
        for member in self.members:
            await member.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*[member.stop() for member in self.members])

    async def master(self) -> Member:
        """Wait for a leader."""
        await until(lambda: any(member.leads for member in self.members))
        return next(member for member in self.members if member.leads)

    async def pair(self) -> tuple[Member, Member]:
        """Wait until two replicas are in sync; return the leader and the follower."""
        master = await self.master()
        await self.complete(2)
        (follower,) = [member for member in self.members if member is not master]
        return master, follower

    async def complete(self, count: int) -> None:
        """Wait until this many replicas are in sync."""
        await until(
            lambda: self.memory.state is not None and len(self.memory.state.in_sync) == count
        )
