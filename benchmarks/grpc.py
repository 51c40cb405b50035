"""The cost of a RocketMQ 5 client: our endpoint beside Apache's proxy and broker in one JVM.

    python -m benchmarks.grpc [--rounds 3] [--seconds 4] [--save NAME]

Both are measured in turn, on the servers' core, by the same load generator on the other core. The
cases are single sends of 512 bytes, receiving them with an acknowledgement each, and many idle
clients, each a connection with a Telemetry stream. The server that is not measured is stopped. The
figures are CPU time per message and messages per second. Apache's JVM is warmed up before.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import servers
from benchmarks.errors import BenchError
from benchmarks.load import BUILD, HERE, cores, wait_until_quiet
from benchmarks.peers import HEAP_MB, JVM_OPTIONS
from benchmarks.report import table
from rockhopper.client import Admin
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.codes import RequestCode
from tests.interop.apache import BuildError
from tests.interop.grpc import apache_proxy
from tests.interop.grpc.topics import until_registered
from tests.interop.processes import ProcessError

TOPIC, GROUP = "LoadGrpc", "load_grpc"
QUEUES = 4
IDLE_CLIENTS = 500
WARM_UP_S = 30.0
"""The warm-up of each server; by then the JVM has compiled the code that it will run."""
CPU_RATIO_MAX = 0.3
RATE_RATIO_MIN = 1.0
IDLE_KB_MAX = 15.0
OURS, APACHE = "Rockhopper", "Apache"


@dataclass(slots=True)
class Peer:
    """A running server with its topic and group."""

    name: str
    pid: int
    endpoint: str
    broker: str

    def cpu_s(self) -> float:
        """Return the CPU seconds used so far."""
        stat = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def own_kb(self) -> int:
        """Return the anonymous memory, without pages of mapped files."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
        raise BenchError(f"{self.name} is gone.")


@dataclass(slots=True)
class Found:
    """The results of one server in one case, one value per round."""

    cpu_us: list[float] = field(default_factory=list)
    """CPU time per message."""
    per_s: list[float] = field(default_factory=list)
    load_cpu_share: list[float] = field(default_factory=list)
    p50_us: list[float] = field(default_factory=list)
    p99_us: list[float] = field(default_factory=list)


Findings = dict[str, dict[str, Found]]
"""The results by case and server."""


def build_load() -> Path:
    """Build the load generator; Go rebuilds it only after a change of its sources."""
    BUILD.mkdir(exist_ok=True)
    program = BUILD / "grpcload"
    try:
        subprocess.run(["go", "build", "-o", program, "."], cwd=HERE / "grpcload", check=True)
    except FileNotFoundError:
        raise BenchError("There is no Go compiler; install one.") from None
    except subprocess.CalledProcessError as error:
        raise BenchError("go could not build benchmarks/grpcload") from error
    return program


def command(peer: Peer, mode: str, **options: object) -> list[str]:
    """Return the load generator's command."""
    named = {"endpoint": peer.endpoint, "broker": peer.broker, "topic": TOPIC, "group": GROUP}
    given = {"mode": mode, **named, "queues": QUEUES, **options}
    return [str(BUILD / "grpcload"), *(f"-{key}={value}" for key, value in given.items())]


def _on_the_load_core() -> None:
    os.sched_setaffinity(0, {cores()[1]})


def put_load(peer: Peer, mode: str, seconds: float, found: Found) -> None:
    """Put load on *peer* and store the results."""
    before = peer.cpu_s()
    done = subprocess.run(
        command(peer, mode, seconds=seconds),
        capture_output=True,
        text=True,
        preexec_fn=_on_the_load_core,
        timeout=seconds + 90,
    )
    if not done.stdout:
        raise BenchError(f"The load generator gave up on {peer.name}: {done.stderr.strip()}")
    result = json.loads(done.stdout)
    if result["failures"] or not result["messages"]:
        raise BenchError(
            f"{peer.name}, {mode}: {result['failures']} failures, {result['first_failure']}"
        )
    found.cpu_us.append((peer.cpu_s() - before) / result["messages"] * 1e6)
    found.per_s.append(result["messages"] / result["seconds"])
    found.load_cpu_share.append(result["load_cpu_share"])
    found.p50_us.append(result["p50_us"])
    found.p99_us.append(result["p99_us"])


