"""The cost of a replica set, and its time without a master: figures as ratios of one run.

    sends       a master with 0, 1 and 2 in-sync followers, interleaved, on its own core:
                messages/s, and the master's CPU time per message, which is what counts if
                the followers share the other core with the load
    failover    the master is killed with -9 while the bundled client sends: last answer to next
    switch      `rockhopper ha switch` under the same sends
    seeding     a follower receives the whole log again, beside cp and fsync of the same files
    promotion   1,000 topics and 100,000 pending timers: from election to serving

It needs etcd (Debian's etcd-server) in PATH or in build/etcd. Each result is written to *--save* as
soon as it is known; results that are already there are not measured again.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import load, topics
from benchmarks.cases import BASE, CASES
from benchmarks.errors import BenchError
from benchmarks.load import BUILD, HERE
from benchmarks.servers import free_ports
from rockhopper.client import Message, Producer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.errors import ClientError
from rockhopper.protocol.codes import RequestCode

WAIT_S = 60.0
SENDERS = 8
SEED_BYTES = 400 << 20
TOPICS = 1000
TIMERS = 100_000
BATCH = next(case for case in CASES if case.mode == "batch")


class Replica:
    """One broker process of a set."""

    def __init__(self, directory: Path, number: int, count: int, engine: str) -> None:
        self.number = number
        self.port, self.names, self.http, ha_port = free_ports(4)
        self.store, self.log = directory / f"store{number}", directory / f"{number}.log"
        self._conf = directory / f"{number}.conf"
        self._process: subprocess.Popen[bytes] | None = None
        own = {
            "haEngine": engine,
            "haReplicaId": number,
            "haReplicas": count,
            "haListenPort": ha_port,
            "haFirstStartWait": 500,
        }
        lines = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "storePathRootDir": self.store,
            "listenPort": self.port,
            "namesrvPort": self.names,
            "httpPort": self.http,
            **(own if engine else {}),
        }
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process."""
        command = [sys.executable, "-m", "rockhopper.broker", "-c", str(self._conf)]
        with self.log.open("a") as log:
            self._process = subprocess.Popen(command, stderr=log, stdout=log, cwd=HERE.parent)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End the process."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=30)
            self._process = None

    def seconds_from_elected_to_serving(self) -> float:
        """Return the seconds from the last election to the last start of service in its log."""
        moments = {}
        for line in self.log.read_text().splitlines():
            for event in ("this replica leads", "serving as the master"):
                if f'"event": "{event}"' in line:
                    moments[event] = datetime.fromisoformat(json.loads(line)["timestamp"])
        elapsed = moments["serving as the master"] - moments["this replica leads"]
        return elapsed.total_seconds()


