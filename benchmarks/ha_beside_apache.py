"""The same faults on our replica set and on Apache's controller mode, under the same sends.

    master-killed     kill -9 of the master, which is started again later
    master-frozen     SIGSTOP of the master for ten seconds
    follower-killed   kill -9 of a broker that does not lead
    engine-killed     kill -9 of the leader of the controllers, or of the etcd
    planned           ours: `rockhopper ha switch`; Apache's: `mqadmin electMaster` of another
    all-killed        kill -9 of every process, then all are started

Each system has three brokers, of which two must store a message before its answer. Apache's has
three controllers; ours has three nodes of etcd.

For each fault, the results are the pause (last answer to next), failed sends, acknowledged messages
that are lost, and queue offsets that have another message than before. If sends do not continue
within 90 s after a fault, this is noted. All brokers know the topic before a fault, because
Apache's slaves copy topics only every few seconds. A topic that its new master lacks is lost, with
all its messages.

Clients: Java's with its defaults, the same with a route poll every 5 s, and the bundled one.
Results are written to *--save* as they arrive; those that are already there are not measured again.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from benchmarks.errors import BenchError
from benchmarks.load import BUILD
from rockhopper.client.admin.admin import Admin
from rockhopper.client.errors import ClientError
from tests.chaos.replicas.network import Network
from tests.chaos.replicas.observing import Observer
from tests.chaos.replicas.set_of_replicas import SetOfReplicas, host_names, running
from tests.interop.apache_set import ApacheSet
from tests.interop.java_client import JavaClient
from tests.support.steady_sends import (
    TIMEOUT_S,
    JavaSender,
    OurSender,
    Sender,
    Sent,
    answered_since,
    read_numbers,
    wall_ms,
)

TOPIC, QUEUES = "Compared", 4
WHOLE_WITHIN_S = 240.0
FROZEN_S = 10.0
AWAY_S = 15.0
"""How long the killed processes stay down."""
BEFORE, AFTER = 100, 100
JAVA: dict[str, dict[str, object]] = {"java": {}, "java-poll-5s": {"pollMs": 5000}}
Places = dict[tuple[int, int], int]


@dataclass(frozen=True)
class Finding:
    """The results of one fault."""

    pause_ms: float | None
    """None: sends did not continue within TIMEOUT_S."""
    failed: int
    acknowledged: int
    lost: int | None = None
    """None, as in the fields below, if no master was left to read from."""
    rewritten: int | None = None
    repeated: int | None = None
    last_failure: str = ""


class System(Protocol):
    """A set of brokers in which faults are made."""

    nameserver: str

    async def is_whole(self) -> bool:
        """Return whether all three are in sync."""

    async def master(self) -> str:
        """Return the address at which the master answers clients."""

    async def all_know_the_topic(self) -> bool:
        """Return whether every broker that may lead next has the topic."""

    async def kill_master(self) -> None: ...

    async def freeze_master(self) -> None: ...

    async def kill_follower(self) -> None: ...

    async def kill_engine(self) -> None: ...

    async def hand_over(self) -> None: ...

    async def kill_all(self) -> None: ...

    async def mend(self) -> None:
        """Start what is stopped, and resume what is frozen."""


class Ours:
    """Three replicas and three nodes of etcd."""

    def __init__(self, replicas: SetOfReplicas, observer: Observer) -> None:
        self._set, self._observer = replicas, observer
        self.nameserver = replicas.nameserver

    async def is_whole(self) -> bool:
        """See System."""
        return len(self._observer.statuses) == 3 and self._observer.is_whole_set()

    async def master(self) -> str:
        """See System."""
        return self._observer.master_address

    async def all_know_the_topic(self) -> bool:
        """See System: the topic is in the log, as messages are."""
        return True

    def _leading(self) -> int:
        assert self._observer.master is not None
        return self._observer.master

    async def kill_master(self) -> None:
        """See System."""
        self._set.replicas[self._leading()].kill()

    async def freeze_master(self) -> None:
        """See System."""
        self._set.replicas[self._leading()].signal(signal.SIGSTOP)

    async def kill_follower(self) -> None:
        """See System."""
        leading = self._leading()
        next(each for each in self._set.replicas.values() if each.id != leading).kill()

    async def kill_engine(self) -> None:
        """See System."""
        (await self._set.etcd.leader()).kill()

    async def hand_over(self) -> None:
        """See System."""
        await self._observer.switch()

    async def kill_all(self) -> None:
        """See System."""
        self._set.kill()

    async def mend(self) -> None:
        """See System."""
        await self._set.etcd.start()
        for replica in self._set.replicas.values():
            replica.signal(signal.SIGCONT)
            replica.start()


class Theirs:
    """Apache's controllers and brokers."""

    def __init__(self, found: ApacheSet) -> None:
        self._set = found
        self.nameserver = found.nameserver

    async def is_whole(self) -> bool:
        """See System."""
        return bool(await self.master()) and await self._set.in_sync() == 3

    async def master(self) -> str:
        """See System."""
        return await self._set.master()

    async def all_know_the_topic(self) -> bool:
        """See System: slaves copy topics every few seconds, and topics they lack are lost."""
        return await self._set.all_have(TOPIC)

    async def kill_master(self) -> None:
        """See System."""
        self._set.brokers[await self.master()].kill()

    async def freeze_master(self) -> None:
        """See System."""
        self._set.brokers[await self.master()].signal(signal.SIGSTOP)

    async def kill_follower(self) -> None:
        """See System."""
        master = await self.master()
        next(each for address, each in self._set.brokers.items() if address != master).kill()

    async def kill_engine(self) -> None:
        """See System."""
        self._set.controllers[await self._set.leader()].kill()

    async def hand_over(self) -> None:
        """See System."""
        await self._set.elect_another()

    async def kill_all(self) -> None:
        """See System."""
        self._set.kill()

    async def mend(self) -> None:
        """See System."""
        for each in self._set.brokers.values():
            each.signal(signal.SIGCONT)
        await self._set.start()


