"""Frames from a connection, in the turn that has read them."""

import asyncio

import pytest

from rockhopper.broker.replication.election import wire
from rockhopper.broker.replication.election.messages import Ack, Beat
from rockhopper.broker.replication.election.wire import Frame, WireError
from rockhopper.broker.replication.shipping.link import GreetingConnections, Link
from rockhopper.broker.server.listening import unfinished
from tests.support.link_frames import Frames

ONE, TWO = Ack(1, 10, True), Ack(1, 20, True)


class Pipe(asyncio.Transport):
    """Notes what is sent."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 7)})
        self.sent = b""
        self.is_closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high

    def writelines(self, parts: object) -> None:
        assert isinstance(parts, tuple)
        self.sent += b"".join(parts)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Acceptor:
    def __init__(self) -> None:
        self.links: list[Link] = []

    def connected(self, link: Link) -> None:
        self.links.append(link)


class Refusing(Frames):
    def received(self, link: Link, frame: Frame) -> None:
        super().received(link, frame)
        raise ValueError("not this one")


def connected() -> tuple[Link, Pipe]:
    acceptor = Acceptor()
    link, pipe = Link(3, acceptor), Pipe()
    link.connection_made(pipe)
    assert acceptor.links == [link]
    return link, pipe


async def test_what_came_while_greeting_is_handed_on_first() -> None:
    link, _ = connected()
    link.data_received(wire.encode(ONE))
    frames = Frames()
    taking = asyncio.ensure_future(link.frames(frames))
    await asyncio.sleep(0)
    link.data_received(wire.encode(TWO)[:5])
    assert frames.found == [ONE]
    link.data_received(wire.encode(TWO)[5:])
    assert frames.found == [ONE, TWO]
    link.connection_lost(ConnectionResetError())
    await taking


async def test_one_frame_at_a_time_while_greeting() -> None:
    link, _ = connected()
    link.data_received(wire.encode(ONE))
    assert await link.next_frame() == ONE
    link.data_received(wire.encode(ONE) + wire.encode(TWO))
    with pytest.raises(WireError, match="more than one frame at once"):
        await link.next_frame()


async def test_an_end_while_greeting_is_told() -> None:
    link, _ = connected()
    waiting = asyncio.ensure_future(link.next_frame())
    await asyncio.sleep(0)
    link.connection_lost(None)
    with pytest.raises(WireError, match="ended while greeting"):
        await waiting


async def test_what_taking_a_frame_raises_ends_it() -> None:
    link, _ = connected()
    frames = Refusing()
    taking = asyncio.ensure_future(link.frames(frames))
    await asyncio.sleep(0)
    link.data_received(wire.encode(ONE) + wire.encode(TWO))
    link.data_received(wire.encode(TWO))
    with pytest.raises(ValueError, match="not this one"):
        await taking
    assert frames.found == [ONE]


async def test_a_peer_that_takes_less_than_comes_is_waited_for() -> None:
    link, _ = connected()
    await link.drain()
    link.pause_writing()
    assert link.is_full
    waiting = asyncio.ensure_future(link.drain())
    await asyncio.sleep(0)
    assert not waiting.done()
    link.resume_writing()
    await waiting
    link.pause_writing()
    link.connection_lost(None)
    await link.drain()


async def test_nothing_is_sent_behind_the_end() -> None:
    link, pipe = connected()
    link.send(b"a", b"b")
    link.close()
    link.send(b"c")
    assert (pipe.sent, link.is_closing, link.peer) == (b"ab", True, "('127.0.0.1', 7)")
    assert Link(4).is_closing


LARGE_BYTES = wire.JSON_SIZE_BYTES_MAX


def greeted_by(peers: GreetingConnections) -> tuple[Link, Pipe]:
    link, pipe = Link(1, greeting=peers), Pipe()
    link.connection_made(pipe)
    return link, pipe


async def test_a_peer_that_has_not_greeted_sends_nothing_large() -> None:
    link, _ = greeted_by(GreetingConnections())
    link.data_received(wire.data_head(Beat(1, 0), 0, LARGE_BYTES + 1, 0))
    with pytest.raises(WireError, match="are allowed"):
        await link.next_frame()


async def test_peers_that_do_not_end_their_greeting_hold_one_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unfinished, "UNKNOWN_BYTES_MAX_ALL", 4 << 20)
    peers = GreetingConnections()
    half = b"RHHA\x00\x01\x00\x00" + LARGE_BYTES.to_bytes(4, "big") + bytes(LARGE_BYTES)
    links = [greeted_by(peers) for _ in range(60)]
    for link, _ in links:
        link.data_received(half)
    held = sum(link.held_bytes for link, _ in links)
    assert 0 < held <= (4 << 20) + unfinished.STEP_BYTES
    assert sum(pipe.is_closed for _, pipe in links) >= 40
