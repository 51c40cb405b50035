"""The port: how many may come, and how it closes."""

import asyncio
from typing import cast

import pytest

from rockhopper.broker.gateways.grpc.connection import GrpcConnection
from tests.support.features import needs, pop_of
from tests.support.grpc_client import GrpcBroker, GrpcClient, Pipe, receiving


def connected(served: GrpcBroker) -> Pipe:
    pipe = Pipe("127.0.0.1")
    connection = GrpcConnection(served.gateway.server)
    connection.connection_made(cast("object", pipe))  # type: ignore[arg-type]
    return pipe


async def test_more_than_may_be_are_refused_and_said_once(served: GrpcBroker) -> None:
    server = served.gateway.server
    server.connections_max = 2
    pipes = [connected(served) for _ in range(4)]
    assert [pipe.is_closed for pipe in pipes] == [False, False, True, True]
    assert server.refused_count == 2


@needs("pop")
async def test_a_port_that_closes_answers_what_it_was_asked(
    served: GrpcBroker, client: GrpcClient
) -> None:
    client.ask_for("ReceiveMessage", receiving("t"))
    # The library takes GOAWAY for the end of everything.
    client.pipe.on_written = lambda: None
    await served.gateway.stop_listening()
    assert connected(served).is_closed
    pop_of(served).polling.close()
    await served.gateway.close()
    assert client.pipe.is_closed
    goaway = bytes(client.pipe.written).index(b"\x7f\xff\xff\xff\0\0\0\0")
    assert goaway < client.pipe.written.index(b"no new message")


async def test_a_connection_that_cannot_be_written_to_does_not_hinder_the_others(
    served: GrpcBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = served.gateway.server
    pipes = [connected(served) for _ in range(2)]
    first, second = server.connections
    flushed: list[GrpcConnection] = []

    def flush(connection: GrpcConnection) -> None:
        if connection is first:
            raise RuntimeError("no")
        flushed.append(connection)

    monkeypatch.setattr(GrpcConnection, "flush", flush)
    for connection in (first, second):
        server.flush_soon(connection)
    await asyncio.sleep(0)
    assert flushed == [second]
    assert (first.closed, second.closed) == (True, False)
    assert sorted(pipe.is_closed for pipe in pipes) == [False, True]
