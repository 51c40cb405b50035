"""A connection that pipelines has one pass in each turn of the loop, like all others."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rockhopper.broker.server.loop.fair_scheduler import FRAMES_PER_PASS, FRAMES_PER_ROUND, PASS_S
from rockhopper.broker.server.remoting.connection import (
    FRAME_TIMEOUT_S,
    IDLE_TIMEOUT_S,
    RemotingConnection,
)
from rockhopper.broker.server.remoting.general_pass import GeneralPass
from rockhopper.broker.server.remoting.server import Server, sweep_connections
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import Frame
from tests.support.direct import pull_fields, send_fields
from tests.support.handlers import dispatching
from tests.support.hot_broker import HotBroker
from tests.support.piped_peer import PipedPeer

SEND = {"a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
FLOOD = 1500
ONEWAY = 2


def request(
    opaque: int,
    code: int = 310,
    ext: dict[str, str] | None = None,
    *,
    flag: int = 0,
    kind: int = 0,
) -> bytes:
    ext = SEND | {"i": ""} if ext is None else ext
    body = b"hello" if code in (10, 310) else b""
    return encode_command(Command(code, opaque, flag, ext=ext, body=body, serialize_type=kind))


KINDS: dict[str, Callable[[int], bytes]] = {
    "sends": request,
    "binary": lambda opaque: request(opaque, kind=1),
    "oneway": lambda opaque: request(opaque, flag=ONEWAY),
    "pulls": lambda opaque: request(opaque, 11, pull_fields("orders", 0)),
    "general": lambda opaque: request(opaque, 10, send_fields("orders")),
    "offsets": lambda opaque: request(opaque, 30, {"topic": "orders", "queueId": "0"}),
    "unknown": lambda opaque: request(opaque, 31_999),
}


class Taking:
    """A handler that takes all frames, or some, and remembers who had which."""

    def __init__(self, taken_max: int = 1 << 30) -> None:
        self.taken_max = taken_max
        self.passes: list[tuple[RemotingConnection, int]] = []
        self.bodies: list[bytes] = []
        self.breaks_for: RemotingConnection | None = None

    def serve_frames(self, connection: RemotingConnection, frames: list[Frame]) -> int:
        if connection is self.breaks_for:
            raise RuntimeError("no")
        taken = min(self.taken_max, len(frames))
        self.passes.append((connection, taken))
        self.bodies += [body for _, _, body in frames[:taken]]
        return taken


@pytest.fixture
def taking() -> Taking:
    return Taking()


@pytest.fixture
def server(taking: Taking) -> Server:
    return Server("test", taking, connections_max=100)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HotBroker]:
    made = HotBroker(tmp_path)
    yield made
    made.served.store.abandon()


def numbered(count: int, size_bytes: int = 16) -> bytes:
    return b"".join(
        encode_command(Command(1, n, body=str(n).encode().ljust(size_bytes))) for n in range(count)
    )


async def turns(peer: PipedPeer, ends: Callable[[], bool]) -> int:
    """How many turns of the loop it takes until *ends*, *peer*'s bytes being read meanwhile."""
    count = 0
    while not ends():
        count += 1
        assert count < 10_000
        await asyncio.sleep(0)
        peer.send(b"")
    return count


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_request_leaves_the_loop_to_others_between_passes(
    broker: HotBroker, kind: str
) -> None:
    server = Server("test", broker.hot, connections_max=10)
    flood, other = PipedPeer(server), PipedPeer(server, 40_001)
    expected = [] if kind == "oneway" else list(range(FLOOD))
    answered: list[int] = []
    flood.send(b"".join(map(KINDS[kind], range(FLOOD))))
    probes = 0
    while flood.pending or flood.connection.is_waiting or flood.writes:
        assert len(flood.writes) <= 1
        batch = [answer.opaque for answer in flood.answers()]
        assert len(batch) <= 256
        answered += batch
        probes += 1
        other.send(request(probes))
        assert [answer.opaque for answer in other.answers()] == [probes]
        await asyncio.sleep(0)
        flood.send(b"")
    assert answered == expected
    assert probes >= FLOOD // 256


async def test_the_name_service_leaves_the_loop_to_others_between_passes() -> None:
    now_s = 0.0

    def dispatch(_connection: RemotingConnection, command: Command) -> bytes:
        nonlocal now_s
        now_s += PASS_S / 3.5
        return encode_command(Command(0, command.opaque, 1))

    server = Server("test", GeneralPass(dispatching(dispatch), lambda: now_s), connections_max=10)
    flood, other = PipedPeer(server), PipedPeer(server, 40_001)
    flood.send(numbered(40))
    assert len(flood.answers()) == 4
    other.send(numbered(1))
    assert len(other.answers()) == 1
    await asyncio.sleep(0)
    assert [answer.opaque for answer in flood.answers()] == [4, 5, 6, 7]
    await turns(flood, lambda: not flood.connection.is_waiting)
    assert [answer.opaque for answer in flood.answers()] == list(range(8, 40))


async def test_a_pass_of_slow_requests_ends_when_its_time_is_over(broker: HotBroker) -> None:
    def clock() -> float:
        broker.now_s += PASS_S / 3.5
        return broker.now_s

    broker.hot._clock = clock
    server = Server("test", broker.hot, connections_max=10)
    peer = PipedPeer(server)
    peer.send(b"".join(map(KINDS["offsets"], range(16))))
    assert len(peer.answers()) == 4
    await asyncio.sleep(0)
    assert len(peer.answers()) == 4


