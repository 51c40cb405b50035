"""A name with several addresses: one that answers is enough, and errors name those that did not."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from rockhopper import sockets
from rockhopper.sockets import connect, find_own_address, find_own_host, is_link_local
from tests.support.held_clock import HeldClock

ENOUGH_S = 60.0


def listen_on(family: socket.AddressFamily, host: str, port: int = 0) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    listening.listen()
    return listening


@contextlib.contextmanager
def kept_port() -> Iterator[int]:
    """A port of all addresses that no other process gets meanwhile; nobody listens there yet."""
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        kept.bind(("::", 0))
        yield kept.getsockname()[1]


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port of ::1 at which connections are neither accepted nor refused: its backlog is full."""
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(kept_port())
        full = stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_STREAM))
        full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        full.bind(("::1", port))
        full.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_STREAM))
            waiting.setblocking(False)
            waiting.connect_ex(("::1", port))
        yield port


@pytest.fixture
def name_of_two_addresses(monkeypatch: pytest.MonkeyPatch) -> str:
    real = socket.getaddrinfo

    def resolve(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "broker.test":
            return real(host, port, *args, **kwargs)
        kind, protocol = socket.SOCK_STREAM, socket.IPPROTO_TCP
        return [
            (socket.AF_INET6, kind, protocol, "", ("::1", port, 0, 0)),
            (socket.AF_INET, kind, protocol, "", ("127.0.0.1", port)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return "broker.test"


async def test_a_silent_first_address_does_not_keep_the_second_from_being_used(
    name_of_two_addresses: str,
) -> None:
    with silent_port() as port, listen_on(socket.AF_INET, "127.0.0.1", port):
        with await connect(name_of_two_addresses, port, ENOUGH_S) as connected:
            assert connected.getpeername() == ("127.0.0.1", port)


async def test_a_refusing_first_address_does_not_keep_the_second_from_being_used(
    name_of_two_addresses: str,
) -> None:
    with kept_port() as port, listen_on(socket.AF_INET, "127.0.0.1", port):
        with await connect(name_of_two_addresses, port, ENOUGH_S) as connected:
            assert connected.getpeername() == ("127.0.0.1", port)


async def test_a_refusal_by_all_addresses_names_them(name_of_two_addresses: str) -> None:
    with kept_port() as port:
        with pytest.raises(ConnectionRefusedError, match=r"broker\.test is 127\.0\.0\.1, ::1"):
            await connect(name_of_two_addresses, port, ENOUGH_S)


async def test_silence_names_the_addresses_that_were_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, connect_socket = socket.getaddrinfo, asyncio.get_running_loop().sock_connect
    is_trying = asyncio.Event()

    async def try_to_connect(*arguments: Any) -> None:
        is_trying.set()
        await connect_socket(*arguments)

    monkeypatch.setattr(
        socket, "getaddrinfo", lambda _host, *args, **kwargs: real("::1", *args, **kwargs)
    )
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", try_to_connect)
    clock = HeldClock(monkeypatch)
    with silent_port() as port:
        connecting = asyncio.create_task(connect("broker.test", port, ENOUGH_S))
        await is_trying.wait()
        clock.advance(ENOUGH_S + 1)
        with pytest.raises(TimeoutError, match=r"broker\.test is ::1"):
            await connecting


async def test_an_unknown_name_is_told_from_an_unreachable_one() -> None:
    with pytest.raises(socket.gaierror):
        await connect("no-such-host.invalid", 1, ENOUGH_S)


async def test_a_link_local_address_is_found_with_and_without_its_zone() -> None:
    found = [
        (host, zone)
        for host, zone in _link_local_addresses()
        if zone in (name for _, name in socket.if_nameindex())
    ]
    if not found:
        pytest.skip("this machine has no link-local address")
    host, zone = found[0]
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as listening:
        listening.bind(("::", 0))
        listening.listen()
        port = listening.getsockname()[1]
        for text in (f"{host}%{zone}", host, f"{host}%of-another-host"):
            with await connect(text, port, ENOUGH_S) as connected:
                assert connected.getpeername()[1] == port


def _link_local_addresses() -> list[tuple[str, str]]:
    try:
        with open("/proc/net/if_inet6") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    return [
        (socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0])), row[5])
        for row in rows
        if row[3] == "20"
    ]


async def test_a_cancelled_attempt_leaves_no_socket_open(name_of_two_addresses: str) -> None:
    with silent_port() as port, listen_on(socket.AF_INET, "127.0.0.1") as other:
        del other
        attempt = asyncio.create_task(connect(name_of_two_addresses, port, ENOUGH_S))
        await asyncio.sleep(0)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt


def test_a_host_without_ipv4_names_itself_by_its_ipv6_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Probe:
        def __init__(self, family: int, _kind: int) -> None:
            self.family = family

        def __enter__(self) -> "Probe":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def connect(self, _address: object) -> None:
            if self.family == socket.AF_INET:
                raise OSError("network is unreachable")

        def getsockname(self) -> tuple[str, int, int, int]:
            return "fd31::7", 9, 0, 0

    monkeypatch.setattr(socket, "socket", Probe)
    assert find_own_host() == "fd31::7"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_an_address_to_listen_on_is_what_the_resolver_says(host: str) -> None:
    expected = socket.getaddrinfo(host, 7, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    assert find_own_address(host, 7) == expected


@pytest.mark.parametrize("host", ["", "a..b", "x" * 70, "nowhere.invalid", "\ud800"])
def test_a_host_that_cannot_be_listened_on_is_an_error(host: str) -> None:
    with pytest.raises((OSError, UnicodeError)):
        find_own_address(host, 7)


def test_link_local_addresses_are_told_from_others() -> None:
    assert is_link_local("fe80::1%eth0")
    assert is_link_local("fe80::1")
    assert not is_link_local("fd31::b")
    assert not is_link_local("broker.example")
    assert not is_link_local("127.0.0.1")


def test_sockets_are_registered_by_threads_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_open = sockets._is_open

    def register_another(inode: int, number: int) -> bool:
        sockets._not_for_children[-inode] = -1  # as another thread does meanwhile
        return is_open(inode, number)

    monkeypatch.setattr(sockets, "_not_for_children", {})
    monkeypatch.setattr(sockets, "_looked_through_at", 1)
    monkeypatch.setattr(sockets, "_is_open", register_another)
    with socket.socket() as one:
        sockets.close_in_children(one)
        assert one.fileno() in sockets._not_for_children.values()


class ChangedWhileRead(dict[int, int]):
    """A dict that another thread changes as soon as somebody iterates over it."""

    def items(self) -> Any:
        for each in super().items():
            self[-len(self)] = -1
            yield each


def test_sockets_of_other_threads_do_not_disturb_the_search_for_closed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "_not_for_children", ChangedWhileRead({-1: -1, -2: -1}))
    monkeypatch.setattr(sockets, "_looked_through_at", 1)
    with socket.socket() as one:
        sockets.close_in_children(one)
        assert list(sockets._not_for_children.values()) == [one.fileno()]
