"""SetOfReplicas: the processes of three replicas and of their etcd, each on its host.

A process's output goes to one file beside its store, over all its lives.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rockhopper.broker.replication.engines.engine import EngineError
from tests.chaos import topics
from tests.chaos.replicas.machines import Machine
from tests.chaos.replicas.network import Network
from tests.interop.etcd import EtcdCluster
from tests.support.daemon import ROOT
from tests.support.free_ports import free_port

REPLICAS = (1, 2, 3)
ENGINE_ANSWERS_WITHIN_S = 1.0
SECRET = "what only these three know\n"


@dataclass
class ReplicaProcess:
    """One replica: how to start it, and its process while it has one."""

    id: int
    machine: Machine
    command: Sequence[str]
    store: Path
    log: Path
    address: str
    nameserver: str
    http: str = ""
    tree: Path = ROOT
    """The release from which it is started."""
    process: subprocess.Popen[bytes] | None = None
    exits: list[int] = field(default_factory=list)
    """The exit codes with which it ended without being stopped."""

    @property
    def pid(self) -> int | None:
        """Its process id, while it has a process."""
        return self.process.pid if self.process is not None else None

    def start(self) -> None:
        """Start it, unless it is running."""
        if self.process is not None:
            code = self.process.poll()
            if code is None:
                return
            self.exits.append(code)
        environment = {k: text for k, text in os.environ.items() if "ROCKHOPPER" not in k}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.tree,
                env={**environment, **self.machine.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is running."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it with SIGKILL if it is running; note the exit code if it had already ended."""
        process, self.process = self.process, None
        if process is None:
            return
        code = process.poll()
        if code is not None:
            self.exits.append(code)
        else:
            process.kill()
            process.wait()

    async def stop(self) -> None:
        """Stop it with SIGTERM, as an operator does, if it is running."""
        process, self.process = self.process, None
        if process is not None:
            process.terminate()
            await asyncio.to_thread(process.wait)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield all lines of its log."""
        for text in self.log.read_text(errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            yield line if isinstance(line, dict) else {"event": text}


def leaders(replicas: Iterable[ReplicaProcess]) -> Iterator[tuple[int, int]]:
    """Yield epoch and replica of each term, according to the elected replicas."""
    for replica in replicas:
        for line in replica.lines():
            if line.get("event") == "this replica leads":
                yield int(line["epoch"]), replica.id


class SetOfReplicas:
    """Three replicas and an etcd; *settings* precede the set's own.

    With *listen_port*, all replicas use that port, each on its own host.
    """

    def __init__(
        self,
        directory: Path,
        network: Network,
        machines: Mapping[int, Machine],
        etcd: EtcdCluster,
        *,
        listen_port: int = 0,
        **settings: object,
    ) -> None:
        self.directory, self.network, self.etcd = directory, network, etcd
        self.machines = machines
        self._listen_port = listen_port
        secret = directory / "secret"
        secret.write_text(SECRET)
        secret.chmod(0o600)
        self.replicas = {
            number: self._replica(number, {**settings, "haSecretFile": secret})
            for number in REPLICAS
        }

    @property
    def nameserver(self) -> str:
        """The name servers of all three."""
        return ";".join(replica.nameserver for replica in self.replicas.values())

    async def engine_host(self) -> str:
        """Return the host of the etcd's leader, or of any member while none answers."""
        names = [name for name in self.network.hosts if name.startswith("e")]
        with contextlib.suppress(EngineError, LookupError, TimeoutError):
            async with asyncio.timeout(ENGINE_ANSWERS_WITHIN_S):
                return names[self.etcd.members.index(await self.etcd.leader())]
        return names[0]

    def _replica(self, number: int, settings: dict[str, object]) -> ReplicaProcess:
        host = self.network.hosts[f"r{number}"]
        if host.enter:
            listen, names = 10911, 9876
        else:
            listen, names = self._listen_port or free_port((1, 2)), free_port()
        machine = self.machines[number]
        store = machine.home / "store"
        own = {
            "brokerName": "broker-a",
            "haEngine": "etcd://" + ",".join(self.etcd.endpoints),
            "haReplicaId": number,
            "haReplicas": len(REPLICAS),
            "haFirstStartWait": 500,
            "haListenPort": listen + 1 if host.enter else free_port(),
            "haAddress": host.address,
            "brokerIP1": host.address,
            "bindAddress": host.address,
            "remoteAdmin": "true",
        }
        options = topics.options(**(own | settings))
        http = free_port()
        ports = ["--listen-port", str(listen), "--namesrv-port", str(names)]
        ports += ["--http-port", str(http)]
        broker = [sys.executable, "-m", "rockhopper.broker", "--store", str(store)]
        return ReplicaProcess(
            number,
            machine,
            [*machine.enter(host.enter), *broker, *ports, *options],
            store,
            self.directory / f"replica-{number}.log",
            f"{host.address}:{listen}",
            f"{host.address}:{names}",
            f"{host.address}:{http}",
        )

    async def start(self) -> None:
        """Start everything; return when the etcd answers."""
        await self.etcd.start()
        for replica in self.replicas.values():
            replica.start()

    def kill(self) -> None:
        """Kill everything."""
        for replica in self.replicas.values():
            replica.kill()
        self.etcd.kill()


def host_names(etcd_size: int) -> list[str]:
    """Return the names of the hosts that the set needs."""
    return [*(f"r{number}" for number in REPLICAS), *(f"e{number}" for number in range(etcd_size))]


@asynccontextmanager
async def running(
    directory: Path,
    network: Network,
    etcd_size: int,
    machines: Mapping[int, Machine] | None = None,
    **settings: Any,
) -> AsyncIterator[SetOfReplicas]:
    """Run a set on a network of ``host_names``, and kill it at the end.

    Without *machines*, each replica has a directory and the real clock.
    """
    if machines is None:
        machines = {number: Machine(directory / f"machine-{number}") for number in REPLICAS}
    hosts = [network.hosts[f"e{number}"] for number in range(etcd_size)]
    etcd = EtcdCluster(directory / "etcd", etcd_size, hosts=[host.address for host in hosts])
    for member, host in zip(etcd.members, hosts, strict=True):
        member.command = [*host.enter, *member.command]
    found = SetOfReplicas(directory, network, machines, etcd, **settings)
    try:
        await found.start()
        yield found
    finally:
        found.kill()
