"""Hostile clients of the gRPC port, over sockets, and an honest one that is served meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count

import grpc.aio  # type: ignore[import-untyped, unused-ignore]
import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.protocol.addresses import split_address
from rockhopper.protocol.grpc_v2.framing import encode_frame
from rockhopper.protocol.grpc_v2.messages import SERVICE
from rockhopper.protocol.http2 import frames
from rockhopper.protocol.http2.frames import HEAD_SIZE_BYTES, PREFACE, FrameType, frame
from rockhopper.protocol.http2.hpack import encode_fields
from tests.extras.test_grpc import ask
from tests.support.grpc_client import receiving, sending
from tests.support.hang import HANG_S

HELLO = PREFACE + frame(FrameType.SETTINGS, 0, 0)
OPEN = frames.FLAG_END_HEADERS
SILENT = 500
UNREAD = 10_000
TOGETHER = 500
BATCH = 32
HOUR_MS = 3_600_000


def call(stream_id: int, rpc: str, flags: int = OPEN) -> bytes:
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", f"/{SERVICE}/{rpc}"),
        (":authority", "t"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("x-mq-client-id", "hostile"),
    ]
    return frame(FrameType.HEADERS, flags, stream_id, encode_fields(fields))


def open_and_reset(n: int) -> bytes:
    stream_id = 2 * n + 1
    return call(stream_id, "ReceiveMessage") + frame(FrameType.RST_STREAM, 0, stream_id, b"\0" * 4)


def make_it_reset(n: int) -> bytes:
    stream_id = 2 * n + 1
    return call(stream_id, "ReceiveMessage") + frame(
        FrameType.WINDOW_UPDATE, 0, stream_id, b"\0" * 4
    )


def header_that_never_ends(n: int) -> bytes:
    kind = FrameType.CONTINUATION if n else FrameType.HEADERS
    return frame(kind, 0, 1, b"\0\1a\1b" * 100)


def other_window(n: int) -> bytes:
    return frame(FrameType.SETTINGS, 0, 0, b"\0\x04" + (n % 2**31).to_bytes(4, "big"))


FLOODS: dict[str, Callable[[int], bytes]] = {
    "rapid resets": open_and_reset,
    "resets that we are made to send": make_it_reset,
    "a header that never ends": header_that_never_ends,
    "settings": other_window,
    "pings": lambda n: frame(FrameType.PING, 0, 0, n.to_bytes(8, "big")),
    "frames of no known kind": lambda n: frame(200, n % 256, 0, b"x"),
    "priorities": lambda n: frame(FrameType.PRIORITY, 0, 2 * n + 1, b"\0\0\0\0\1"),
    "a table that grows and shrinks": lambda n: frame(
        FrameType.HEADERS, OPEN, 2 * n + 1, b"\x20\x3f\xe1\x1f"
    ),
}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary({"grpcPort": "0"}) as made:
        made.tables.topics.put(TopicConfig("t", read_queue_nums=1, write_queue_nums=1))
        yield made


@pytest.fixture
async def honest(broker: Broker) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(broker.grpc_address) as channel:
        await ask(channel, "SendMessage", sending("t"))
        yield channel


async def connected(broker: Broker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    assert broker.grpc_address
    host, port = split_address(broker.grpc_address)
    return await asyncio.open_connection(host, port)


async def farewell(reader: asyncio.StreamReader) -> int:
    """Read to the end; the error that GOAWAY names, −1 without one."""
    code = -1
    while True:
        try:
            head = await reader.readexactly(HEAD_SIZE_BYTES)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return code
        if head[3] == FrameType.GOAWAY:
            code = int.from_bytes(payload[4:8], "big")


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_a_flood_is_cut_off_and_others_are_served(
    broker: Broker, honest: grpc.aio.Channel, flood: Callable[[int], bytes]
) -> None:
    reader, writer = await connected(broker)
    writer.write(HELLO)
    listening = asyncio.create_task(farewell(reader))
    async with asyncio.timeout(HANG_S):
        for n in count():
            if listening.done():
                break
            writer.write(flood(n))
            if n % 100 == 0:
                await ask(honest, "SendMessage", sending("t"))
        assert listening.result() != 0
    writer.close()
    await ask(honest, "SendMessage", sending("t"))


async def test_500_silent_connections_hold_up_nobody(
    broker: Broker, honest: grpc.aio.Channel
) -> None:
    silent = [await connected(broker) for _ in range(SILENT)]
    for _, writer in silent[: SILENT // 2]:
        writer.write(HELLO)
    async with asyncio.timeout(HANG_S):
        for _ in range(20):
            await ask(honest, "SendMessage", sending("t"))
    for _, writer in silent:
        writer.close()


async def test_who_reads_nothing_leaves_the_messages_to_others(
    broker: Broker, honest: grpc.aio.Channel
) -> None:
    """10,000 messages for a window of nothing: they are neither lost nor held in memory."""
    bodies = [b"%200d" % n for n in range(UNREAD)]
    for begin in range(0, UNREAD, TOGETHER):
        batch = bodies[begin : begin + TOGETHER]
        await asyncio.gather(*(ask(honest, "SendMessage", sending("t", each)) for each in batch))
    _, writer = await connected(broker)
    writer.write(HELLO + frame(FrameType.SETTINGS, 0, 0, b"\0\x04\0\0\0\0"))
    asked = encode_frame(receiving("t", invisible_ms=HOUR_MS).SerializeToString())
    for n in range(UNREAD // BATCH):
        stream_id = 2 * n + 1
        writer.write(call(stream_id, "ReceiveMessage"))
        writer.write(frame(FrameType.DATA, frames.FLAG_END_STREAM, stream_id, asked))
    await writer.drain()
    async with asyncio.timeout(HANG_S):
        for _ in range(20):
            await ask(honest, "SendMessage", sending("t"))
        writer.transport.abort()
        left = set(bodies)
        while left:
            for reply in await ask(honest, "ReceiveMessage", receiving("t", invisible_ms=HOUR_MS)):
                if reply.HasField("message"):
                    left.discard(reply.message.body)
