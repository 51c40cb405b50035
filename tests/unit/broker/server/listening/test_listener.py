"""One port: TLS and plain side by side, and nobody on it holds up the others."""

import asyncio
import contextlib
import errno
import ipaddress
import itertools
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from rockhopper.broker.server.listening import listener as listening
from rockhopper.broker.server.listening.caller import Caller
from rockhopper.broker.server.listening.listener import OPEN, Gate, Listener
from rockhopper.broker.server.listening.proxy_protocol import ProxyProtocol
from rockhopper.broker.server.listening.tls import Tls, TlsFiles
from tests.support.certificates import Authority
from tests.support.hang import HANG_S
from tests.support.turns import until

Listen = Callable[..., Awaitable[Listener]]


class Echo(asyncio.Protocol):
    """Answers with who it takes its peer for."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"%s %r\n" % (data, self.caller.is_tls))
        self.transport.write(f"{self.caller.address}\n".encode())


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    opened: list[Listener] = []

    async def on(gate: Gate, **more: object) -> Listener:
        bound = socket.create_server(("127.0.0.1", 0))
        made = Listener(bound, Echo, name="test", gate=gate, **more)  # type: ignore[arg-type]
        await made.start()
        opened.append(made)
        return made

    yield on
    for each in opened:
        await each.stop()


@pytest.fixture
def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.ca)


def gate_of(authority: Authority, *, is_enforced: bool = False) -> Gate:
    return Gate(Tls(TlsFiles(*authority.issue()), is_enforced=is_enforced))


async def said(port: int, context: ssl.SSLContext | None, data: bytes = b"hi") -> list[bytes]:
    """The answer to *data*: nothing, when the connection was closed."""
    async with asyncio.timeout(HANG_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(data)
        try:
            return [await reader.readline(), await reader.readline()]
        except ConnectionResetError:
            return [b"", b""]
        finally:
            writer.transport.abort()


async def test_tls_and_plain_come_to_one_port(
    listen: Listen, authority: Authority, trusting: ssl.SSLContext
) -> None:
    port = (await listen(gate_of(authority))).port
    assert (await said(port, None))[0] == b"hi False\n"
    assert (await said(port, trusting))[0] == b"hi True\n"


async def test_plain_is_refused_where_tls_is_enforced(
    listen: Listen, authority: Authority, trusting: ssl.SSLContext
) -> None:
    opened = await listen(gate_of(authority, is_enforced=True))
    assert (await said(opened.port, None))[0] == b""
    assert (await said(opened.port, trusting))[0] == b"hi True\n"
    assert opened.failures.count == 1


async def test_without_tls_the_loops_own_listener_serves(listen: Listen) -> None:
    opened = await listen(OPEN)
    port = opened.port
    assert (await said(port, None))[0] == b"hi False\n"
    opened.stop_accepting()
    await opened.stop()
    with pytest.raises(ConnectionRefusedError):
        await said(port, None)


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_accepted_as_the_port_closes_is_not_lost(
    listen: Listen, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    opened = await listen(OPEN)
    monkeypatch.setattr(Echo, "connection_made", lambda _, transport: transport.abort())
    with socket.create_connection(("127.0.0.1", opened.port), timeout=HANG_S) as peer:
        for _ in range(turns):
            await asyncio.sleep(0)
        await opened.stop()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(peer.recv, 1) == b""


async def test_a_proxy_says_whose_connection_it_is(listen: Listen) -> None:
    header = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n"
    gates = [
        Gate(None, ProxyProtocol([ipaddress.ip_network(each)])) for each in ("127.0.0.0/8", "::/0")
    ]
    trusting, strange = [(await listen(gate)).port for gate in gates]
    assert await said(trusting, None, header + b"hi") == [
        b"hi False\n",
        b"('192.0.2.1', 56324)\n",
    ]
    assert (await said(strange, None, header))[0] == header


async def test_a_client_that_does_not_trust_it_is_counted(
    listen: Listen, authority: Authority, tmp_path: Path
) -> None:
    gate = gate_of(authority)
    assert gate.tls is not None
    port = (await listen(gate)).port
    strange = ssl.create_default_context(cafile=Authority(tmp_path, "other").ca)
    with pytest.raises(ssl.SSLCertVerificationError):
        await said(port, strange)
    failures = gate.tls.handshakes.failures
    await until(lambda: failures.count > 0)


async def test_silent_ones_and_half_handshakes_hold_up_nobody(
    listen: Listen, authority: Authority, trusting: ssl.SSLContext
) -> None:
    opened = await listen(gate_of(authority))
    silent = [socket.create_connection(("127.0.0.1", opened.port)) for _ in range(200)]
    for each in silent[::2]:
        each.send(b"\x16\x03\x01\x02\x00half")
    assert (await said(opened.port, trusting))[0] == b"hi True\n"
    assert opened.arriving >= 200
    await opened.stop()
    for each in silent:
        each.close()
    assert opened.arriving == 0


def hello() -> bytes:
    """The first record of a handshake."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def test_who_is_there_is_answered_while_nearly_all_of_a_flood_of_handshakes_waits(
    listen: Listen, authority: Authority, trusting: ssl.SSLContext
) -> None:
    gate, first = gate_of(authority), hello()
    assert gate.tls is not None
    handshakes = gate.tls.handshakes
    port = (await listen(gate)).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    flood = [socket.create_connection(("127.0.0.1", port)) for _ in range(500)]
    for each in flood:
        each.send(first)
    async with asyncio.timeout(HANG_S):
        for _ in range(5):
            writer.write(b"hi")
            assert await reader.readline() == b"hi True\n"
            assert await reader.readline() == b"None\n"
    assert handshakes.count - len(handshakes.waiting) < 250
    assert handshakes.failures.count == 0
    writer.transport.abort()
    for each in flood:
        each.close()
    await until(lambda: handshakes.count == 0)


async def test_one_turn_accepts_only_so_many(
    listen: Listen, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "ACCEPTED_PER_TURN", 3)
    opened = await listen(gate_of(authority))
    silent = [socket.create_connection(("127.0.0.1", opened.port)) for _ in range(10)]
    steps = [0]
    async with asyncio.timeout(HANG_S):
        while steps[-1] < 10:
            await asyncio.sleep(0)
            steps.append(opened.arriving)
    assert max(after - before for before, after in itertools.pairwise(steps)) <= 3
    for each in silent:
        each.close()


async def test_beyond_the_limit_who_comes_is_closed(listen: Listen, authority: Authority) -> None:
    opened = await listen(gate_of(authority), has_room=lambda arriving: arriving < 2)
    kept = [socket.create_connection(("127.0.0.1", opened.port)) for _ in range(2)]
    await until(lambda: opened.arriving == 2)
    assert (await said(opened.port, None))[0] == b""
    for each in kept:
        each.close()


async def test_without_a_descriptor_who_connects_waits(
    listen: Listen, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "ACCEPT_AGAIN_S", 0.0)
    opened = await listen(gate_of(authority))
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "too many open files")]

    def short(self: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", short)
    assert (await said(opened.port, None))[0] == b"hi False\n"
    assert opened.failures.count == 1


async def test_a_new_certificate_counts_for_the_next_connection(
    listen: Listen, authority: Authority, tmp_path: Path
) -> None:
    gate = gate_of(authority)
    assert gate.tls is not None
    port = (await listen(gate)).port
    other = Authority(tmp_path, "other")
    other.issue()
    assert gate.tls.reload()
    trusting = ssl.create_default_context(cafile=other.ca)
    assert (await said(port, trusting))[0] == b"hi True\n"
