"""Peers that are idle, slow, too many, or gone: they cost little, and nobody else notices."""

import asyncio
import resource
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from rockhopper.broker.kernel.pull.long_polling import PARKED_PER_CONNECTION_MAX
from rockhopper.broker.server.remoting import server
from rockhopper.broker.server.remoting.connection import (
    FIRST_FRAME_TIMEOUT_S,
    FRAME_TIMEOUT_S,
    IDLE_TIMEOUT_S,
    WRITE_STALL_TIMEOUT_S,
    RemotingConnection,
)
from rockhopper.broker.server.remoting.server import Server, sweep_connections
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.store.message_codec import encode_batch
from tests.support.direct import pull_fields, send_fields
from tests.support.handlers import Ignoring
from tests.support.raw_peer import RawPeer, request, until
from tests.support.unharmed import Unharmed

SEND = request(RequestCode.SEND_MESSAGE, send_fields("orders"), b"hello")
MIB = 1 << 20


@pytest.fixture
async def unharmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Unharmed]:
    async with Unharmed(tmp_path, monkeypatch) as made:
        yield made


def sweep(at: Server, seconds_later: float) -> None:
    """What the server would do *seconds_later*, if nothing happened until then."""
    now_s = asyncio.get_running_loop().time()
    sweep_connections(list(at.connections), now_s + seconds_later)


async def connection_of(at: Server, peer: RawPeer) -> RemotingConnection:
    """The broker's side of *peer*."""
    await until(lambda: any(connection.peer == peer.name for connection in at.connections))
    return next(connection for connection in at.connections if connection.peer == peer.name)


def has_arrived(connection: RemotingConnection, count: int) -> bool:
    """Whether *count* bytes of an unfinished frame are there."""
    return connection.decoder.pending_bytes == count


def reasons(unharmed: Unharmed, peer: RawPeer) -> list[str]:
    return [line["reason"] for line in unharmed.lines if line.get("peer") == peer.name]


async def test_a_connection_without_a_request_is_closed_after_ten_seconds(
    unharmed: Unharmed,
) -> None:
    at = unharmed.broker.servers.remoting
    async with RawPeer(unharmed.broker.address) as peer:
        await connection_of(at, peer)
        sweep(at, FIRST_FRAME_TIMEOUT_S - 1)
        assert reasons(unharmed, peer) == []
        sweep(at, FIRST_FRAME_TIMEOUT_S + 1)
        assert await peer.until_closed() == b""
        assert reasons(unharmed, peer) == ["no request within 10 s"]
    await unharmed.check()