class Set:
    """Some replicas, or one broker alone."""

    def __init__(self, directory: Path, count: int, engine: str) -> None:
        self.replicas = [
            Replica(directory, number, count, engine) for number in range(1, count + 1)
        ]
        self.nameserver = ";".join(f"127.0.0.1:{each.names}" for each in self.replicas)

    async def status(self) -> dict[str, Any]:
        """Return the set's status, from any replica that answers."""
        async with Admin(self.nameserver) as admin:
            for replica in self.replicas:
                with contextlib.suppress(ClientError, OSError):
                    answer = await admin.request(
                        replica.address, RequestCode.GET_REPLICA_SET, timeout_s=1.0
                    )
                    return dict(json.loads(answer.body))
        return {"replicas": []}

    async def master(self, in_sync: int) -> Replica:
        """Return the master, once *in_sync* replicas are in sync and it accepts messages."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            status = await self.status()
            leads = next((each["id"] for each in status["replicas"] if each["isMaster"]), 0)
            if leads and sum(each["isInSync"] for each in status["replicas"]) >= in_sync:
                with contextlib.suppress(ClientError):
                    async with Producer(self.nameserver, group="ready") as producer:
                        await producer.send("ready", b"", timeout_s=2.0)
                    return self.replicas[leads - 1]
            await asyncio.sleep(0.1)
        raise BenchError(f"no master after {WAIT_S:.0f} s: {await self.status()}")


@contextlib.contextmanager
def a_set(count: int, etcd: str, *, alone: bool = False) -> Iterator[Set]:
    """Run a set; with *alone*, one broker without an engine."""
    BUILD.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="ha-", dir=BUILD) as name,
        contextlib.ExitStack() as undo,
    ):
        directory = Path(name)
        engine = "" if alone else undo.enter_context(_etcd(directory, etcd))
        found = Set(directory, count, engine)
        for replica in found.replicas:
            undo.callback(replica.kill)
            replica.start()
        yield found


@contextlib.contextmanager
def _etcd(directory: Path, binary: str) -> Iterator[str]:
    client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
    command = [binary, "--data-dir", str(directory / "etcd")]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    command += ["--initial-cluster", f"default={peer}"]
    with (directory / "etcd.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield client.replace("http", "etcd", 1)
    finally:
        process.kill()
        process.wait()


async def sends(etcd: str, rounds: int) -> dict[str, Any]:
    """Return messages/s and CPU per message by followers, and their ratios to no followers."""
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for followers in (0, 1, 2):
            with a_set(followers + 1, etcd, alone=not followers) as replicas:
                master = await _ready(replicas, followers + 1)
                place(replicas, master)
                topics.prepare(master.port)
                for case in (BASE, BATCH):
                    sample = load.run(case, master.port, master.pid, 3.0)
                    if sample.failures:
                        raise BenchError(f"{case.title}: {sample.failures} {sample.refusal}")
                    figures = found.setdefault(f"{case.name}-{followers}", {"per_s": [], "us": []})
                    figures["per_s"].append(sample.messages_per_s)
                    figures["us"].append(sample.cpu_us)
    result: dict[str, Any] = {}
    for case in (BASE, BATCH):
        none = _medians(found[f"{case.name}-0"])
        for followers in (0, 1, 2):
            mine = _medians(found[f"{case.name}-{followers}"])
            result[f"{case.name}, {followers} followers"] = {
                "messages_per_s": round(mine["per_s"]),
                "cpu_us": round(mine["us"], 3),
                "throughput_ratio": round(mine["per_s"] / none["per_s"], 3),
                "cpu_ratio": round(none["us"] / mine["us"], 3),
            }
    return result


def place(replicas: Set, master: Replica) -> None:
    """Give the master its own core, as if its followers were on other machines."""
    masters, others = load.cores()
    for replica in replicas.replicas:
        for task in Path(f"/proc/{replica.pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {masters if replica is master else others})


async def _ready(replicas: Set, count: int) -> Replica:
    if count > 1:
        return await replicas.master(count)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(ClientError, OSError):
            async with Producer(replicas.nameserver, group="ready") as producer:
                await producer.send("ready", b"", timeout_s=2.0)
            return replicas.replicas[0]
        await asyncio.sleep(0.1)
    raise BenchError("the broker does not start")


def _medians(figures: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in figures.items()}


class Senders:
    """Continuous sends of the bundled client, and the times of their answers."""

    def __init__(self, nameserver: str) -> None:
        self.answered_s: list[float] = []
        self.failures: list[str] = []
        self._nameserver = nameserver
        self._stop = asyncio.Event()

    async def __aenter__(self) -> "Senders":
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await self._running

    async def _run(self) -> None:
        async with Producer(self._nameserver, group="bench") as producer:
            await asyncio.gather(*(self._send(producer) for _ in range(SENDERS)))

    async def _send(self, producer: Producer) -> None:
        while not self._stop.is_set():
            try:
                await producer.send("bench", b"x" * 100)
                self.answered_s.append(time.monotonic())
            except ClientError as error:
                self.failures.append(str(error))

    def gap_s(self, since_s: float) -> float:
        """Return the longest time without an answer, from *since_s* on."""
        moments = sorted(each for each in self.answered_s if each >= since_s - 0.2)
        return max((b - a for a, b in pairwise(moments)), default=WAIT_S)


async def failover(etcd: str, rounds: int) -> dict[str, Any]:
    """Kill the master repeatedly."""
    gaps = []
    with a_set(3, etcd) as replicas:
        await replicas.master(3)
        async with Senders(replicas.nameserver) as senders:
            for _ in range(rounds):
                master = await replicas.master(3)
                await asyncio.sleep(1.0)
                killed_s = time.monotonic()
                master.kill()
                await asyncio.sleep(3.0)
                gaps.append(senders.gap_s(killed_s))
                master.start()
        return _times(gaps, senders)


async def switch(etcd: str, rounds: int) -> dict[str, Any]:
    """Switch the set repeatedly."""
    gaps = []
    with a_set(3, etcd) as replicas:
        await replicas.master(3)
        async with Senders(replicas.nameserver) as senders, Admin(replicas.nameserver) as admin:
            for _ in range(rounds):
                master = await replicas.master(3)
                await asyncio.sleep(1.0)
                began_s = time.monotonic()
                await admin.request(
                    master.address,
                    RequestCode.CHANGE_REPLICA_SET,
                    {"action": "switch"},
                    timeout_s=10.0,
                )
                await asyncio.sleep(2.0)
                gaps.append(senders.gap_s(began_s))
        return _times(gaps, senders)


def _times(gaps: list[float], senders: Senders) -> dict[str, Any]:
    ordered = sorted(gaps)
    return {
        "rounds": len(gaps),
        "p50_ms": round(statistics.median(ordered) * 1000),
        "p99_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000),
        "max_ms": round(ordered[-1] * 1000),
        "failed_sends": len(senders.failures),
        "sends": len(senders.answered_s),
    }


async def seeding(etcd: str, _rounds: int) -> dict[str, Any]:
    """Seed a follower again, and copy the same files with cp and fsync."""
    with a_set(2, etcd) as replicas:
        master = await replicas.master(2)
        topics.prepare(master.port)
        log = master.store / "commitlog"
        case = replace(BATCH, body_size_bytes=1024)
        while (size := (await replicas.status())["logEnd"]) < SEED_BYTES:
            load.run(case, master.port, master.pid, 2.0)
        master = await replicas.master(2)
        other = next(each for each in replicas.replicas if each is not master)
        target = BUILD / "copied"
        began_s = time.monotonic()
        shutil.copytree(log, target)
        for path in target.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        copied_s = time.monotonic() - began_s
        shutil.rmtree(target)
        async with Admin(replicas.nameserver) as admin:
            await admin.request(
                other.address, RequestCode.CHANGE_REPLICA_SET, {"action": "reseed"}, timeout_s=30.0
            )
            began_s = time.monotonic()
            while True:
                # Its port is closed for a moment while its store is replaced.
                with contextlib.suppress(ClientError):
                    answer = await admin.request(other.address, RequestCode.GET_REPLICA_SET)
                    status = json.loads(answer.body)
                    if status["isClean"] and status["logEnd"] >= size:
                        break
                await asyncio.sleep(0.05)
        seeded_s = time.monotonic() - began_s
        allocated = sum(path.stat().st_blocks * 512 for path in log.iterdir())
    return {
        "bytes": size,
        "seeding_mb_per_s": round(size / seeded_s / 1e6),
        "cp_mb_per_s": round(allocated / copied_s / 1e6),
        "ratio": round(size / seeded_s / (allocated / copied_s), 3),
    }


async def promotion(etcd: str, _rounds: int) -> dict[str, Any]:
    """Kill a master with many topics and timers."""
    with a_set(3, etcd) as replicas:
        master = await replicas.master(3)
        async with Admin(replicas.nameserver) as admin:
            for number in range(TOPICS):
                await admin.create_topic(f"topic-{number}", queues=8)
        due_ms = int(time.time() * 1000) + 86_400_000
        async with Producer(replicas.nameserver, group="bench") as producer:

            async def send(first: int) -> None:
                for number in range(first, TIMERS, 64):
                    message = Message(
                        f"topic-{number % TOPICS}",
                        b"later",
                        deliver_at_ms=due_ms + number % 3600 * 1000,
                    )
                    await producer.send(message)

            await asyncio.gather(*(send(first) for first in range(64)))
        master = await replicas.master(3)
        await asyncio.sleep(3.0)
        master.kill()
        replicas.replicas.remove(master)
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            status = await replicas.status()
            found = [each for each in replicas.replicas if each.number == status.get("masterId")]
            if found and "serving as the master" in found[0].log.read_text():
                await asyncio.sleep(0.5)
                elapsed_s = found[0].seconds_from_elected_to_serving()
                return {"topics": TOPICS, "timers": TIMERS, "ms": round(elapsed_s * 1000)}
            await asyncio.sleep(0.1)
    raise BenchError("nobody was promoted")


MEASURES: dict[str, Callable[[str, int], Any]] = {
    "sends": sends,
    "failover": failover,
    "switch": switch,
    "seeding": seeding,
    "promotion": promotion,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 2 if that is not possible."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(MEASURES), help="some of: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    parser.add_argument("--save", type=Path, help="a JSON file: what it has is not done again")
    options = parser.parse_args(arguments)
    if options.save is not None:
        options.save.parent.mkdir(parents=True, exist_ok=True)
    built = HERE.parent / "build" / "etcd"
    etcd = shutil.which("etcd", path=os.pathsep.join([os.environ.get("PATH", ""), str(built)]))
    if etcd is None:
        print("etcd is needed: apt-get install etcd-server", file=sys.stderr)
        return 2
    done = json.loads(options.save.read_text()) if options.save and options.save.exists() else {}
    try:
        for name in re.split(",", options.only):
            if name not in done:
                done[name] = asyncio.run(MEASURES[name](etcd, options.rounds))
                print(name, json.dumps(done[name], indent=2), flush=True)
                if options.save:
                    options.save.write_text(json.dumps(done, indent=2) + "\n")
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
