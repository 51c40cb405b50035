"""Frames of every request code, spoiled at random and sent to a live broker, harm nothing."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rockhopper.broker.processor_table import build_table
from rockhopper.protocol.codes import SerializeType
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.store.message_codec import encode_batch
from tests.support.direct import pull_fields, send_fields
from tests.support.raw_peer import RawPeer, request
from tests.support.unharmed import Unharmed

PROBE = 999_999
SEND_V2 = ("tests", "orders", "TBW102", "4", "0", "0", "1", "0", "", "0", "false", "false")
GOOD_EXT: dict[str, str] = {
    **send_fields("orders"),
    **pull_fields("orders", 0),
    **dict(zip("abcdefghijkm", SEND_V2, strict=True)),
    "group": "tests",
    "offset": "0",
    "delayLevel": "1",
    "key": "k",
    "maxNum": "32",
    "beginTimestamp": "0",
    "endTimestamp": str(2**62),
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "commitOffset": "0",
    "timestamp": "0",
    "groupName": "tests",
    "statsName": "TOPIC_PUT_NUMS",
    "statsKey": "orders",
    "clientID": "client",
}
TEXTS = st.one_of(
    st.sampled_from(["", "-1", "0", "1", "2147483648", str(2**63), "abc", "true", "../x", "a/b"]),
    st.sampled_from(
        ["DELAY\x013\x02", "KEYS\x01a b\x02TAGS\x01T\x02", "WAIT\x01false\x02", "\x01"]
    ),
    st.sampled_from(["%RETRY%tests", "SCHEDULE_TOPIC_XXXX", "TBW102", "made-up", "x" * 300]),
    st.text(max_size=30),
)
BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=100),
    st.just(encode_batch([(0, b"one", b"KEYS\x01k\x02"), (1, b"two", b"")])),
    st.just(b'{"clientID":"c","consumerDataSet":[{"groupName":"tests"}],"mqSet":[]}'),
    st.just(b'{"topicConfigList":[{"topicName":"listed"}],"groupConfigList":[]}'),
    st.just(bytes(20_000)),
)
# Changing what the broker permits, or deleting what is in use, harms as it is meant to.
HARMFUL = {25, 207, 70_006}
# A binary header has 16 bits for the code.
BINARY_CODE_MAX = 32_767


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def spoil(data: st.DataObject, good: bytes) -> bytes:
    """*good* with some of its bytes changed, taken out, put in or cut off."""
    spoiled = bytearray(good)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, max(len(spoiled) - 1, 0)))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "remove", "repeat"]))
        if kind == "flip" and spoiled:
            spoiled[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "cut":
            del spoiled[at:]
        elif kind == "insert":
            spoiled[at:at] = data.draw(st.binary(min_size=1, max_size=8))
        elif kind == "remove":
            del spoiled[at : at + data.draw(st.integers(1, 8))]
        elif kind == "repeat":
            spoiled[at:at] = spoiled[at : at + 20]
    return bytes(spoiled)


def a_frame(data: st.DataObject, codes: list[int]) -> bytes:
    """A request of any code and serialisation, sensible in parts, with right or wrong lengths."""
    code = data.draw(st.one_of(st.sampled_from([10, 310, 320, 11]), st.sampled_from(codes)))
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(GOOD_EXT)), TEXTS, max_size=3))
    ext = GOOD_EXT | changes
    body = data.draw(BODIES)
    kind = data.draw(st.sampled_from([0, 0, 0, 1, 2]))
    if kind == SerializeType.ROCKETMQ and code > BINARY_CODE_MAX:
        kind = 0
    if kind == 0:
        good = request(code, ext, body, flag=data.draw(st.sampled_from([0, 0, 0, 1, 2])))
    else:
        good = encode_command(Command(code, opaque=1, ext=ext, body=body, serialize_type=kind))
    if data.draw(st.booleans()):
        return spoil(data, good)
    # Lengths stay right, and what is inside does not.
    ((serialize_type, header, body),) = FrameDecoder().feed(good)
    header = spoil(data, header)
    word = serialize_type << 24 | len(header)
    length = 4 + len(header) + len(body)
    return length.to_bytes(4, "big") + word.to_bytes(4, "big") + header + body


async def play(unharmed: Unharmed, frames: list[bytes]) -> int:
    """Send *frames* on a connection of their own; return how many the broker did not refuse."""
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(b"".join(frames))
        peer.send(request(PROBE, opaque=PROBE))
        peer.finish()
        received = await peer.until_closed()
    decoder = FrameDecoder()
    served = 0
    for serialize_type, header, body in decoder.feed(received):
        command = decode_header(serialize_type, header, body)
        assert not command.is_response or command.code == 0 or command.remark
        served += command.is_response and command.code == 0
        assert "Traceback" not in (command.remark or "")
    assert decoder.error is None
    await unharmed.check_neighbour()
    unharmed.check_log()
    unharmed.lines.clear()  # port numbers come again
    return served


def run(
    root: Path, loop: asyncio.AbstractEventLoop, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unharmed = Unharmed(root, monkeypatch, {"mappedFileSizeCommitLog": str(1 << 20)})
    loop.run_until_complete(unharmed.__aenter__())
    codes = [*sorted(set(build_table(unharmed.broker)) - HARMFUL), 0, 37, 105, 9999]

    served: list[int] = []

    @settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(data=st.data())
    def example(data: st.DataObject) -> None:
        frames = [a_frame(data, codes) for _ in range(data.draw(st.integers(1, 4)))]
        served.append(loop.run_until_complete(play(unharmed, frames)))

    try:
        example()
        loop.run_until_complete(unharmed.check())
        assert sum(served) > examples / 20, "nearly everything was refused"
    finally:
        loop.run_until_complete(unharmed.__aexit__())


def test_spoiled_requests_harm_nothing(
    tmp_path: Path, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, loop, 150, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_very_many_spoiled_requests_harm_nothing(
    tmp_path: Path, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, loop, 3_000, monkeypatch)
