"""The compiled pass does to the byte what HotPass does in Python, whatever bytes it is given."""

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockhopper.broker.hot import hot_pass, plain_sends
from rockhopper.protocol.codes import SerializeType
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder
from rockhopper.protocol.names import TRANSACTION_HALF_TOPIC
from tests.support.features import NAMES, transactions_of
from tests.support.hot_broker import HotBroker
from tests.support.open_stores import flush
from tests.support.send_requests import Asked, json_frame, sends, usual_sends

pytestmark = pytest.mark.skipif(
    plain_sends.take_sends is plain_sends.take_nothing, reason="it is not compiled"
)

V1_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "m": "batch",
}


class Served(NamedTuple):
    """What came of a stream."""

    answers: bytes
    files: dict[str, bytes]
    traffic: list[tuple[int, int, int]]
    halves: list[tuple[int, int, str, int]]
    failed: bool


ODD = ["", "a\x01\x02", "junk\x02", "\x01b\x02", "a\x01b\x02", "\x02", "z"]
"""What Python leaves out, or merges, when it reads properties and writes them anew."""


def first_version(asked: Asked, odd: str) -> Asked:
    ext = {V1_NAMES.get(name, name): value for name, value in asked.ext.items()}
    if "properties" in ext:
        ext["properties"] += odd
    return asked._replace(code=10, ext=ext)


def binary_frame(asked: Asked, opaque: int) -> Frame:
    ext = {name: str(value) for name, value in asked.ext.items() if value is not None}
    command = Command(
        asked.code, opaque, asked.flag or 0, ext=ext, serialize_type=SerializeType.ROCKETMQ
    )
    ((kind, header, _),) = FrameDecoder().feed(encode_command(command))
    return kind, header, asked.body


@st.composite
def frames(draw: st.DrawFn) -> list[Frame]:
    """Frames of sends, of which now and then one is damaged."""
    # The first one has the topic looked up, which is left to Python.
    made = [json_frame(draw(usual_sends()), 99, code_first=True)]
    for opaque, is_batch in enumerate(draw(st.lists(st.booleans(), min_size=1, max_size=12))):
        of_this_kind = usual_sends if draw(st.integers(0, 3)) else sends
        asked = draw(of_this_kind(batch=is_batch))
        if not is_batch and draw(st.booleans()):
            asked = first_version(asked, draw(st.sampled_from(ODD)))
        frame = (
            binary_frame(asked, opaque)
            if draw(st.booleans())
            else json_frame(asked, opaque, code_first=True)
        )
        if draw(st.integers(0, 9)) == 0:
            frame = (frame[0], draw(damaged(frame[1])), frame[2])
        made.append(frame)
    return made


@st.composite
def damaged(draw: st.DrawFn, header: bytes) -> bytes:
    at = draw(st.integers(0, len(header) - 1))
    kind = draw(st.sampled_from(["change", "cut", "take out", "put in"]))
    if kind == "cut":
        return header[:at]
    some = draw(st.sampled_from([b'"', b"\\", b"\\u00e9", b"{", b"\0", b"-", b"0", b"\xff", b"9"]))
    rest = header[at:] if kind == "put in" else header[at + 1 :]
    return header[:at] + (b"" if kind == "take out" else some) + rest


def serve(stream: list[Frame], passes: int, settings: dict[str, str]) -> Served:
    async def serve_it() -> Served:
        with tempfile.TemporaryDirectory() as directory:
            broker = HotBroker(Path(directory), settings)
            try:
                step = -(-len(stream) // passes)
                for start in range(0, len(stream), step):
                    if broker.peer.failure is None:
                        broker.serve(stream[start : start + step])
                flush(broker.served.store)
                put = broker.served.stats.get_send_traffic
                counted = [put(topic) for topic in ("orders", TRANSACTION_HALF_TOPIC)]
                halves = transactions_of(broker.served).halves if "transactions" in NAMES else []
                return Served(
                    b"".join(broker.peer.written),
                    files_of(Path(directory)),
                    [(one.messages, one.calls, one.bytes) for one in counted],
                    [(half.offset, half.log_offset, half.group, half.due_ms) for half in halves],
                    broker.peer.failure is not None,
                )
            finally:
                broker.close()

    with mock.patch.object(os, "fsync"), mock.patch.object(os, "fdatasync"):
        return asyncio.run(serve_it())


def files_of(root: Path) -> dict[str, bytes]:
    found = {}
    for folder in ("commitlog", "consumequeue", "index"):
        for number, path in enumerate(sorted((root / folder).rglob("*"))):
            # The next file of the log is made ahead, and may be there already.
            if path.is_file() and any(path.read_bytes()):
                # Index files are named after the time that they were made.
                name = str(number) if folder == "index" else str(path.relative_to(root))
                found[f"{folder} {name}"] = path.read_bytes()
    return found


def in_python(serve_it: Callable[[], Served]) -> Served:
    with mock.patch.object(hot_pass, "take_sends", plain_sends.take_nothing):
        return serve_it()


@settings(max_examples=5 * settings().max_examples)
@given(
    stream=frames(),
    passes=st.integers(1, 3),
    flush_disk_type=st.sampled_from(["ASYNC_FLUSH", "SYNC_FLUSH"]),
    file_size_bytes=st.sampled_from(["4096", "65536"]),
)
def test_every_stream_is_served_alike(
    stream: list[Frame], passes: int, flush_disk_type: str, file_size_bytes: str
) -> None:
    settings = {"flushDiskType": flush_disk_type, "mappedFileSizeCommitLog": file_size_bytes}
    compiled = serve(stream, passes, settings)
    assert compiled == in_python(lambda: serve(stream, passes, settings))