def idle_client_kb(peer: Peer) -> float:
    """Return the memory that an idle client costs."""
    before = peer.own_kb()
    process = subprocess.Popen(
        command(peer, "idle", connections=IDLE_CLIENTS),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        if not process.stdout.readline():
            raise BenchError(f"{IDLE_CLIENTS} clients could not connect to {peer.name}")
        return (peer.own_kb() - before) / IDLE_CLIENTS
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


@contextlib.contextmanager
def rockhopper() -> Iterator[Peer]:
    """Run our broker on the servers' core."""
    [port] = servers.free_ports(1)
    settings = {"grpcPort": str(port), "brokerName": "bench"}
    with servers.rockhopper(settings) as server:
        prepare(f"127.0.0.1:{server.namesrv_port}")
        yield Peer(OURS, server.pid, f"127.0.0.1:{port}", "bench")


@contextlib.contextmanager
def apache() -> Iterator[Peer]:
    """Run Apache's proxy, broker and name server on the servers' core."""
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="proxy-", dir=BUILD) as directory:
        try:
            running = apache_proxy.start(
                Path(directory), heap_mb=HEAP_MB, jvm_options=JVM_OPTIONS, cores={cores()[0]}
            )
        except (BuildError, ProcessError) as error:
            raise BenchError(str(error)) from error
        try:
            prepare(running.nameserver)
            yield Peer(APACHE, running.pid, running.endpoint, "apache")
        finally:
            os.kill(running.pid, signal.SIGCONT)
            running.kill()


def prepare(nameserver: str) -> None:
    """Create the topic, and the group that starts at its beginning."""

    async def make() -> None:
        await until_registered(nameserver)
        async with Admin(nameserver) as admin:
            attributes = {"message.type": "NORMAL"}
            for master in await admin.create_topic(TOPIC, queues=QUEUES, attributes=attributes):
                code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
                body = json.dumps({"groupName": GROUP}).encode()
                await admin.request(master.address, code, body=body)
                for queue_id in range(QUEUES):
                    await admin.offsets.commit(GROUP, MessageQueue(TOPIC, master.name, queue_id), 0)

    asyncio.run(make())


@contextlib.contextmanager
def alone(peer: Peer, others: Sequence[Peer]) -> Iterator[None]:
    """Stop all servers except *peer*."""
    for other in others:
        if other is not peer:
            os.kill(other.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for other in others:
            os.kill(other.pid, signal.SIGCONT)


def measure(rounds: int, seconds: float) -> tuple[Findings, dict[str, float]]:
    """Measure both in turn; return each case's results, and the memory of an idle client."""
    found = {case: {OURS: Found(), APACHE: Found()} for case in ("send", "receive")}
    idle_kb = {}
    with rockhopper() as ours, apache() as theirs:
        peers = (ours, theirs)
        for peer in peers:
            with alone(peer, peers):
                put_load(peer, "send", WARM_UP_S, Found())
                put_load(peer, "receive", WARM_UP_S / 2, Found())
        for _ in range(rounds):
            wait_until_quiet(5)
            for peer in peers:
                with alone(peer, peers):
                    put_load(peer, "send", seconds, found["send"][peer.name])
                    put_load(peer, "receive", seconds / 2, found["receive"][peer.name])
        for peer in peers:
            with alone(peer, peers):
                idle_kb[peer.name] = idle_client_kb(peer)
    return found, idle_kb


def render(found: Findings, idle_kb: dict[str, float]) -> str:
    """Return the table for people, with the ratios and their targets."""
    rows = [["case", "server", "CPU us", "messages/s", "p50 us", "p99 us", "CPU of the load"]]
    verdicts = []
    for case, by_server in found.items():
        for server, values in by_server.items():
            numbers = (values.cpu_us, values.per_s, values.p50_us, values.p99_us)
            medians = [f"{statistics.median(each) or math.nan:,.0f}" for each in numbers]
            rows.append([case, server, *medians, f"{statistics.median(values.load_cpu_share):.2f}"])
        ours, theirs = by_server[OURS], by_server[APACHE]
        cpu = statistics.median(ours.cpu_us) / statistics.median(theirs.cpu_us)
        rate = statistics.median(ours.per_s) / statistics.median(theirs.per_s)
        verdicts.append(f"{case}: CPU {cpu:.2f} of Apache's{_verdict(cpu <= CPU_RATIO_MAX)}")
        verdicts.append(f"{case}: throughput {rate:.2f}{_verdict(rate >= RATE_RATIO_MIN)}")
    for server, kb in idle_kb.items():
        asked = _verdict(kb <= IDLE_KB_MAX) if server == OURS else ""
        verdicts.append(f"idle client: {kb:.1f} kB, {server}{asked}")
    return table(rows) + "\n\n" + "\n".join(f"- {each}" for each in verdicts) + "\n"


def _verdict(is_well: bool) -> str:
    return ": ok" if is_well else ": MISSED"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both, and print or save the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grpc", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/results/NAME.md and .json")
    options = parser.parse_args(arguments)
    build_load()
    try:
        found, idle_kb = measure(options.rounds, options.seconds)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    text = render(found, idle_kb)
    print(text)
    if options.save:
        document: dict[str, Any] = {
            case: {server: asdict(values) for server, values in by_server.items()}
            for case, by_server in found.items()
        }
        directory = HERE / "results"
        (directory / f"{options.save}.md").write_text(text)
        kept = json.dumps({**document, "idle_client_kb": idle_kb}, indent=1)
        (directory / f"{options.save}.json").write_text(kept + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
