"""Peers that have not proved who they are begin requests and do not end them: what we hold."""

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress

from structlog.testing import capture_logs
from structlog.typing import EventDict

from rockhopper.broker.app import Broker
from rockhopper.broker.server.listening.unfinished import (
    STEP_BYTES,
    UNKNOWN_BYTES_MAX_ALL,
    UnfinishedConnection,
)
from rockhopper.broker.server.remoting.http import HttpServer
from rockhopper.broker.users.guard import Guard
from rockhopper.protocol.addresses import split_address
from rockhopper.protocol.grpc_v2.messages import SERVICE
from rockhopper.protocol.http2.frames import FLAG_END_HEADERS, PREFACE, FrameType, frame
from rockhopper.protocol.http2.hpack import encode_fields
from tests.integration.test_users import SETTINGS
from tests.support.hang import HANG_S
from tests.support.turns import until
from tests.unit.broker.server.remoting.test_http import PAGES, echo

PEERS = 60
HALF_BYTES = 1_000_000
# What remains is within the budget, and one step of counting.
LEFT = (UNKNOWN_BYTES_MAX_ALL + STEP_BYTES) // HALF_BYTES


def grpc_half(*, names_a_user: bool) -> bytes:
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", f"/{SERVICE}/SendMessage"),
        (":authority", "t"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("x-mq-client-id", "hostile"),
    ]
    if names_a_user:
        fields.append(("authorization", "MQv2-HMAC-SHA1 Credential=root/x/y, Signature=00"))
    parts = [PREFACE, frame(FrameType.SETTINGS, 0, 0)]
    parts.append(frame(FrameType.HEADERS, FLAG_END_HEADERS, 1, encode_fields(fields)))
    body = b"\0" + (4_000_000).to_bytes(4, "big") + bytes(HALF_BYTES)
    for start in range(0, len(body), 16_384):
        parts.append(frame(FrameType.DATA, 0, 1, body[start : start + 16_384]))
    return b"".join(parts)


async def begin(address: str, data: bytes) -> asyncio.StreamWriter:
    host, port = split_address(address)
    _, writer = await asyncio.open_connection(host, port)
    writer.write(data)
    with suppress(ConnectionError):
        await writer.drain()
    return writer


async def begin_all(address: str, data: bytes) -> list[asyncio.StreamWriter]:
    async with asyncio.timeout(HANG_S):
        return await asyncio.gather(*(begin(address, data) for _ in range(PEERS)))


def closed_count(logs: list[EventDict]) -> int:
    return sum(entry["event"] == "connection closed" for entry in logs)


def held_bytes(holders: Iterable[UnfinishedConnection]) -> int:
    return sum(each.held_bytes for each in holders)


async def test_unfinished_calls_hold_one_budget_of_all_grpc_clients() -> None:
    async with Broker.temporary(SETTINGS | {"grpcPort": "0"}) as broker:
        assert broker.servers.grpc is not None
        server = broker.servers.grpc.server
        with capture_logs() as logs:
            writers = await begin_all(broker.grpc_address, grpc_half(names_a_user=True))
            await until(lambda: closed_count(logs) >= PEERS - LEFT)
        assert 0 < held_bytes(server.connections) <= UNKNOWN_BYTES_MAX_ALL + STEP_BYTES
        for writer in writers:
            writer.close()


async def test_a_large_call_is_for_who_names_a_user() -> None:
    async with Broker.temporary(SETTINGS | {"grpcPort": "0"}) as broker:
        assert broker.servers.grpc is not None
        host, port = split_address(broker.grpc_address)
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(grpc_half(names_a_user=False))
        async with asyncio.timeout(HANG_S):
            await reader.readuntil(b"unauthenticated request of more")
        assert held_bytes(broker.servers.grpc.server.connections) == 0
        writer.close()


async def test_unfinished_forms_hold_one_budget_of_all() -> None:
    pages = HttpServer(PAGES, Guard(remote_admin=False, authenticates=True), {"app": echo})
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    host, port = bound.getsockname()
    await pages.start_on(bound)
    head = b"POST /app HTTP/1.1\r\nContent-Length: 1048576\r\n\r\n"
    with capture_logs() as logs:
        writers = await begin_all(f"{host}:{port}", head + bytes(HALF_BYTES))
        await until(lambda: closed_count(logs) >= PEERS - LEFT)
    assert 0 < held_bytes(pages.connections) <= UNKNOWN_BYTES_MAX_ALL + STEP_BYTES
    for writer in writers:
        writer.close()
    await pages.close()
