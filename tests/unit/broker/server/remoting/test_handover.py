"""Clients that go on with another broker over the connection that they have."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from rockhopper.broker.server.listening import unfinished
from rockhopper.broker.server.listening.gates import gate_of
from rockhopper.broker.server.listening.outgoing import Outgoing
from rockhopper.broker.server.remoting import handover as splicing
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.handover import (
    HEARTBEAT,
    Forwarding,
    Handover,
)
from rockhopper.broker.server.remoting.server import Server
from rockhopper.broker.settings.tls_config import TlsConfig, TlsMode
from rockhopper.broker.users.guard import Guard
from rockhopper.protocol.codes import FLAG_ONEWAY, RequestCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder
from rockhopper.protocol.names import PROBE_FIELD
from tests.support.certificates import Authority
from tests.support.handlers import Ignoring
from tests.support.hang import HANG_S
from tests.support.piped_peer import PipedPeer
from tests.support.turns import until


class Answering(Ignoring):
    """A server that answers each request with its name."""

    def __init__(self, name: str) -> None:
        self.got: list[Command] = []
        self.is_slow = False
        self.slow: list[tuple[RemotingConnection, Command]] = []
        self._name = name
        self.server = Server(name, self, connections_max=10)

    def serve_frames(self, connection: RemotingConnection, frames: list[Frame]) -> int:
        for frame in frames:
            command = decode_header(*frame)
            self.got.append(command)
            if self.is_slow:
                self.slow.append((connection, command))
            elif not command.flag & FLAG_ONEWAY:
                self._answer(connection, command)
        return len(frames)

    def answer_slow(self) -> None:
        """Answer what has been waiting."""
        while self.slow:
            self._answer(*self.slow.pop())

    def _answer(self, connection: RemotingConnection, command: Command) -> None:
        answer = Command(code=0, opaque=command.opaque, flag=1, remark=self._name)
        connection.write(encode_command(answer))


class At:
    """Finds the master at a port of this host, after some questions without an answer."""

    def __init__(self, port: int, unknown_count: int = 0) -> None:
        self._address, self._unknown_count = f"127.0.0.1:{port}", unknown_count

    def master_address(self) -> str:
        self._unknown_count -= 1
        return self._address if self._unknown_count < 0 else ""


class Client:
    """One connection that asks and reads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer, self._decoder = reader, writer, FrameDecoder()

    @classmethod
    async def to(cls, server: Server, tls: ssl.SSLContext | None = None) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", server.port, ssl=tls))

    def ask(self, opaque: int, code: int = RequestCode.SEND_MESSAGE) -> None:
        self.writer.write(encode_command(Command(code=code, opaque=opaque)))

    async def answer(self) -> tuple[int, str | None]:
        while True:
            data = await self._reader.read(1 << 16)
            if not data:
                return -1, "closed"
            for frame in self._decoder.feed(data):
                command = decode_header(*frame)
                return command.opaque, command.remark


@pytest.fixture
async def old() -> AsyncIterator[Answering]:
    found = Answering("old")
    await found.server.start("127.0.0.1", 0)
    yield found
    await found.server.close()


@pytest.fixture
async def new() -> AsyncIterator[Answering]:
    found = Answering("new")
    await found.server.start("127.0.0.1", 0)
    yield found
    await found.server.close()


async def test_what_was_held_and_what_follows_is_answered_by_the_other(
    old: Answering, new: Answering
) -> None:
    client = await Client.to(old.server)
    client.ask(1)
    assert await client.answer() == (1, "old")
    handover = Handover(old.server)
    client.ask(2)
    await client.writer.drain()
    await until(lambda: handover.is_holding)
    handover.leave()
    await old.server.close()
    await handover.splice(At(new.server.port))
    assert await client.answer() == (2, "new")
    client.ask(3)
    assert await client.answer() == (3, "new")
    handover.close()
    assert await client.answer() == (-1, "closed")
    client.writer.close()


