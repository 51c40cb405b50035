"""One connection: pipelining, timeouts, cancellation, negotiation, the broker's requests."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientStateError,
    MalformedAnswerError,
    RequestTimeoutError,
)
from rockhopper.client.network import connection as network_connection
from rockhopper.client.network.connection import BrokerConnection
from rockhopper.client.network.connection_pool import ConnectionPool
from rockhopper.client.network.tls import UNANSWERED_REMEDY
from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE, SerializeType
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.headers.header_json import begin_json_header
from tests.support.fake_server import FakeServer
from tests.support.held_clock import HeldClock


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        server.on(28, lambda request: Command(0, body=request.body))
        yield server


@pytest.fixture
async def pool() -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool()
    yield pool
    await pool.close()


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> HeldClock:
    return HeldClock(monkeypatch)


async def raised(future: asyncio.Future[Command]) -> BaseException | None:
    """What a request ends with."""
    await asyncio.wait([future])
    return future.exception()


async def test_answers_find_their_requests_in_whatever_order_they_come(
    server: FakeServer, pool: ConnectionPool
) -> None:
    second_answered = asyncio.Event()

    async def answer(request: Command) -> Command:
        if request.body == b"first":
            await second_answered.wait()
        return Command(0, body=request.body)

    server.on(28, answer)
    first = asyncio.create_task(pool.request(server.address, Command(28, body=b"first"), 5))
    second = await pool.request(server.address, Command(28, body=b"second"), 5)
    second_answered.set()
    assert (second.body, (await first).body) == (b"second", b"first")
    assert len(server.connections) == 1


async def test_requests_of_one_turn_of_the_loop_leave_in_one_write(
    server: FakeServer, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await pool.connect(server.address)
    writes: list[bytes] = []
    transport = connection.transport
    assert transport is not None
    write = transport.write

    def write_and_count(data: bytes) -> None:
        writes.append(data)
        write(data)

    monkeypatch.setattr(transport, "write", write_and_count)
    answers = [connection.request(Command(28, body=b"%d" % n), 5) for n in range(50)]
    assert [answer.body for answer in await asyncio.gather(*answers)] == [
        b"%d" % n for n in range(50)
    ]
    assert len(writes) == 1


async def test_a_timeout_leaves_the_connection_usable_and_the_late_answer_is_dropped(
    server: FakeServer, pool: ConnectionPool, clock: HeldClock
) -> None:
    release = asyncio.Event()

    async def answer_late(request: Command) -> Command:
        await release.wait()
        return Command(0, body=b"late")

    server.on(30, answer_late)
    asking = asyncio.create_task(pool.request(server.address, Command(30), 0.05))
    await server.wait_for(30)
    clock.advance(0.06)
    with pytest.raises(
        RequestTimeoutError, match=r"did not answer GET_MAX_OFFSET within 0\.05 s"
    ) as caught:
        await asking
    assert caught.value.address == server.address
    release.set()
    answer = await pool.request(server.address, Command(28, body=b"next"), 5)
    assert answer.body == b"next"
    assert len(server.connections) == 1


async def test_the_shortest_timeout_fires_first_whatever_was_asked_before_it(
    server: FakeServer, pool: ConnectionPool
) -> None:
    server.on(30, lambda request: None)
    connection = await pool.connect(server.address)
    patient = connection.request(Command(30), 60)
    hasty = connection.request(Command(30), 0.01)
    with pytest.raises(RequestTimeoutError):
        await hasty
    assert not patient.done()
    patient.cancel()


async def test_time_in_which_the_loop_was_too_busy_to_write_a_request_does_not_count(
    server: FakeServer, pool: ConnectionPool, clock: HeldClock
) -> None:
    connection = await pool.connect(server.address)
    asked = [connection.request(Command(28, body=b"%d" % number), 3) for number in range(3)]
    clock.advance(20)  # other callbacks of this turn
    answers = await asyncio.gather(*asked)
    assert [answer.body for answer in answers] == [b"0", b"1", b"2"]
    assert connection.is_open
    server.on(30, lambda request: None)
    asked = [connection.request(Command(30), 3) for _ in range(2)]
    clock.advance(1)
    await server.wait_for(30, 2)
    clock.advance(2.9)
    await idle()
    assert not any(each.done() for each in asked)
    clock.advance(0.1)
    assert isinstance(await raised(asked[0]), RequestTimeoutError)


async def test_answers_that_came_while_the_loop_was_busy_are_read_before_a_request_times_out(
    clock: HeldClock,
) -> None:
    loop = asyncio.get_running_loop()
    transport = HeldTransport(room_bytes=1_000_000)
    connection = transport.connection
    asked = [connection.request(Command(30), 3) for _ in range(2)]
    await idle()
    clock.advance(20)

    def read(opaque: int) -> None:
        connection.data_received(encode_command(Command(0, flag=FLAG_RESPONSE, opaque=opaque)))
        if opaque == 0:  # the rest did not fit into one read
            loop.call_soon(read, 1)

    loop.call_soon(read, 0)
    assert [answer.opaque for answer in await asyncio.gather(*asked)] == [0, 1]


async def test_a_connection_that_was_forgotten_on_its_way_costs_one_timeout(
    server: FakeServer, pool: ConnectionPool, clock: HeldClock
) -> None:
    """A NAT that drops what it does not know lets nothing through in either direction."""
    await pool.request(server.address, Command(28), 5)
    forgotten = pool.existing(server.address)
    assert forgotten is not None
    server.on(30, lambda request: None)
    lost = forgotten.request(Command(30), 3)
    await server.wait_for(30)
    clock.advance(3.5)
    assert isinstance(await raised(lost), RequestTimeoutError)
    assert (await pool.request(server.address, Command(28, body=b"x"), 5)).body == b"x"
    assert pool.existing(server.address) is not forgotten
    assert forgotten.closed.done()


async def test_a_peer_that_has_gone_silent_is_given_up_and_dialled_again(
    server: FakeServer, pool: ConnectionPool, clock: HeldClock
) -> None:
    server.on(30, lambda request: None)
    await pool.request(server.address, Command(28), 5)
    silent = pool.existing(server.address)
    assert silent is not None
    slow, hopeless = (silent.request(Command(30), timeout_s) for timeout_s in (5, 11))
    await server.wait_for(30, 2)
    clock.advance(6)
    assert isinstance(await raised(slow), RequestTimeoutError)
    assert not silent.is_open  # what comes next goes by another connection
    assert not silent.closed.done()  # and this one may still be answered
    clock.advance(6)
    assert isinstance(await raised(hopeless), RequestTimeoutError)
    await silent.closed
    assert (await pool.request(server.address, Command(28, body=b"x"), 5)).body == b"x"


async def test_a_slow_request_among_others_that_are_answered_is_no_silence(
    server: FakeServer, pool: ConnectionPool, clock: HeldClock
) -> None:
    server.on(30, lambda request: None)
    connection = await pool.connect(server.address)
    slow = connection.request(Command(30), 20)
    while not slow.done():
        await pool.request(server.address, Command(28), 5)
        clock.advance(4)
    assert isinstance(await raised(slow), RequestTimeoutError)
    assert connection.is_open


async def test_a_cancelled_request_leaves_the_connection_usable(
    server: FakeServer, pool: ConnectionPool
) -> None:
    release = asyncio.Event()

    async def answer_late(request: Command) -> Command:
        await release.wait()
        return Command(0, body=b"late")

    server.on(30, answer_late)
    task = asyncio.create_task(pool.request(server.address, Command(30), 5))
    await server.wait_for(30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    assert (await pool.request(server.address, Command(28, body=b"x"), 5)).body == b"x"


async def test_a_caller_cancelled_while_connecting_does_not_end_the_attempt_for_others(
    server: FakeServer, pool: ConnectionPool
) -> None:
    impatient = asyncio.create_task(pool.connect(server.address))
    patient = asyncio.create_task(pool.connect(server.address))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).is_open
    assert len(server.connections) == 1


async def test_a_broken_connection_fails_what_was_under_way_and_is_made_again_on_demand(
    server: FakeServer, pool: ConnectionPool
) -> None:
    server.on(30, lambda request: None)
    waiting = asyncio.create_task(pool.request(server.address, Command(30), 5))
    await server.wait_for(30)
    server.drop_connections()
    with pytest.raises(BrokerUnreachableError, match="broke"):
        await waiting
    assert (await pool.request(server.address, Command(28, body=b"again"), 5)).body == b"again"


@pytest.mark.parametrize(("is_first", "is_tls"), [(True, False), (False, False), (True, True)])
async def test_a_plain_connection_closed_before_any_answer_suggests_tls(
    server: FakeServer,
    pool: ConnectionPool,
    monkeypatch: pytest.MonkeyPatch,
    is_first: bool,
    is_tls: bool,
) -> None:
    monkeypatch.setattr(network_connection, "is_tls_transport", lambda transport: is_tls)
    server.on(30, lambda request: server.drop_connections())
    if not is_first:
        await pool.request(server.address, Command(28), 5)
    with pytest.raises(BrokerUnreachableError, match="broke") as caught:
        await pool.request(server.address, Command(30), 5)
    assert caught.value.remedy == (UNANSWERED_REMEDY if is_first and not is_tls else None)


async def test_a_refused_connection_names_the_address_and_what_to_check(
    pool: ConnectionPool,
) -> None:
    async with FakeServer() as gone:
        address = gone.address
    with pytest.raises(BrokerUnreachableError) as caught:
        await pool.request(address, Command(28), 5)
    text = str(caught.value)
    assert address in text
    assert "no process listens there" in text
    assert "check" in text
    assert caught.value.address == address


async def test_an_unknown_host_is_said_to_be_unknown(pool: ConnectionPool) -> None:
    with pytest.raises(BrokerUnreachableError, match=r"'no-such-host\.invalid' cannot be resolved"):
        await pool.request("no-such-host.invalid:9876", Command(28), 5)


async def test_a_request_of_unknown_code_from_the_broker_is_answered_with_code_3(
    server: FakeServer, pool: ConnectionPool
) -> None:
    await pool.connect(server.address)
    (peer,) = server.connections
    answer = await peer.ask(Command(307, opaque=77))
    assert (answer.code, answer.opaque) == (3, 77)
    assert answer.remark == " request type 307 not supported"


async def test_a_oneway_request_from_the_broker_is_never_answered(
    server: FakeServer, pool: ConnectionPool
) -> None:
    await pool.connect(server.address)
    (peer,) = server.connections
    peer.transport.write(encode_command(Command(40, opaque=1, flag=FLAG_ONEWAY)))
    assert (await peer.ask(Command(307, opaque=2))).opaque == 2


async def test_the_first_requests_are_json_and_ask_for_msgpack(
    server: FakeServer, pool: ConnectionPool
) -> None:
    for _ in range(3):
        await pool.request(server.address, Command(28, ext={"x": "1"}), 5)
    assert [request.serialize_type for request in server.requests] == [SerializeType.JSON] * 3
    asked = [(request.ext or {}).get("rh") for request in server.requests]
    assert asked == ["1", None, None]


async def test_a_broker_that_echoes_rh_gets_msgpack_headers_from_then_on(
    server: FakeServer, pool: ConnectionPool
) -> None:
    server.echoes_rh = True
    for number in range(3):
        answer = await pool.request(server.address, Command(28, body=b"%d" % number), 5)
        assert answer.body == b"%d" % number
    types = [request.serialize_type for request in server.requests]
    assert types == [SerializeType.JSON, SerializeType.MSGPACK, SerializeType.MSGPACK]


async def test_a_peer_that_does_not_speak_the_protocol_is_named_as_such(
    pool: ConnectionPool,
) -> None:
    async def talk_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(talk_http, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    async with listener:
        with pytest.raises(
            MalformedAnswerError, match="does not speak RocketMQ's remoting protocol"
        ):
            await pool.request(f"{host}:{port}", Command(28), 5)


async def test_a_retired_connection_still_takes_the_answers_under_way(
    server: FakeServer, pool: ConnectionPool
) -> None:
    release = asyncio.Event()

    async def answer_late(request: Command) -> Command:
        await release.wait()
        return Command(0, body=b"late")

    server.on(30, answer_late)
    waiting = asyncio.create_task(pool.request(server.address, Command(30), 3600))
    await server.wait_for(30)
    old = pool.existing(server.address)
    assert old is not None
    pool.retire(server.address)
    await pool.request(server.address, Command(28), 5)
    assert len(server.connections) == 2
    release.set()
    assert (await waiting).body == b"late"
    await old.closed


async def test_oneway_requests_sent_just_before_close_reach_the_broker(
    server: FakeServer,
) -> None:
    pool = ConnectionPool()
    for _ in range(100):
        await pool.send_oneway(server.address, Command(310, body=bytes(10_000)))
    await pool.close()
    assert len(await server.wait_for(310, 100)) == 100


async def test_a_closed_pool_says_so(server: FakeServer) -> None:
    pool = ConnectionPool()
    await pool.close()
    with pytest.raises(ClientStateError, match="closed"):
        await pool.request(server.address, Command(28), 5)


def test_a_pool_of_another_event_loop_says_so() -> None:
    pool = ConnectionPool()

    async def use() -> None:
        async with FakeServer() as server:
            server.on(28, lambda request: Command(0))
            await pool.request(server.address, Command(28), 5)
            (connection,) = pool.connections
            connection.close()
            await connection.closed

    asyncio.run(use())
    with pytest.raises(ClientStateError, match="another event loop"):
        asyncio.run(use())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
async def test_a_forked_child_gets_a_clear_error_and_the_parent_goes_on(
    server: FakeServer, pool: ConnectionPool
) -> None:
    connection = await pool.connect(server.address)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        outcome = b"no error"
        try:
            connection.request(Command(28), 5)
        except ClientStateError as error:
            outcome = str(error).encode()
        finally:
            os.write(writer, outcome)
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert b"create a new client in the child process" in pipe.read()
    os.waitpid(child, 0)  # noqa: ASYNC222  it has ended: its pipe is closed
    assert (await pool.request(server.address, Command(28, body=b"x"), 5)).body == b"x"


async def test_many_requests_survive_a_peer_that_reads_slowly(
    server: FakeServer, pool: ConnectionPool
) -> None:
    bodies = [os.urandom(200_000) for _ in range(50)]
    answers = await asyncio.gather(
        *(pool.request(server.address, Command(28, body=body), 30) for body in bodies)
    )
    assert [answer.body for answer in answers] == bodies


class HeldTransport(asyncio.Transport):
    """A socket that takes up to `room_bytes`, then lets its protocol pause."""

    def __init__(self, room_bytes: int) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.connection = BrokerConnection("a:1")
        self.connection.connection_made(self)
        self._room_bytes = room_bytes

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        self.writes.append(bytes(data))
        self._room_bytes -= len(data)
        if self._room_bytes < 0:
            self.connection.pause_writing()

    def take(self, room_bytes: int) -> None:
        """Let the peer read."""
        self._room_bytes = room_bytes
        self.connection.resume_writing()

    def is_closing(self) -> bool:
        return False

    @property
    def bodies(self) -> list[bytes]:
        return [body[:1] for _, _, body in FrameDecoder().feed(b"".join(self.writes))]


async def sent_in_turn(transport: HeldTransport, body: bytes) -> None:
    connection = transport.connection
    await connection.outgoing.wait_writable(len(body))
    connection.send_oneway(Command(28, body=body))


async def idle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_turn_that_sends_much_hears_of_a_full_socket_before_its_end() -> None:
    transport = HeldTransport(room_bytes=0)
    connection = transport.connection
    count = 0
    while connection.outgoing.is_writable and count < 1000:
        connection.send_oneway(Command(28, body=bytes(10_000)))
        count += 1
    assert 200_000 < count * 10_000 < 300_000
    assert len(transport.writes) == 1


async def test_those_that_wait_go_on_in_their_order_and_only_as_far_as_the_peer_takes() -> None:
    transport = HeldTransport(room_bytes=0)
    numbers = [bytes([number]) for number in range(9)]
    senders = [asyncio.create_task(sent_in_turn(transport, number * 300_000)) for number in numbers]
    await idle()
    assert transport.bodies == numbers[:1]
    transport.take(room_bytes=1_000_000)
    await idle()
    assert transport.bodies == numbers[:5]
    late = asyncio.create_task(sent_in_turn(transport, b"late"))
    transport.take(room_bytes=10_000_000)
    await asyncio.gather(*senders, late)
    await idle()
    assert transport.bodies == [*numbers, b"l"]


async def test_one_that_is_cancelled_while_it_waits_keeps_nobody_else_waiting() -> None:
    transport = HeldTransport(room_bytes=-1)
    transport.write(b"")
    senders = [asyncio.create_task(sent_in_turn(transport, body)) for body in (b"0", b"1", b"2")]
    await idle()
    senders[0].cancel()
    transport.take(room_bytes=1_000_000)
    senders[1].cancel()  # its turn has come already
    await asyncio.gather(*senders, return_exceptions=True)
    await idle()
    assert transport.bodies == [b"2"]
    assert transport.connection.outgoing.is_writable


async def test_those_that_wait_hear_that_the_connection_is_gone() -> None:
    transport = HeldTransport(room_bytes=-1)
    transport.write(b"")
    sender = asyncio.create_task(sent_in_turn(transport, b"0"))
    await idle()
    transport.connection.connection_lost(None)
    with pytest.raises(BrokerUnreachableError):
        await sender


async def test_a_header_that_was_begun_is_finished_as_any_other(
    server: FakeServer, pool: ConnectionPool
) -> None:
    fields = {"a": 'ü"\\', "b": "100%"}
    await pool.request(server.address, Command(28, ext=dict(fields), body=b"x"), 5)
    start = begin_json_header(28, fields)
    answer = await pool.request_json(server.address, 28, start, b"x", 5)
    assert answer.body == b"x"
    usual, begun = server.requests
    begun.opaque, begun.ext = usual.opaque, {**fields, "rh": "1"}
    assert begun == usual


async def test_a_request_that_follows_another_by_itself_leaves_at_once() -> None:
    transport = HeldTransport(room_bytes=1_000_000)
    connection = transport.connection
    connection.send_oneway(Command(28, body=b"0"))
    await idle()
    connection.send_oneway(Command(28, body=b"1"))
    assert transport.bodies == [b"0", b"1"]
    answers = [connection.request(Command(28, body=b"%d" % number), 5) for number in range(2, 10)]
    await idle()
    assert len(transport.writes) == 4
    connection.send_oneway(Command(28, body=b"a"))
    assert len(transport.writes) == 4
    await idle()
    assert transport.bodies[-1] == b"a"
    connection.connection_lost(None)
    await asyncio.gather(*answers, return_exceptions=True)