async def _master_killed(system: System) -> None:
    await system.kill_master()
    await asyncio.sleep(AWAY_S)


async def _master_frozen(system: System) -> None:
    await system.freeze_master()
    await asyncio.sleep(FROZEN_S)


async def _follower_killed(system: System) -> None:
    await system.kill_follower()
    await asyncio.sleep(AWAY_S)


async def _engine_killed(system: System) -> None:
    await system.kill_engine()
    await asyncio.sleep(AWAY_S)


async def _planned(system: System) -> None:
    await system.hand_over()
    await asyncio.sleep(AWAY_S)


async def _all_killed(system: System) -> None:
    await system.kill_all()


FAULTS: dict[str, Callable[[System], Awaitable[None]]] = {
    "planned": _planned,
    "follower-killed": _follower_killed,
    "engine-killed": _engine_killed,
    "master-killed": _master_killed,
    "master-frozen": _master_frozen,
    "all-killed": _all_killed,
}


async def _until(what: str, is_so: Callable[[], Awaitable[bool]]) -> None:
    deadline_s = time.monotonic() + WHOLE_WITHIN_S
    while not await is_so():
        if time.monotonic() > deadline_s:
            raise BenchError(f"{what}: not after {WHOLE_WITHIN_S:.0f} s")
        await asyncio.sleep(0.2)


async def _create_topic(system: System) -> None:
    deadline_s = time.monotonic() + WHOLE_WITHIN_S
    while True:
        try:
            async with Admin(system.nameserver) as admin:
                await admin.create_topic(TOPIC, queues=QUEUES)
                return
        except ClientError:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(0.5)


async def measure(system: System, fault: str, sender: Sender) -> Finding:
    """Cause one fault during sends, repair it, and compare."""
    await answered_since(sender, wall_ms(), BEFORE)
    before = await read_numbers(await system.master(), TOPIC, QUEUES)
    began_ms = wall_ms()
    await FAULTS[fault](system)
    await system.mend()
    pause_ms = None
    try:
        sent = await answered_since(sender, wall_ms(), AFTER)
        pause_ms = sent.pause_ms(began_ms)
        await _until("all in sync again", system.is_whole)
        sent = await answered_since(sender, wall_ms(), AFTER)
        pause_ms = sent.pause_ms(began_ms)
    except (TimeoutError, BenchError) as error:
        print(fault, error, file=sys.stderr, flush=True)
        sent = await sender.look()
    acknowledged = sent.numbers()
    found = await _read(system)
    return judged(before, found, acknowledged, sent, pause_ms)