async def test_t3_a_thousand_idle_connections_cost_little_and_are_closed(
    unharmed: Unharmed,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3000:
        pytest.skip("this machine does not allow 3,000 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    at = unharmed.broker.servers.remoting
    at.connections_max = max(at.connections_max, 1100)
    writers = []
    try:
        for _ in range(1000):
            host, _, port = unharmed.broker.address.rpartition(":")
            writers.append((await asyncio.open_connection(host, int(port)))[1])
        await until(lambda: len(at.connections) >= 1001)
        await unharmed.check_neighbour()
        idle = [
            connection for connection in at.connections if not connection.activity.frames_received
        ]
        assert len(idle) == 1000
        assert sum(sys.getsizeof(part) for part in (idle[0], idle[0].attributes)) < 1000
        sweep(at, FIRST_FRAME_TIMEOUT_S + 1)
        await until(lambda: len(at.connections) <= 1)
    finally:
        for writer in writers:
            writer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await unharmed.check()


async def test_sweeping_many_leaves_the_loop_to_others_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "SWEPT_PER_TURN", 2)
    swept: list[int] = []
    monkeypatch.setattr(server, "sweep_connections", lambda piece, _: swept.append(len(piece)))
    at = Server("test", Ignoring(), connections_max=10)
    at.connections = {RemotingConnection(at) for _ in range(5)}
    at.sweep()
    at_once = list(swept)
    await until(lambda: len(swept) == 3)
    at.connections.clear()
    await at.close()
    assert at_once == [2]
    assert swept == [2, 2, 1]


async def test_t4_one_byte_every_five_seconds_is_closed_after_thirty(unharmed: Unharmed) -> None:
    at = unharmed.broker.servers.remoting
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(SEND)
        await peer.answer()
        connection = await connection_of(at, peer)
        for sent, seconds in enumerate(range(0, int(FRAME_TIMEOUT_S), 5)):
            peer.send(SEND[sent : sent + 1])
            await until(partial(has_arrived, connection, sent + 1))
            sweep(at, seconds)
            assert not connection.closed
        sweep(at, FRAME_TIMEOUT_S + 1)
        assert await peer.until_closed() == b""
        assert reasons(unharmed, peer) == ["a frame was not completed within 30 s"]
    await unharmed.check()


async def test_a_frame_that_ends_in_time_starts_the_clock_anew(unharmed: Unharmed) -> None:
    at = unharmed.broker.servers.remoting
    async with RawPeer(unharmed.broker.address) as peer:
        connection = await connection_of(at, peer)
        peer.send(SEND + SEND[:10])
        await peer.answer()
        begun_at_s = connection.activity.frame_begun_at_s
        assert begun_at_s is not None
        peer.send(SEND[10:])
        await peer.answer()
        assert connection.activity.frame_begun_at_s is None
        sweep(at, FRAME_TIMEOUT_S + 1)
        assert not connection.closed
    await unharmed.check()


async def test_an_idle_connection_is_closed_after_two_minutes(unharmed: Unharmed) -> None:
    at = unharmed.broker.servers.remoting
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(SEND)
        await peer.answer()
        connection = await connection_of(at, peer)
        now_s = asyncio.get_running_loop().time()
        # It was active until this look.
        sweep_connections([connection], now_s)
        sweep_connections([connection], now_s + IDLE_TIMEOUT_S - 5)
        assert not connection.closed
        sweep_connections([connection], now_s + IDLE_TIMEOUT_S + 1)
        assert await peer.until_closed() == b""
        assert reasons(unharmed, peer) == ["idle for 120 s"]
    await unharmed.check()


async def fill(unharmed: Unharmed, topic: str, count: int = 32, size_bytes: int = 8000) -> None:
    """Put messages into queue 0 of *topic*."""
    batch = encode_batch([(0, bytes(size_bytes), b"")] * count)
    async with RawPeer(unharmed.broker.address) as peer:
        ext = {"a": "tests", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0"}
        ext |= {"g": "1", "h": "0", "i": "", "j": "0", "k": "false", "m": "true"}
        answer = await peer.ask(RequestCode.SEND_BATCH_MESSAGE, ext, batch)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def until_paused(connection: RemotingConnection) -> None:
    await until(lambda: connection.writing_paused)


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_t5_a_client_that_pulls_and_never_reads_is_not_read_from(
    unharmed: Unharmed, code: int
) -> None:
    await fill(unharmed, "orders")
    at = unharmed.broker.servers.remoting
    async with RawPeer(unharmed.broker.address, receive_buffer_bytes=4096) as peer:
        connection = await connection_of(at, peer)
        pull = request(code, pull_fields("orders", 0))
        peer.send(pull * 8000)  # asks for 1 GB
        await until_paused(connection)
        await unharmed.check_neighbour()
        held = connection.unread_bytes
        assert held < 4 * MIB
        taken = connection.activity.frames_received - len(connection.backlog)
        for _ in range(20):
            await unharmed.check_neighbour()
        assert connection.unread_bytes == held
        assert connection.activity.frames_received - len(connection.backlog) == taken
        sweep(at, WRITE_STALL_TIMEOUT_S + 1)
        assert connection.closed
        assert reasons(unharmed, peer) == ["the peer read no answer for 30 s"]
    await unharmed.check()


async def test_a_client_that_reads_late_gets_every_answer(unharmed: Unharmed) -> None:
    await fill(unharmed, "orders")
    at = unharmed.broker.servers.remoting
    async with RawPeer(unharmed.broker.address, receive_buffer_bytes=65_536) as peer:
        connection = await connection_of(at, peer)
        peer.send(
            b"".join(
                request(RequestCode.PULL_MESSAGE, pull_fields("orders", 0), opaque=opaque)
                for opaque in range(300)
            )
        )
        await until_paused(connection)
        sweep(at, WRITE_STALL_TIMEOUT_S - 1)
        answers = await peer.answers(300)
    assert [answer.opaque for answer in answers] == list(range(300))
    assert {len(answer.body) for answer in answers} == {len(answers[0].body)}
    await unharmed.check()


class Unread:
    """A transport of which only the peer's backlog matters: 2 MB at first."""

    size_bytes = 2_000_000

    def get_write_buffer_size(self) -> int:
        return self.size_bytes

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        self.size_bytes = 0


@pytest.fixture
def unread() -> Unread:
    return Unread()


@pytest.fixture
async def stalled(unread: Unread) -> RemotingConnection:
    """A connection whose peer does not read."""
    connection = RemotingConnection(Server("test", Ignoring(), connections_max=10))
    connection._transport = cast("asyncio.Transport", unread)
    connection.activity.frames_received = 1
    connection.pause_writing()
    return connection


async def test_a_closed_client_has_the_same_time_to_read_its_answers(
    unread: Unread, stalled: RemotingConnection
) -> None:
    stalled.close()
    now_s = asyncio.get_running_loop().time()
    for _ in range(2):
        now_s += WRITE_STALL_TIMEOUT_S - 1
        unread.size_bytes -= 1
        sweep_connections([stalled], now_s)
    assert stalled.unread_bytes == unread.size_bytes > MIB
    sweep_connections([stalled], now_s + WRITE_STALL_TIMEOUT_S + 1)
    assert stalled.unread_bytes == unread.size_bytes == 0


async def test_a_client_that_reads_slowly_is_not_taken_for_one_that_does_not(
    unread: Unread, stalled: RemotingConnection
) -> None:
    now_s = asyncio.get_running_loop().time()
    for _ in range(10):
        now_s += WRITE_STALL_TIMEOUT_S - 1
        unread.size_bytes -= 1
        stalled.activity.last_active_s = now_s
        sweep_connections([stalled], now_s)
    assert not stalled.closed
    now_s += WRITE_STALL_TIMEOUT_S + 1
    stalled.activity.last_active_s = now_s
    sweep_connections([stalled], now_s)
    assert stalled.closed


async def test_routes_that_nobody_reads_stay_bounded_too(unharmed: Unharmed) -> None:
    assert unharmed.broker.servers.name_service is not None
    for number in range(2000):
        unharmed.broker.tables.topics._create(f"topic-{number:04}-" + "x" * 50, 1)
    at = unharmed.broker.servers.name_service.server
    async with RawPeer(unharmed.broker.nameserver, receive_buffer_bytes=4096) as peer:
        connection = await connection_of(at, peer)
        peer.send(request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) * 2000)  # 250 MB
        await until_paused(connection)
        await unharmed.check_neighbour()
        # Behind what it stopped at comes the answer that was being made.
        assert connection.unread_bytes < 4 * MIB
    unharmed.lines.clear()  # the topics that were made
    await unharmed.check()


async def test_answers_that_come_by_themselves_stop_at_64_mib(
    unharmed: Unharmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "UNREAD_BYTES_MAX", 8 * MIB)
    await fill(unharmed, "orders", count=1, size_bytes=1)
    async with RawPeer(unharmed.broker.address, receive_buffer_bytes=4096) as peer:
        connection = await connection_of(unharmed.broker.servers.remoting, peer)
        waiting = pull_fields("orders", 1, suspend_ms=30_000)
        peer.send(request(RequestCode.PULL_MESSAGE, waiting) * 300)
        await until(lambda: len(unharmed.broker.kernel.long_polling) >= 300)
        await fill(unharmed, "orders")  # wakes all of them: 75 MB
        await until(lambda: connection.closed)
        (reason,) = reasons(unharmed, peer)
        assert "were not read" in reason
    await unharmed.check()


async def test_the_slowest_goes_when_all_together_leave_too_much_unread(
    unharmed: Unharmed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "UNREAD_BYTES_MAX", 16 * MIB)
    monkeypatch.setattr(server, "UNREAD_BYTES_MAX_ALL", 20 * MIB)
    monkeypatch.setattr(server, "UNREAD_BYTES_STEP", MIB)
    await fill(unharmed, "orders", count=1, size_bytes=1)
    parked = len(unharmed.broker.kernel.long_polling)
    waiting = request(RequestCode.PULL_MESSAGE, pull_fields("orders", 1, suspend_ms=30_000))
    peers = [RawPeer(unharmed.broker.address, receive_buffer_bytes=4096) for _ in range(3)]
    async with peers[0], peers[1], peers[2]:
        for peer in peers:
            peer.send(waiting * 60)  # 15 MiB
        await until(lambda: len(unharmed.broker.kernel.long_polling) >= parked + 180)
        await fill(unharmed, "orders")
        await until(lambda: any(reasons(unharmed, peer) for peer in peers))
        await unharmed.check_neighbour()
        closed = [reason for peer in peers for reason in reasons(unharmed, peer)]
        assert set(closed) == {"all peers together have too many unread answers"}
        assert len(closed) < 3
    await unharmed.check()


@pytest.mark.parametrize("code", [RequestCode.GET_ALL_TOPIC_CONFIG])
async def test_slow_requests_of_one_connection_are_bounded(unharmed: Unharmed, code: int) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(request(code) * 1000)
        codes = {answer.code for answer in await peer.answers(1000)}
        assert codes == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
        assert (await peer.ask(code)).code == ResponseCode.SUCCESS
    await unharmed.check()


@pytest.mark.costly
async def test_p6_long_polls_beyond_the_most_are_told_to_wait(unharmed: Unharmed) -> None:
    await fill(unharmed, "orders", count=1)
    waiting = request(RequestCode.PULL_MESSAGE, pull_fields("orders", 1, suspend_ms=10**9))
    refused = 20_000 - PARKED_PER_CONNECTION_MAX
    async with RawPeer(unharmed.broker.address) as peer:
        answering = asyncio.create_task(peer.answers(refused))
        for _ in range(20):
            peer.send(waiting * 1000)
            await peer.drain()
        answers = await answering
        assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_BUSY}
        assert len(unharmed.broker.kernel.long_polling) >= PARKED_PER_CONNECTION_MAX
        await unharmed.check_neighbour()
        await fill(unharmed, "orders", count=1, size_bytes=1)
        found = await peer.answers(PARKED_PER_CONNECTION_MAX)
        assert {answer.code for answer in found} == {ResponseCode.SUCCESS}
    await unharmed.check()


