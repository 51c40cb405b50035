"""A connection that pipelines delays the others by one turn of the loop at most."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.server.loop.fair_scheduler import FRAMES_PER_PASS, GROUP_MAX, PASS_S
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
from tests.support.handlers import Ignoring, dispatching
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


class Taking(Ignoring):
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
    while flood.pending or flood.connection.backlog or flood.writes:
        answered += [answer.opaque for answer in flood.answers()]
        probes += 1
        other.send(request(probes))
        # If the time of this turn is over before, it comes first in the next one.
        assert await turns(other, lambda: bool(other.writes)) <= 2
        assert [answer.opaque for answer in other.answers()] == [probes]
        flood.send(b"")
    assert answered == expected


async def test_the_name_service_leaves_the_loop_to_others_between_passes() -> None:
    now_s = 0.0

    def dispatch(_connection: RemotingConnection, command: Command) -> bytes:
        nonlocal now_s
        now_s += PASS_S / 3.5
        return encode_command(Command(0, command.opaque, 1))

    server = Server("test", GeneralPass(dispatching(dispatch), lambda: now_s), connections_max=10)
    flood, other = PipedPeer(server), PipedPeer(server, 40_001)
    server.scheduler._clock = lambda: now_s
    flood.send(numbered(40))
    other.send(numbered(1))
    await asyncio.sleep(0)
    assert len(flood.answers()) == 4
    assert other.writes == []
    await asyncio.sleep(0)
    assert len(other.answers()) == 1
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
    for _ in range(2):
        await asyncio.sleep(0)
        assert len(peer.answers()) == 4


async def test_what_was_read_in_one_iteration_is_served_in_one_turn(
    server: Server, taking: Taking
) -> None:
    peers = [PipedPeer(server, port) for port in range(16)]
    for _ in range(3):
        for peer in peers:
            peer.send(numbered(64))
            assert taking.passes == []
        await asyncio.sleep(0)
        assert [count for _, count in taking.passes] == [64] * len(peers)
        taking.passes.clear()


async def test_the_sends_of_all_connections_come_first_and_together(
    server: Server, taking: Taking
) -> None:
    together: list[int] = []

    def serve_together(
        connections: Sequence[RemotingConnection], _has_time: Callable[[], bool]
    ) -> None:
        assert taking.passes == []
        together.append(len(connections))
        for connection in connections[1:]:
            connection.backlog = []

    taking.serve_together = serve_together  # type: ignore[method-assign, assignment]
    peers = [PipedPeer(server, port) for port in range(5)]
    for peer in peers:
        peer.send(numbered(2))
    peers[4].connection.pause_writing()
    peers[3].connection.connection_lost(None)
    await asyncio.sleep(0)
    assert together == [3]
    assert taking.passes == [(peers[0].connection, 2)]


async def test_all_frames_are_served_once_and_in_order(server: Server, taking: Taking) -> None:
    peer = PipedPeer(server)
    taking.taken_max = 100
    peer.send(numbered(20_000))
    await turns(peer, lambda: not peer.pending and not peer.connection.is_waiting)
    assert [int(body) for body in taking.bodies] == list(range(20_000))
    assert max(count for _, count in taking.passes) == 100
    assert peer.reading


async def test_no_more_than_two_reads_are_held(server: Server, taking: Taking) -> None:
    peer = PipedPeer(server)
    peer.send(numbered(40_000))
    assert len(peer.pending) > 500_000
    assert not peer.reading


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
    for _ in range(9):
        before = len(taking.passes)
        await asyncio.sleep(0)
        assert len(taking.passes) == before + 1
    who = [connection for connection, _ in taking.passes]
    assert who == [peer.connection for peer in floods] * 3


class TakingSends(Taking):
    """A handler that serves all frames as sends, each group in the time of a whole turn."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.groups: list[list[RemotingConnection]] = []

    def serve_together(
        self, connections: Sequence[RemotingConnection], has_time: Callable[[], bool]
    ) -> None:
        assert has_time()
        self.groups.append(list(connections))
        self.now_s += PASS_S
        for connection in connections:
            self.bodies += [body for _, _, body in connection.backlog]
            connection.backlog = []


