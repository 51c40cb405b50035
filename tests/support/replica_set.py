"""A replica set of brokers in one process: real sockets and stores, and an engine in memory."""

import asyncio
from pathlib import Path

import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.replication.engines.engine import MemoryEngine, MemorySet
from rockhopper.broker.replication.roles import joining, passing_on, set_member
from rockhopper.broker.replication.roles.set_member import SetMember
from rockhopper.broker.settings.config_file import build_config
from tests.support.free_ports import free_port
from tests.support.hang import HANG_S
from tests.support.turns import until

LEASE_MS = 1500
SHORT_S = 0.5
"""The time for a handover that cannot succeed."""
SETTINGS = {
    "brokerName": "broker-a",
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "haEngine": "etcd://127.0.0.1:1",
    "haFirstStartWait": "300",
    "haSpliceTime": "60000",
    "haDrainTime": "0",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 500),
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "httpPort": "-1",
    "vipChannelEnabled": "false",
}


class ReplicaSet:
    """Replicas by id; each can be stopped and started on its store."""

    def __init__(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str] | None = None
    ) -> None:
        self.memory = MemorySet(LEASE_MS)
        self.brokers: dict[int, Broker] = {}
        self._root = root
        self._settings = settings or {}
        self._ports: dict[int, list[int]] = {}
        self._monkeypatch = monkeypatch
        # Slow machines exist: only a test in which a handover must fail bounds it.
        self.hand_over_within(HANG_S)
        monkeypatch.setattr(
            joining, "engine_for", lambda _config, now: MemoryEngine(self.memory, now)
        )

    def root_of(self, number: int) -> Path:
        """Return the store directory of a replica."""
        return self._root / str(number)

    async def start(self, *numbers: int) -> None:
        """Start these replicas."""
        await asyncio.gather(*(self._start(number) for number in numbers))

    async def _start(self, number: int) -> None:
        ports = self._ports.setdefault(number, [free_port() for _ in range(3)])
        keys = ("listenPort", "namesrvPort", "haListenPort")
        config = build_config(
            SETTINGS
            | {"haReplicas": "3"}
            | self._settings
            | dict(zip(keys, map(str, ports), strict=True))
            | {"haReplicaId": str(number), "storePathRootDir": str(self.root_of(number))}
        )
        broker = self.brokers[number] = Broker(config)
        await broker.start()

    async def stop(self, number: int) -> None:
        """Stop one replica."""
        await self.brokers.pop(number).stop()

    async def stop_all_at_once(self) -> None:
        """Stop all replicas; none of them can hand over for long."""
        self.hand_over_within(SHORT_S)
        await asyncio.gather(*(self.stop(number) for number in list(self.brokers)))

    def hand_over_within(self, timeout_s: float) -> None:
        """Let masters give up a handover, and the forwarding of their clients, after this time."""
        self._monkeypatch.setattr(set_member, "SWITCH_TIMEOUT_S", timeout_s)
        self._monkeypatch.setattr(passing_on, "MASTER_TIMEOUT_S", timeout_s)

    async def close(self) -> None:
        """Stop all replicas, one after the other; the last ones cannot hand over."""
        self.hand_over_within(SHORT_S)
        for number in list(self.brokers):
            await self.stop(number)

    async def __aenter__(self) -> "ReplicaSet":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def nameserver(self) -> str:
        """The addresses of all name servers."""
        return ";".join(f"127.0.0.1:{ports[1]}" for ports in self._ports.values())

    def member(self, number: int) -> SetMember:
        """Return the set member of one replica."""
        member = self.brokers[number].member
        assert member is not None
        return member

    async def master(self, in_sync: int = 2, but: int = 0) -> int:
        """Return the id of the master, another than *but*, once *in_sync* replicas are in sync."""
        found = 0

        def is_there() -> bool:
            nonlocal found
            found = next((each for each in self.brokers if self._leads(each, in_sync)), 0)
            return found not in (0, but)

        await until(is_there)
        return found

    def _leads(self, number: int, in_sync: int) -> bool:
        broker, state = self.brokers[number], self.memory.state
        if broker.member is None or not broker.member.is_serving or state is None:
            return False
        takes = state.master.id == number and broker.store.refusal is None
        return takes and len(state.in_sync) >= in_sync

    async def same_logs(self) -> None:
        """Return once all running replicas have and confirm the master's log."""
        brokers = self.brokers.values()
        await until(lambda: len({each.store.log.written_offset for each in brokers}) == 1)