async def test_clients_with_tls_are_passed_on_with_tls_and_an_heir_takes_its_ports(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue()
    config = TlsConfig(mode=TlsMode.ENFORCING, certificate=pair.certificate, key=pair.key)
    gate, trusting = gate_of(config, tmp_path), ssl.create_default_context(cafile=authority.ca)
    old, new, heir = Answering("old"), Answering("new"), Answering("heir")
    for each in (old, new):
        await each.server.start_on(socket.create_server(("127.0.0.1", 0)), gate)
    client = await Client.to(old.server, trusting)
    client.ask(1)
    assert await client.answer() == (1, "old")
    handover = Handover(old.server, Outgoing(config))
    handover.leave()
    await handover.splice(At(new.server.port))
    client.ask(2)
    assert await client.answer() == (2, "new")
    handover.let_in_by(heir.server)
    later = await Client.to(heir.server, trusting)
    later.ask(3)
    assert await later.answer() == (3, "heir")
    handover.close()
    for each in (old, heir, new):
        await each.server.close()
    for gone in (client, later):
        gone.writer.transport.abort()


async def test_the_last_heartbeat_goes_ahead(old: Answering, new: Answering) -> None:
    client = await Client.to(old.server)
    client.ask(1)
    await client.answer()
    (connection,) = old.server.connections
    connection.attributes[HEARTBEAT] = Command(code=RequestCode.HEART_BEAT, opaque=9)
    handover = Handover(old.server)
    handover.leave()
    await handover.splice(At(new.server.port))
    client.ask(2)
    assert await client.answer() == (2, "new")
    assert [command.code for command in new.got] == [
        RequestCode.HEART_BEAT,
        RequestCode.SEND_MESSAGE,
    ]
    handover.close()
    client.writer.close()


async def test_clients_that_come_later_are_passed_on_but_for_what_is_served_here(
    old: Answering, new: Answering
) -> None:
    handover = Handover(old.server)
    handover.leave()
    await handover.splice(At(new.server.port))
    own = frozenset({int(RequestCode.GET_REPLICA_SET)})
    following = Answering("following")
    following.server.handle_with(Forwarding(following, handover, own))
    handover.let_in_by(following.server)
    client, operator = await Client.to(old.server), await Client.to(old.server)
    client.ask(1)
    operator.ask(2, RequestCode.GET_REPLICA_SET)
    assert await client.answer() == (1, "new")
    assert await operator.answer() == (2, "following")
    replica = await Client.to(old.server)
    probe = Command(code=RequestCode.GET_MAX_OFFSET, opaque=3, ext={PROBE_FIELD: "true"})
    replica.writer.write(encode_command(probe))
    assert await replica.answer() == (3, "following")
    handover.close()
    for each in (client, operator, replica):
        each.writer.close()
    await following.server.close()


async def test_who_connects_before_there_is_a_follower_is_passed_on_and_others_wait_for_it(
    old: Answering, new: Answering
) -> None:
    handover = Handover(old.server)
    handover.leave()
    await old.server.close()
    early = await Client.to(old.server)
    early.ask(1)
    await until(lambda: handover.is_holding)
    own = frozenset({int(RequestCode.GET_REPLICA_SET)})
    await handover.splice(At(new.server.port), own)
    assert await early.answer() == (1, "new")
    client, operator = await Client.to(old.server), await Client.to(old.server)
    operator.ask(2, RequestCode.GET_REPLICA_SET)
    await until(lambda: handover.is_holding)
    client.ask(3)
    assert await client.answer() == (3, "new")
    following = Answering("following")
    handover.let_in_by(following.server)
    assert await operator.answer() == (2, "following")
    handover.close()
    late = await Client.to(old.server)
    late.ask(4)
    assert await late.answer() == (4, "following")
    for each in (early, client, operator, late):
        each.writer.close()
    await following.server.close()


async def test_who_was_accepted_for_another_handler_or_server_is_let_in_by_what_there_is_now(
    old: Answering, new: Answering
) -> None:
    before_holding, before_leaving = old.server.make_connection(), old.server.make_connection()
    handover = Handover(old.server)
    transport = PipedPeer(old.server)
    before_holding.connection_made(cast("asyncio.Transport", transport))
    assert before_holding.server == transport.connection.server == old.server
    assert old.server.handler == handover
    handover.leave()
    handover.let_in_by(new.server)
    before_leaving.connection_made(cast("asyncio.Transport", transport))
    assert before_leaving.server == new.server
    handover.close()


async def connect_until_refused(server: Server) -> None:
    async with asyncio.timeout(HANG_S):
        while True:
            client = await Client.to(server)
            client.writer.close()
            with contextlib.suppress(ConnectionResetError):
                await client.writer.wait_closed()


async def test_a_port_that_nobody_took_over_is_closed_with_the_clients(old: Answering) -> None:
    handover = Handover(old.server)
    handover.leave()
    handover.close()
    with pytest.raises(ConnectionRefusedError):
        await connect_until_refused(old.server)


async def test_a_client_is_closed_when_the_other_cannot_be_reached(
    old: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splicing, "CONNECT_TIMEOUT_S", 0)
    client = await Client.to(old.server)
    client.ask(1)
    await client.answer()
    handover = Handover(old.server)
    handover.leave()
    await handover.splice(At(1))
    assert await client.answer() == (-1, "closed")
    handover.close()
    client.writer.close()


async def test_clients_come_home_to_a_broker_that_leads_again(
    old: Answering, new: Answering
) -> None:
    client, early = await Client.to(old.server), await Client.to(old.server)
    for each in (client, early):
        each.ask(1)
        await each.answer()
    handover = Handover(old.server)
    handover.leave()
    new.is_slow = True
    await handover.splice(At(new.server.port))
    client.ask(2)
    await until(lambda: bool(new.slow))
    handover.recall(old.server)
    client.ask(3)
    await until(lambda: handover.is_holding)
    home = Answering("home")
    handover.come_home(home.server)
    assert await client.answer() == (3, "home")
    new.answer_slow()
    assert await client.answer() == (2, "new")
    await until(lambda: not new.server.connections)
    client.ask(4)
    assert await client.answer() == (4, "home")
    for each in (client, early):
        each.writer.close()
    await home.server.close()


async def test_clients_of_a_follower_stay_when_it_leads(old: Answering) -> None:
    client = await Client.to(old.server)
    client.ask(1)
    await client.answer()
    (connection,) = old.server.connections
    connection.attributes["of the follower's parts"] = True
    connection.attributes[HEARTBEAT] = Command(code=RequestCode.HEART_BEAT, opaque=9)
    handover = Handover(old.server)
    handover.leave()
    await old.server.close()
    home = Answering("home")
    handover.come_home(home.server)
    client.ask(2)
    assert await client.answer() == (2, "home")
    assert [command.code for command in home.got] == [
        RequestCode.HEART_BEAT,
        RequestCode.SEND_MESSAGE,
    ]
    assert connection.attributes == {}
    client.writer.close()
    await home.server.close()


async def test_clients_wait_for_who_is_found_to_lead_then(old: Answering, new: Answering) -> None:
    client = await Client.to(old.server)
    client.ask(1)
    await client.answer()
    handover = Handover(old.server)
    client.ask(2)
    await until(lambda: handover.is_holding)
    handover.leave()
    await handover.splice(At(new.server.port, unknown_count=2))
    assert await client.answer() == (2, "new")
    handover.close()
    client.writer.close()


async def test_who_was_accepted_when_the_server_began_to_close_is_closed(old: Answering) -> None:
    await old.server.close()
    late = PipedPeer(old.server)
    assert late.aborted
    assert late.connection not in old.server.connections


async def test_what_is_held_of_unknown_clients_has_a_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unfinished, "UNKNOWN_BYTES_MAX_ALL", 4 << 20)
    access = Guard(remote_admin=False, authenticates=True)
    server = Server("old", Ignoring(), connections_max=100)
    server.access = access
    await server.start("127.0.0.1", 0)
    handover = Handover(server)
    request = encode_command(
        Command(code=RequestCode.SEND_MESSAGE, opaque=1, body=bytes(256 << 10))
    )
    clients = [await Client.to(server) for _ in range(60)]
    await until(lambda: len(server.connections) == 60)
    connections = list(server.connections)
    for client in clients:
        client.writer.write(request)
    await until(lambda: sum(each.closed for each in connections) >= 60 - 20)
    assert 0 < handover.held_bytes <= (4 << 20) + unfinished.STEP_BYTES
    for client in clients:
        client.writer.close()
    await server.close()