async def _read(system: System) -> Places | None:
    """Return the messages of the queues; None if no master can return them."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await read_numbers(await system.master(), TOPIC, QUEUES)
    except (OSError, EOFError, ValueError):
        return None


def judged(
    before: Places,
    found: Places | None,
    acknowledged: set[int],
    sent: Sent,
    pause_ms: float | None,
) -> Finding:
    """Compare the queues' messages now with those before, and with the *acknowledged* ones."""
    finding = Finding(
        pause_ms=None if pause_ms is None else round(pause_ms),
        failed=len(sent.failures),
        acknowledged=len(acknowledged),
        last_failure=sent.failures[-1].why if sent.failures else "",
    )
    if found is None:
        return finding
    held = list(found.values())
    return replace(
        finding,
        lost=len(acknowledged - set(held)),
        rewritten=sum(found.get(place, number) != number for place, number in before.items()),
        repeated=len(held) - len(set(held)),
    )


@contextlib.asynccontextmanager
async def ours(directory: Path) -> AsyncIterator[System]:
    """Start our set."""
    network = Network(host_names(3), is_cuttable=False)
    async with running(directory, network, 3) as replicas:
        addresses = {number: each.address for number, each in replicas.replicas.items()}
        async with Observer(addresses) as observer:
            yield Ours(replicas, observer)


@contextlib.asynccontextmanager
async def apache(directory: Path) -> AsyncIterator[System]:
    """Start Apache's set."""
    found = ApacheSet(directory)
    try:
        await found.start()
        yield Theirs(found)
    finally:
        found.kill()


SYSTEMS = {"ours": ours, "apache": apache}


async def compare(
    name: str, client: str, faults: Sequence[str]
) -> AsyncIterator[tuple[str, Finding]]:
    """Yield the results of one system as they arrive."""
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="beside-", dir=BUILD) as directory:
        for fault in faults:
            home = Path(directory) / fault
            home.mkdir()
            async with SYSTEMS[name](home) as system:
                await _until("all in sync", system.is_whole)
                await _create_topic(system)
                await _until("the topic is known to all", system.all_know_the_topic)
                yield fault, await _under_sends(system, client, fault, home)


async def _under_sends(system: System, client: str, fault: str, home: Path) -> Finding:
    if client == "ours":
        async with OurSender(system.nameserver, TOPIC) as sender:
            return await measure(system, fault, sender)
    java = JavaClient(home / "java")
    try:
        async with JavaSender(java, system.nameserver, TOPIC, **JAVA[client]) as steady:
            return await measure(system, fault, steady)
    finally:
        java.close()


Done = dict[str, dict[str, Any]]
"""Results by system, client and fault."""


def _shown(found: dict[str, Any] | None, key: str) -> str:
    if found is None:
        return "–"
    if found[key] is None:
        return f"not within {TIMEOUT_S:.0f} s" if key == "pause_ms" else "?"
    return f"{found[key]:,.0f}"


def table(done: Done) -> str:
    """Return a Markdown table with a line for each fault and client."""
    lines = [
        "| fault | client | pause, ms | failed sends | acknowledged, lost | rewritten places |",
        "|---|---|---|---|---|---|",
    ]
    for fault in FAULTS:
        for client in (*JAVA, "ours"):
            pair = [done.get(f"{name} {client} {fault}") for name in SYSTEMS]
            if not any(pair):
                continue
            columns = [
                " / ".join(_shown(each, key) for each in pair)
                for key in ("pause_ms", "failed", "lost", "rewritten")
            ]
            lines.append(f"| {fault} | {client} | {' | '.join(columns)} |")
    return "\n".join(lines)


async def _run(options: argparse.Namespace, done: Done) -> None:
    for client in options.clients.split(","):
        for name in options.systems.split(","):
            todo = [
                fault
                for fault in options.faults.split(",")
                if f"{name} {client} {fault}" not in done
            ]
            async for fault, finding in compare(name, client, todo):
                done[f"{name} {client} {fault}"] = asdict(finding)
                print(name, client, fault, finding, flush=True)
                if options.save:
                    options.save.write_text(json.dumps(done, indent=2) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 2 if that is not possible."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", default=",".join(FAULTS), help="some of: %(default)s")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="some of: %(default)s")
    parser.add_argument("--clients", default="java,java-poll-5s,ours", help="some of: %(default)s")
    parser.add_argument("--save", type=Path, help="a JSON file: what it has is not done again")
    options = parser.parse_args(arguments)
    if options.save is not None:
        options.save.parent.mkdir(parents=True, exist_ok=True)
    done = json.loads(options.save.read_text()) if options.save and options.save.exists() else {}
    try:
        asyncio.run(_run(options, done))
    except (BenchError, TimeoutError) as error:
        print(error, file=sys.stderr)
        return 2
    print(table(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
