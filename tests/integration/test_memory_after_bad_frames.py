"""A hundred thousand bad frames over sockets leave a broker as much memory as a few thousand."""

import asyncio
import random
import statistics
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from rockhopper.protocol.codes import RequestCode, SerializeType
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import Frame, FrameDecoder, encode_frame
from rockhopper.protocol.store.message_codec import encode_batch
from tests.support.daemon import Daemon
from tests.support.direct import pull_fields, send_fields
from tests.support.hang import HANG_S

pytestmark = [
    pytest.mark.costly,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's"),
]

FRAMES = 100_000
ANSWERED, ENDING = 3_500, 500
PER_CONNECTION = 250
SLICES = 5
GROWTH_BYTES_MAX = 128 << 10
"""In the usual slice of 20,000 frames. In some, Python rebuilds its table of interned strings,
which takes 2 MB."""
SEND_V2 = ("tests", "orders", "TBW102", "4", "0", "0", "1", "0", "KEYS\x01k\x02", "0", "false")
LAST = 999_999
BODY = encode_batch([(0, b"one", b"KEYS\x01k\x02"), (1, b"two", b"")])
REQUESTS = (
    (310, dict(zip("abcdefghijk", SEND_V2, strict=True))),
    (320, dict(zip("abcdefghijk", SEND_V2, strict=True)) | {"m": "true"}),
    (10, send_fields("orders")),
    (11, pull_fields("orders", 0) | {"sysFlag": "4"}),
    (15, {"consumerGroup": "tests", "topic": "orders", "queueId": "0", "commitOffset": "0"}),
)


def bad_frames() -> tuple[list[bytes], list[bytes]]:
    """Return frames with damaged headers that are answered, and those that end a connection."""
    generator = random.Random(1)
    answered: list[bytes] = []
    ending: list[bytes] = []
    while len(answered) < ANSWERED or len(ending) < ENDING:
        code, ext = generator.choice(REQUESTS)
        kind = generator.choice((SerializeType.JSON, SerializeType.ROCKETMQ, SerializeType.MSGPACK))
        whole = encode_command(Command(code, 1, ext=ext, serialize_type=kind, body=BODY))
        ((number, header, body),) = FrameDecoder().feed(whole)
        damaged = number, damage(header, generator), body[: generator.randrange(len(body))]
        (answered if is_decoded(damaged) else ending).append(encode_frame(*damaged))
    del answered[ANSWERED:], ending[ENDING:]
    ending += [b"\0\0\0\3abc", b"\x7f\xff\xff\xff\0\0\0\0", b"\0\0\0\x10\0\0\0\x20" + bytes(12)]
    return answered, ending


def damage(header: bytes, generator: random.Random) -> bytes:
    """Change some bytes, or cut the end off."""
    damaged = bytearray(header)
    for _ in range(generator.randint(1, 2)):
        damaged[generator.randrange(len(header))] = generator.choice(b'\0\x01"\\{}[]:,-09a\xff')
    if generator.random() < 0.1:
        del damaged[generator.randrange(len(header)) :]
    return bytes(damaged)


def is_decoded(frame: Frame) -> bool:
    """Whether the header is one, with whatever values."""
    try:
        decode_header(*frame)
    except MalformedHeaderError:
        return False
    return True


async def converse(address: str, data: bytes) -> None:
    """Send *data* and a sound request, and read until that is answered, or the broker closes."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    sentinel = encode_command(Command(int(RequestCode.GET_BROKER_RUNTIME_INFO), LAST))
    decoder = FrameDecoder()
    try:
        writer.write(data + sentinel)
        async with asyncio.timeout(HANG_S):
            while received := await reader.read(1 << 16):
                if any(decode_header(*frame).opaque == LAST for frame in decoder.feed(received)):
                    return
    except ConnectionError:
        pass
    finally:
        writer.close()


def anonymous_bytes(pid: int) -> int:
    """Return the resident memory of a process that is not of files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


async def test_bad_frames_leave_no_memory_behind(tmp_path: Path) -> None:
    answered, ending = bad_frames()
    batches = [
        b"".join(answered[at : at + PER_CONNECTION])
        for at in range(0, len(answered), PER_CONNECTION)
    ]
    options = "--set", "autoCreateTopicEnable=false", "--set", "autoCreateSubscriptionGroup=false"
    async with Daemon(tmp_path, *options) as daemon:

        async def send_all(rounds: int) -> None:
            for _ in range(rounds):
                for data in batches:
                    await converse(daemon.address, data)
                for at in range(0, len(ending), 20):
                    await asyncio.gather(
                        *(converse(daemon.address, data) for data in ending[at : at + 20])
                    )

        rounds = FRAMES // (ANSWERED + ENDING)
        await send_all(rounds // SLICES)
        sizes = [anonymous_bytes(daemon.pid)]
        for _ in range(SLICES):
            await send_all(rounds // SLICES)
            sizes.append(anonymous_bytes(daemon.pid))
    grown = [after - before for before, after in pairwise(sizes)]
    assert statistics.median(grown) < GROWTH_BYTES_MAX, sizes