async def test_a_client_with_64_sends_under_way_is_served_as_it_is_read(
    server: Server, taking: Taking
) -> None:
    peers = [PipedPeer(server, port) for port in range(FRAMES_PER_ROUND // 64)]
    for _ in range(3):
        for peer in peers:
            peer.send(numbered(64))
        await asyncio.sleep(0)
    assert [count for _, count in taking.passes] == [64] * len(peers) * 3


async def test_all_frames_are_served_once_and_in_order(server: Server, taking: Taking) -> None:
    peer = PipedPeer(server)
    taking.taken_max = 100
    peer.send(numbered(20_000))
    await turns(peer, lambda: not peer.pending and not peer.connection.is_waiting)
    assert [int(body) for body in taking.bodies] == list(range(20_000))
    assert max(count for _, count in taking.passes) == 100
    assert peer.reading


async def test_no_more_than_one_read_is_held(server: Server, taking: Taking) -> None:
    peer = PipedPeer(server)
    peer.send(numbered(20_000))
    assert len(peer.pending) > 500_000
    assert not peer.reading


async def test_big_frames_of_one_connection_take_turns_too(server: Server, taking: Taking) -> None:
    peer = PipedPeer(server)
    peer.send(numbered(2000, 2000))
    # One read is served at once, the next one waits.
    assert len(taking.passes) == 1
    assert not peer.reading


async def test_many_that_flood_share_a_round(server: Server, taking: Taking) -> None:
    floods = [PipedPeer(server, port) for port in range(30)]
    for peer in floods:
        peer.send(numbered(FLOOD))
    assert len(taking.bodies) == FRAMES_PER_ROUND
    other = PipedPeer(server, 50_000)
    other.send(numbered(1))
    assert len(taking.bodies) == FRAMES_PER_ROUND + 1


async def test_those_that_wait_take_turns_in_their_order(
    server: Server, taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += PASS_S
        return now_s

    server.scheduler._clock = clock
    floods = [PipedPeer(server, port) for port in range(3)]
    for peer in floods:
        peer.send(numbered(3 * FRAMES_PER_PASS))
    for _ in range(6):
        before = len(taking.passes)
        await asyncio.sleep(0)
        assert len(taking.passes) == before + 1
    who = [connection for connection, _ in taking.passes]
    assert who == [peer.connection for peer in floods] * 3


async def test_a_peer_that_closes_while_its_frames_wait_is_forgotten(
    server: Server, taking: Taking
) -> None:
    gone, stays = PipedPeer(server), PipedPeer(server, 40_001)
    gone.send(numbered(FLOOD))
    stays.send(numbered(FRAMES_PER_PASS + 1))
    gone.connection.connection_lost(None)
    served = len(taking.bodies)
    await turns(stays, lambda: not stays.connection.is_waiting)
    assert len(taking.bodies) == served + 1
    assert gone.connection.backlog == []


async def test_frames_in_front_of_a_malformed_one_are_served_before_the_peer_is_closed(
    server: Server, taking: Taking
) -> None:
    peer = PipedPeer(server)
    peer.send(numbered(FLOOD) + b"\xff" * 100)
    assert not peer.closing
    await turns(peer, lambda: peer.closing)
    assert len(taking.bodies) == FLOOD


async def test_a_peer_that_does_not_read_waits_until_it_does(
    server: Server, taking: Taking
) -> None:
    peer = PipedPeer(server)
    peer.send(numbered(FLOOD))
    peer.connection.pause_writing()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(taking.bodies) == FRAMES_PER_PASS
    assert not peer.connection.is_waiting
    peer.connection.resume_writing()
    assert not peer.reading
    await turns(peer, lambda: not peer.connection.is_waiting)
    assert [int(body) for body in taking.bodies] == list(range(FLOOD))
    assert peer.reading


async def test_a_peer_that_waits_for_its_turn_is_not_idle_and_its_frame_not_late(
    server: Server, taking: Taking
) -> None:
    peer = PipedPeer(server)
    peer.send(numbered(FRAMES_PER_PASS + 1) + numbered(1)[:10])
    assert peer.connection.is_waiting
    now_s = asyncio.get_running_loop().time()
    sweep_connections([peer.connection], now_s + FRAME_TIMEOUT_S + IDLE_TIMEOUT_S)
    assert not peer.aborted
    await asyncio.sleep(0)
    sweep_connections([peer.connection], now_s + FRAME_TIMEOUT_S - 1)
    assert not peer.aborted
    sweep_connections([peer.connection], now_s + 2 * FRAME_TIMEOUT_S)
    assert peer.aborted


async def test_a_handler_that_breaks_costs_its_connection_only(
    server: Server, taking: Taking
) -> None:
    problems: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: problems.append(context["exception"]))
    broken, other = PipedPeer(server), PipedPeer(server, 40_001)
    broken.send(numbered(FLOOD))
    other.send(numbered(FLOOD))
    taking.breaks_for = broken.connection
    await turns(other, lambda: not other.connection.is_waiting and not other.pending)
    assert broken.aborted
    assert [str(problem) for problem in problems] == ["no"]
    assert len(taking.bodies) == FLOOD + FRAMES_PER_PASS
