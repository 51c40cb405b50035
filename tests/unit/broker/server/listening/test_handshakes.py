"""Handshakes: so few begin in one turn of the loop that a flood holds up nobody else."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.server.listening import handshakes
from rockhopper.broker.server.listening.handshakes import (
    BEGUN_PER_TURN,
    Handshake,
    Handshakes,
    reason_of,
)
from rockhopper.broker.server.listening.tls import Tls, TlsFiles
from tests.support.certificates import Authority
from tests.support.hang import HANG_S
from tests.support.turns import until


class Leaving(asyncio.Protocol):
    """Goes as soon as it is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class Rig:
    """Handshakes that are made with the other ends in ``peers``."""

    def __init__(self, authority: Authority) -> None:
        self.tls = Tls(TlsFiles(*authority.issue()))
        self.trusting = ssl.create_default_context(cafile=authority.ca)
        self.made = Handshakes()
        self.ours: list[socket.socket] = []
        self.peers: list[socket.socket] = []
        self.ended = asyncio.Event()

    def begin(self, count: int = 1) -> None:
        """Begin *count* more."""
        for _ in range(count):
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            theirs.setblocking(False)
            self.ours.append(ours)
            self.peers.append(theirs)
            self.made.start(Handshake(ours, self.tls.context(), Leaving, "peer", self))

    def handshake_ended(self, _connected: socket.socket) -> None:
        self.ended.set()

    async def shake(self, peer: socket.socket) -> None:
        """Make the client's side of one."""
        _, writer = await asyncio.open_connection(
            sock=peer, ssl=self.trusting, server_hostname="localhost"
        )
        writer.transport.abort()
        await until(lambda: peer.fileno() < 0)


@pytest.fixture
async def rig(authority: Authority) -> AsyncIterator[Rig]:
    made = Rig(authority)
    yield made
    for peer in made.peers:
        peer.close()
    await until(lambda: all(each.fileno() < 0 for each in made.ours))


async def test_one_that_succeeds_is_no_failure(rig: Rig) -> None:
    rig.begin()
    async with asyncio.timeout(HANG_S):
        await rig.shake(rig.peers[0])
        await rig.ended.wait()
    assert rig.made.failures.count == 0


async def test_each_turn_of_the_loop_begins_a_few_and_the_last_come_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[socket.socket] = []

    async def note(_self: Handshakes, handshake: Handshake) -> None:
        begun.append(handshake.connected)

    monkeypatch.setattr(Handshakes, "_make", note)
    rig.begin(100)
    per_turn, before = [], 0
    while rig.made.count:
        await asyncio.sleep(0)
        per_turn.append(len(begun) - before)
        before = len(begun)
    assert max(per_turn) == BEGUN_PER_TURN
    assert len(begun) == 100
    for each in begun:
        each.close()


async def test_beyond_so_many_under_way_those_that_stand_still_are_ended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "UNDER_WAY_MAX", 8)
    monkeypatch.setattr(handshakes, "PATIENCE_S", 0.0)
    rig.begin(8)
    await until(lambda: not rig.made.waiting)
    rig.begin()
    async with asyncio.timeout(HANG_S):
        await rig.shake(rig.peers[-1])
    assert rig.made.failures.count == 8


async def test_one_that_is_given_up_is_closed(rig: Rig) -> None:
    rig.begin()
    ours = next(iter(rig.made.waiting))
    rig.made.cancel(ours)
    assert ours.fileno() == -1
    rig.begin()
    waiting = next(iter(rig.made.waiting))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    rig.made.cancel(waiting)
    await until(lambda: not rig.made.count)
    assert waiting.fileno() == -1


async def test_a_failure_is_counted_with_its_reason(rig: Rig) -> None:
    rig.begin()
    rig.peers[0].send(b"GET / HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(HANG_S):
        await rig.ended.wait()
    assert rig.made.failures.count == 1


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] alert"), "does not trust"),
        (ConnectionResetError(), "the client disconnected"),
        (ConnectionAbortedError("SSL handshake is taking longer than 10 s"), "did not complete"),
        (ssl.SSLError(1, "something else"), "something else"),
    ],
)
def test_reasons_say_what_to_do(error: BaseException, says: str) -> None:
    assert says in reason_of(error)
