"""Network: a host for each process of a replica set, and cuts between hosts in either direction.

A host is a network namespace with one end of a veth pair; the other end is attached to a bridge,
where the clients are. A cut gives the sender a wrong hardware address for the receiver, one that
does not exist. Packets are then lost without an error or a refusal, as when a switch fails. Where
namespaces cannot be created, all hosts are 127.0.0.1 and nothing can be cut.

    10.77.0.254     the clients
    10.77.0.<n>     the host number n
"""

import ctypes
import os
import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.workshop import run

BRIDGE = "hub"
CLIENTS = "10.77.0.254"
NAMES = Path("/run/netns")
NOBODY = "02:00:00:00:00:01"
TRIED_PORT = 9
ARRIVES_WITHIN_S, IS_LOST_AFTER_S = 5.0, 0.1
CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Host:
    """Where a process runs."""

    name: str
    address: str
    enter: tuple[str, ...] = ()
    """The start of a command line that runs on this host."""


def can_cut() -> bool:
    """Return whether this machine has network namespaces and this process may create them."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    tried = ["unshare", "--net", "ip", "link", "add", "tried", "type", "veth", "peer", "name", "b"]
    return subprocess.run(tried, capture_output=True).returncode == 0


class Network:
    """The hosts of one round, from ``with`` to its end."""

    def __init__(self, names: Iterable[str], *, is_cuttable: bool) -> None:
        self.is_cuttable = is_cuttable
        self.hosts = {name: self._host(number, name) for number, name in enumerate(names, 1)}
        self._cuts: Counter[tuple[str, str]] = Counter()

    def _host(self, number: int, name: str) -> Host:
        if not self.is_cuttable:
            return Host(name, "127.0.0.1")
        return Host(name, f"10.77.0.{number}", ("ip", "netns", "exec", name))

    def __enter__(self) -> "Network":
        if self.is_cuttable:
            # In the suite's own mounts, so the names disappear with the suite.
            NAMES.mkdir(exist_ok=True)
            run("mount", "-t", "tmpfs", "names", NAMES)
            run("ip", "link", "add", BRIDGE, "type", "bridge")
            run("ip", "addr", "add", f"{CLIENTS}/24", "dev", BRIDGE)
            run("ip", "link", "set", BRIDGE, "up")
            for host in self.hosts.values():
                _make(host)
            self._try()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_cuttable:
            for name in self.hosts:
                # A namespace outlives its name while a socket is open, and so would this.
                run("ip", "link", "del", f"to-{name}")
                run("ip", "netns", "del", name)
            run("ip", "link", "del", BRIDGE)
            run("umount", NAMES)

    def cut(self, sender: str, receiver: str) -> None:
        """Drop a host's packets to another host, or to CLIENTS, until ``heal``."""
        self._cuts[sender, receiver] += 1
        if self._cuts[sender, receiver] == 1:
            self._neighbour("replace", sender, receiver, "lladdr", NOBODY, "nud", "permanent")

    def heal(self, sender: str, receiver: str) -> None:
        """Let packets through again, once each ``cut`` has been healed."""
        self._cuts[sender, receiver] -= 1
        if self._cuts[sender, receiver] == 0:
            self._neighbour("del", sender, receiver)

    def socket(self, name: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
        """Return a socket on a host, for a client on that side of a cut."""
        if not self.is_cuttable:
            return socket.socket(type=kind)
        # A separate thread enters the namespace and ends; a socket stays where it was created.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_socket_on, name, kind).result()

    def _try(self) -> None:
        """Cut two hosts and heal the cut. Raise OSError if a cut has no effect."""
        sender, receiver, *_ = self.hosts
        self.cut(sender, receiver)
        if self._arrives(sender, receiver, IS_LOST_AFTER_S):
            raise OSError("a cut between hosts lets everything through: nothing can be cut here")
        self.heal(sender, receiver)
        if not self._arrives(sender, receiver, ARRIVES_WITHIN_S):
            raise OSError("hosts do not reach each other: look at ip's and the firewall's rules")

    def _arrives(self, sender: str, receiver: str, within_s: float) -> bool:
        with (
            self.socket(sender, socket.SOCK_DGRAM) as sending,
            self.socket(receiver, socket.SOCK_DGRAM) as receiving,
        ):
            receiving.bind((self.hosts[receiver].address, TRIED_PORT))
            receiving.settimeout(within_s)
            sending.sendto(b"there?", receiving.getsockname())
            try:
                return bool(receiving.recv(8))
            except TimeoutError:
                return False

    def _neighbour(self, verb: str, sender: str, receiver: str, *rest: str) -> None:
        host = self.hosts.get(receiver)
        address = host.address if host else receiver
        run("ip", "-n", sender, "neigh", verb, address, *rest, "dev", "eth0")


def _socket_on(name: str, kind: socket.SocketKind) -> socket.socket:
    libc = ctypes.CDLL(None, use_errno=True)
    with (NAMES / name).open() as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"the host {name} cannot be entered")
    return socket.socket(type=kind)


def _make(host: Host) -> None:
    outer = f"to-{host.name}"
    run("ip", "netns", "add", host.name)
    run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", host.name)
    run("ip", "link", "set", outer, "master", BRIDGE, "up")
    run("ip", "-n", host.name, "link", "set", "lo", "up")
    run("ip", "-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
    run("ip", "-n", host.name, "link", "set", "eth0", "up")
