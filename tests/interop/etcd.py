"""Real etcd servers: one to three processes of a cluster, killed, stopped and started again.

The binary is looked for in PATH and in build/etcd; Debian's package etcd-server has it:

    apt-get download etcd-server && dpkg -x etcd-server_*.deb build/etcd-package
    install -D build/etcd-package/usr/bin/etcd build/etcd/etcd
"""

import asyncio
import os
import shutil
import signal
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rockhopper.broker.replication.engines.engine import EngineError
from rockhopper.broker.replication.engines.etcd import forms
from rockhopper.broker.replication.engines.etcd.forms import Body, StatusAnswer
from rockhopper.broker.replication.engines.etcd.gateway import EtcdAccess, EtcdGateway
from tests.support.free_ports import free_ports
from tests.support.hang import HANG_S

_BUILT = Path(__file__).parents[2] / "build/etcd"
START_TIMEOUT_S = HANG_S


def binary() -> str | None:
    """Where etcd is, if it is."""
    return shutil.which("etcd", path=os.pathsep.join([os.environ.get("PATH", ""), str(_BUILT)]))


def missing_tools() -> list[str]:
    """Return what this machine lacks."""
    return [] if binary() else ["etcd"]


@dataclass
class Member:
    """One process of a cluster, and its directory."""

    command: Sequence[str]
    endpoint: str
    directory: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, with what its directory holds."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal: SIGSTOP makes it one that does not answer."""
        assert self.process
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it with SIGKILL, if it runs."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


class EtcdCluster:
    """All members of one, which start together; with *is_tls* by certificates of their own.

    *hosts* are the addresses of the members, where they are not all on this one.
    """

    def __init__(
        self, directory: Path, size: int, *, is_tls: bool = False, hosts: Sequence[str] = ()
    ) -> None:
        found = binary()
        assert found
        clients = "https" if is_tls else "http"
        self._tls = trusting() if is_tls else None
        ports = free_ports(2 * size)
        hosts = hosts or ["127.0.0.1"] * size
        peers = {f"m{each}": f"http://{hosts[each]}:{ports[2 * each + 1]}" for each in range(size)}
        self.members: list[Member] = []
        for number, (name, peer) in enumerate(peers.items()):
            endpoint = f"{hosts[number]}:{ports[2 * number]}"
            home = directory / name
            home.mkdir(parents=True)
            options = {
                "name": name,
                "data-dir": str(home / "data"),
                "listen-client-urls": f"{clients}://{endpoint}",
                "advertise-client-urls": f"{clients}://{endpoint}",
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": ",".join(f"{one}={url}" for one, url in peers.items()),
                "initial-cluster-token": str(directory),
                "auto-tls": str(is_tls).lower(),
            }
            command = [found, *(f"--{key}={value}" for key, value in options.items())]
            self.members.append(Member(command, endpoint, home))

    @property
    def endpoints(self) -> list[str]:
        return [each.endpoint for each in self.members]

    async def start(self) -> None:
        """Start all that do not run, and return when each answers."""
        for member in self.members:
            if not member.process:
                member.start()
        async with asyncio.timeout(START_TIMEOUT_S):
            for member in self.members:
                await self._answers(member)

    async def leader(self) -> Member:
        """The one that leads the cluster; raises LookupError while it elects another."""
        statuses = [await status(each.endpoint, self._tls) for each in self.members]
        for member, told in zip(self.members, statuses, strict=True):
            if told.leader and told.header.member_id == told.leader:
                return member
        raise LookupError("no member of the etcd leads just now")

    def kill(self) -> None:
        """End all of it."""
        for member in self.members:
            member.kill()

    async def _answers(self, member: Member) -> None:
        while True:
            try:
                if (await status(member.endpoint, self._tls)).leader:
                    return
            except EngineError:
                assert member.process
                if member.process.poll() is not None:
                    raise
            await asyncio.sleep(0.05)


def trusting() -> ssl.SSLContext:
    """Any certificate will do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def status(endpoint: str, tls: ssl.SSLContext | None = None) -> StatusAnswer:
    """Ask one member how it is."""
    return await ask(endpoint, forms.STATUS, {}, StatusAnswer, tls)


async def ask(
    endpoint: str,
    path: str,
    body: Body,
    form: type[forms.Form],
    tls: ssl.SSLContext | None = None,
) -> forms.Form:
    """Make one request of one member."""
    gateway = EtcdGateway(EtcdAccess([endpoint], tls=tls))
    try:
        return await gateway.ask(path, body, form)
    finally:
        await gateway.close()
