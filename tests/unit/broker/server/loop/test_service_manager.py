"""What systemd hears, by a socket of ours in its place."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.server.loop.systems import ServiceManager
from tests.support.hang import HANG_S


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(HANG_S)
        yield listener


def manager(systemd: socket.socket, **environment: str) -> ServiceManager:
    return ServiceManager({"NOTIFY_SOCKET": systemd.getsockname(), **environment})


def test_it_hears_when_clients_may_come_and_when_it_ends(systemd: socket.socket) -> None:
    told = manager(systemd)
    told.serving({"broker": "127.0.0.1:10911", "http": "none"})
    assert systemd.recv(200) == b"READY=1\nSTATUS=serving: broker 127.0.0.1:10911, http none"
    told.stopping()
    assert systemd.recv(200).startswith(b"STOPPING=1\n")


async def test_a_watched_process_says_that_its_loop_turns(systemd: socket.socket) -> None:
    manager(systemd, WATCHDOG_USEC="3000", WATCHDOG_PID=str(os.getpid())).serving({})
    for expected in (b"READY=1\nSTATUS=serving: ", b"WATCHDOG=1", b"WATCHDOG=1"):
        assert await asyncio.to_thread(systemd.recv, 200) == expected


def test_the_watchdog_of_another_process_is_not_fed(systemd: socket.socket) -> None:
    manager(systemd, WATCHDOG_USEC="3000", WATCHDOG_PID="1").serving({})
    systemd.recv(200)
    systemd.setblocking(False)
    with pytest.raises(BlockingIOError):
        systemd.recv(200)


def test_an_abstract_socket_is_found(tmp_path: Path) -> None:
    name = f"{tmp_path}/abstract"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).stopping()
        assert listener.recv(200).startswith(b"STOPPING=1")


def test_without_a_manager_nothing_is_sent() -> None:
    told = ServiceManager({"WATCHDOG_USEC": "3000"})
    told.serving({})  # it would need a loop to go on
    told.stopping()


def test_a_manager_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).stopping()