def connect_many(count: int) -> tuple[TakingSends, list[PipedPeer]]:
    """Return a handler, and peers that have sent one request each, numbered by their body."""
    handler = TakingSends()
    server = Server("test", handler, connections_max=count)
    server.scheduler._clock = lambda: handler.now_s
    peers = [PipedPeer(server, port) for port in range(count)]
    for number, peer in enumerate(peers):
        peer.send(encode_command(Command(1, body=b"%d" % number)))
    return handler, peers


async def test_many_connections_are_served_in_groups_each_once_and_the_oldest_first() -> None:
    handler, peers = connect_many(2 * GROUP_MAX + 10)
    connections = [peer.connection for peer in peers]
    await asyncio.sleep(0)
    # It comes after those that the first turn did not reach.
    peers[0].send(encode_command(Command(1, body=b"again")))
    for _ in range(4):
        await asyncio.sleep(0)
    assert handler.groups == [
        connections[:GROUP_MAX],
        connections[GROUP_MAX : 2 * GROUP_MAX],
        [*connections[2 * GROUP_MAX :], connections[0]],
    ]
    assert handler.bodies == [*(b"%d" % number for number in range(len(peers))), b"again"]
    assert handler.passes == []


async def test_a_peer_that_no_turn_has_reached_yet_is_read_once_more_and_no_further() -> None:
    handler, peers = connect_many(GROUP_MAX + 3)
    await asyncio.sleep(0)
    late, closing, quiet = peers[GROUP_MAX:]
    assert late.reading
    late.send(encode_command(Command(1, body=b"more")))
    assert not late.reading
    closing.connection.close()
    assert quiet.reading
    await asyncio.sleep(0)
    assert handler.groups[1] == [late.connection, quiet.connection]
    assert handler.bodies[GROUP_MAX:] == [b"%d" % GROUP_MAX, b"more", b"%d" % (GROUP_MAX + 2)]
    # It is read again as soon as it is served.
    await asyncio.sleep(0)
    assert late.reading


async def test_a_peer_that_closes_while_its_frames_wait_is_forgotten(
    server: Server, taking: Taking
) -> None:
    gone, stays = PipedPeer(server), PipedPeer(server, 40_001)
    gone.send(numbered(FLOOD))
    stays.send(numbered(FRAMES_PER_PASS + 1))
    gone.connection.connection_lost(None)
    await turns(stays, lambda: not stays.connection.backlog)
    assert len(taking.bodies) == FRAMES_PER_PASS + 1
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
    await asyncio.sleep(0)
    peer.connection.pause_writing()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(taking.bodies) == FRAMES_PER_PASS
    peer.connection.resume_writing()
    assert not peer.reading
    await turns(peer, lambda: not peer.connection.backlog)
    assert [int(body) for body in taking.bodies] == list(range(FLOOD))
    assert peer.reading


async def test_a_peer_that_waits_for_its_turn_is_not_idle_and_its_frame_not_late(
    server: Server, taking: Taking
) -> None:
    peer = PipedPeer(server)
    peer.send(numbered(FRAMES_PER_PASS + 1) + numbered(1)[:10])
    await asyncio.sleep(0)
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
    await turns(other, lambda: not other.connection.backlog and not other.pending)
    assert broken.aborted
    assert [str(problem) for problem in problems] == ["no"]
    assert len(taking.bodies) == FLOOD


async def alone(server: Server, taking: Taking) -> PipedPeer:
    """Connect a peer that had the last turn for itself."""
    peer = PipedPeer(server)
    peer.send(numbered(1))
    assert taking.passes == []
    await asyncio.sleep(0)
    assert taking.passes == [(peer.connection, 1)]
    taking.passes.clear()
    return peer