async def test_t9_a_reset_in_the_middle_of_a_batch_stores_nothing(unharmed: Unharmed) -> None:
    end = unharmed.broker.store.log.written_offset
    batch = request(
        RequestCode.SEND_BATCH_MESSAGE,
        {"a": "t", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"},
        encode_batch([(0, bytes(1000), b"")] * 500),
    )
    at = unharmed.broker.servers.remoting
    for cut in (9, 200, 100_000, len(batch) - 1):
        async with RawPeer(unharmed.broker.address) as peer:
            connection = await connection_of(at, peer)
            peer.send(batch[:cut])
            await until(partial(has_arrived, connection, cut))
            peer.reset()
            await until(partial(getattr, connection, "closed"))
    assert unharmed.broker.store.log.written_offset == end
    assert "orders" not in unharmed.broker.tables.topics
    await unharmed.check()


async def test_a_parked_pull_goes_with_its_connection(unharmed: Unharmed) -> None:
    await fill(unharmed, "orders", count=1)
    parked = len(unharmed.broker.kernel.long_polling)
    async with RawPeer(unharmed.broker.address) as peer:
        waiting = pull_fields("orders", 1, suspend_ms=300_000)
        peer.send(request(RequestCode.PULL_MESSAGE, waiting))
        await until(lambda: len(unharmed.broker.kernel.long_polling) != parked)
        peer.reset()
        await until(lambda: len(unharmed.broker.kernel.long_polling) <= parked)
    await fill(unharmed, "orders", count=1)
    await unharmed.check()


async def test_t10_clients_that_go_before_the_flush_keep_no_answer_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Unharmed(tmp_path, monkeypatch, {"flushDiskType": "SYNC_FLUSH"}) as unharmed:
        address = unharmed.broker.address
        for _ in range(10):
            async with RawPeer(address) as leaver, RawPeer(address) as resetter:
                async with RawPeer(address) as stayer:
                    leaver.send(SEND * 10)
                    resetter.send(SEND * 10)
                    stayer.send(SEND * 10)
                    await asyncio.gather(leaver.drain(), resetter.drain(), stayer.drain())
                    resetter.reset()
                    await leaver.__aexit__()
                    answers = await stayer.answers(10)
                    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        await unharmed.check()