async def test_a_request_of_a_connection_that_is_alone_is_served_at_once(
    server: Server, taking: Taking
) -> None:
    together: list[list[RemotingConnection]] = []

    def serve_together(
        connections: Sequence[RemotingConnection], _has_time: Callable[[], bool]
    ) -> None:
        together.append(list(connections))

    taking.serve_together = serve_together  # type: ignore[method-assign, assignment]
    peer = await alone(server, taking)
    together.clear()
    for number in range(1, 4):
        peer.send(numbered(1))
        assert together == [[peer.connection]] * number
        assert taking.passes == [(peer.connection, 1)] * number
    await asyncio.sleep(0)
    assert len(together) == len(taking.passes) == 3


async def test_sends_that_are_served_at_once_are_not_served_again(
    server: Server, taking: Taking
) -> None:
    peer = await alone(server, taking)

    def take_all(connections: Sequence[RemotingConnection], _has_time: Callable[[], bool]) -> None:
        for connection in connections:
            connection.backlog = []

    taking.serve_together = take_all  # type: ignore[method-assign, assignment]
    peer.send(numbered(1))
    await asyncio.sleep(0)
    assert taking.passes == []


async def test_a_connection_is_not_alone_beside_others_or_with_more_requests(
    server: Server, taking: Taking
) -> None:
    peer, other = await alone(server, taking), PipedPeer(server, 40_001)
    peer.send(numbered(2))
    other.send(numbered(1))
    assert taking.passes == []
    await asyncio.sleep(0)
    assert taking.passes == [(peer.connection, 2), (other.connection, 1)]
    # The last turn had both.
    peer.send(numbered(1))
    assert len(taking.passes) == 2
    await asyncio.sleep(0)
    taking.passes.clear()
    # Now the other one is scheduled already.
    other.send(numbered(1))
    peer.send(numbered(1))
    assert taking.passes == []


async def test_a_connection_that_another_server_has_adopted_is_not_alone(
    server: Server, taking: Taking
) -> None:
    peer = await alone(server, taking)
    other = Server("other", taking, connections_max=100)
    other.adopt(peer.connection)
    peer.send(numbered(1))
    assert taking.passes == []
    await asyncio.sleep(0)
    assert taking.passes == [(peer.connection, 1)]


async def test_a_connection_that_is_alone_is_not_served_while_its_peer_does_not_read(
    server: Server, taking: Taking
) -> None:
    peer = await alone(server, taking)
    peer.connection.pause_writing()
    peer.connection.data_received(numbered(1))
    assert taking.passes == []
    peer.connection.resume_writing()
    await asyncio.sleep(0)
    assert taking.passes == [(peer.connection, 1)]


async def test_a_connection_that_is_alone_and_breaks_is_closed(
    server: Server, taking: Taking
) -> None:
    peer = await alone(server, taking)
    taking.breaks_for = peer.connection
    with pytest.raises(RuntimeError, match="no"):
        peer.send(numbered(1))
    assert peer.aborted


async def test_a_closed_connection_is_not_remembered_as_the_one_that_is_alone(
    server: Server, taking: Taking
) -> None:
    peer = await alone(server, taking)
    assert server.scheduler.alone is peer.connection
    peer.connection.connection_lost(None)
    assert server.scheduler.alone is None


async def test_sends_that_cannot_be_served_together_are_served_alone(
    server: Server, taking: Taking
) -> None:
    def fail(_connections: Sequence[RemotingConnection], _has_time: Callable[[], bool]) -> None:
        raise RuntimeError("no")

    taking.serve_together = fail  # type: ignore[method-assign, assignment]
    peers = [PipedPeer(server, port) for port in range(3)]
    for peer in peers:
        peer.send(numbered(2))
    with capture_logs() as logged:
        await asyncio.sleep(0)
    assert taking.passes == [(peer.connection, 2) for peer in peers]
    assert not any(peer.aborted for peer in peers)
    assert [entry["event"] for entry in logged] == [
        "the sends of a turn failed; serving each connection alone"
    ]
