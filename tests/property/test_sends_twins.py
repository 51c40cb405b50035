"""Compiled code does to the byte what the general path does, whatever bytes it is given.

Several connections share the turns in which their sends are served together. Each then has the
answers, and the messages in each queue, that the general path gives it when it serves its whole
stream alone; only offsets differ, and keys that the broker assigns.
"""

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockhopper.broker.hot import plain_sends
from rockhopper.protocol.codes import SerializeType
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import TRANSACTION_HALF_TOPIC
from rockhopper.protocol.properties import PROPERTY_UNIQUE_KEY
from rockhopper.protocol.store.message_codec import decode_message
from tests.support.features import NAMES, transactions_of
from tests.support.hot_broker import HotBroker, HotPeer
from tests.support.open_stores import flush
from tests.support.send_requests import Asked, json_frame, sends, usual_sends

pytestmark = pytest.mark.skipif(plain_sends.take_sends is None, reason="it is not compiled")

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


ODD = [
    "",
    "a\x01\x02",
    "junk\x02",
    "\x01b\x02",
    "a\x01b\x02",
    "\x02",
    "z",
    "WAIT\x01true",
    "\x02WAIT\x01true",
]
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
        odd = draw(st.sampled_from(ODD))
        if not is_batch and draw(st.booleans()):
            asked = first_version(asked, odd)
        elif not is_batch and "i" in asked.ext:
            asked = asked._replace(ext=asked.ext | {"i": asked.ext["i"] + odd})
        if draw(st.integers(0, 9)) == 0 and asked.ext:
            left_out = draw(st.sampled_from(sorted(asked.ext)))
            ext = {name: value for name, value in asked.ext.items() if name != left_out}
            asked = asked._replace(ext=ext)
        frame = (
            binary_frame(asked, opaque)
            if draw(st.booleans())
            else json_frame(asked, opaque, code_first=True, has_blanks=draw(st.booleans()))
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
    with mock.patch.object(plain_sends, "take_sends", None):
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


Turns = list[list[list[Frame]]]
"""The frames of each connection, in each of its turns."""


@st.composite
def turns(draw: st.DrawFn) -> Turns:
    """The streams of 1 to 5 connections, each split over the same 1 to 3 turns."""
    turn_count = draw(st.integers(1, 3))
    made = []
    for _ in range(draw(st.integers(1, 5))):
        stream = draw(frames())
        cuts = st.lists(st.integers(0, len(stream)), min_size=turn_count - 1, max_size=turn_count)
        ends = [*sorted(draw(cuts))[: turn_count - 1], len(stream)]
        starts = [0, *ends[:-1]]
        made.append([stream[start:end] for start, end in zip(starts, ends, strict=True)])
    return made


def connect(count: int) -> list[HotPeer]:
    """Peers with ports of their own; each other one has a long address."""
    peers = [HotPeer(41_000 + number) for number in range(count)]
    for peer in peers[1::2]:
        long_host = bytes(15) + b"\1" + peer.addresses.born_host[4:]
        peer.addresses = peer.addresses._replace(born_host=long_host)
    return peers


class Outcome(NamedTuple):
    """What came of the streams of all connections."""

    answers: Sequence[Sequence[tuple[object, ...]]]
    """Of each connection, without what depends on the others' messages."""
    ended: list[tuple[bool, list[int]]]
    messages: dict[tuple[int, str, int], list[tuple[object, ...]]]
    """By the connection's port, the topic and the queue."""
    traffic: list[tuple[int, int, int]]
    halves: list[str]
    """The groups of half messages."""


NOT_ALONE = {"msgId", "queueOffset", "transactionId"}
ASSIGNED = {PROPERTY_UNIQUE_KEY, "__transactionId__"}


def messages_of(broker: HotBroker) -> Iterator[StoredMessage]:
    """Yield all messages in the order of the log, which is that of each queue."""
    log = broker.served.store.log
    offset = 0
    while offset < log.written_offset:
        record = log.record_at(offset)
        if record:
            yield decode_message(record)
        offset = offset + len(record) if record else log.next_file_offset(offset)


def outcome(broker: HotBroker, peers: list[HotPeer]) -> Outcome:
    messages: dict[tuple[int, str, int], list[tuple[object, ...]]] = {}
    for message in messages_of(broker):
        properties = {k: v for k, v in message.properties.items() if k not in ASSIGNED}
        own = messages.setdefault((message.born_port, message.topic, message.queue_id), [])
        head = message.flag, message.sys_flag, message.born_time_ms, message.born_host
        own.append((message.body, *head, message.reconsume_times, list(properties.items())))
    answers = [
        [
            (
                *(answer.opaque, answer.code, answer.flag, answer.serialize_type, answer.remark),
                {k: v for k, v in (answer.ext or {}).items() if k not in NOT_ALONE},
                body,
            )
            for answer, body in peer.answers()
        ]
        for peer in peers
    ]
    put = broker.served.stats.get_send_traffic
    counted = [put(topic) for topic in ("orders", TRANSACTION_HALF_TOPIC)]
    halves = transactions_of(broker.served).halves if "transactions" in NAMES else []
    return Outcome(
        answers,
        [(peer.failure is not None, peer.responses) for peer in peers],
        messages,
        [(one.messages, one.calls, one.bytes) for one in counted],
        sorted(half.group for half in halves),
    )


def check_places(broker: HotBroker, peers: list[HotPeer]) -> None:
    """Check that no place in a queue is missing, and that answers name their own messages."""
    by_offset: dict[int, StoredMessage] = {}
    counts: Counter[tuple[str, int]] = Counter()
    for message in messages_of(broker):
        by_offset[message.commit_log_offset] = message
        if message.topic != "Batches":
            assert message.queue_offset == counts[message.topic, message.queue_id]
            counts[message.topic, message.queue_id] += 1
    for peer in peers:
        for answer, _ in peer.answers():
            ext = answer.ext or {}
            if answer.code == 0 and "msgId" in ext:
                message = by_offset[int(ext["msgId"].split(",")[0][-16:], 16)]
                assert message.born_port == peer.addresses.peer_port
                assert str(message.queue_offset) == ext["queueOffset"]
                key = ext.get("transactionId")
                assert key in (None, "", message.properties.get(PROPERTY_UNIQUE_KEY))


OPENING = [
    Asked(310, {"a": "group", "b": "orders", "c": "TBW102", "d": "4", "f": "0"} | fields)
    for fields in (
        *({"e": str(n), "g": "1", "h": "0", "i": "UNIQ_KEY\x01AB\x02"} for n in range(3)),
        {"e": "0", "g": "1", "h": "0", "i": "UNIQ_KEY\x01AB\x02DELAY\x013\x02"},
        {
            "e": "0",
            "g": "1",
            "h": "0",
            "i": "UNIQ_KEY\x01AB\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02",
        },
    )
]
"""The first messages of the queues, which the general path serves."""


@contextmanager
def broker_of(settings: dict[str, str]) -> Iterator[HotBroker]:
    with (
        mock.patch.object(os, "fsync"),
        mock.patch.object(os, "fdatasync"),
        tempfile.TemporaryDirectory() as directory,
    ):
        broker = HotBroker(Path(directory), settings)
        try:
            broker.serve([json_frame(asked, n, code_first=True) for n, asked in enumerate(OPENING)])
            yield broker
        finally:
            broker.close()


async def serve_together(asked: Turns, settings: dict[str, str]) -> Outcome:
    with broker_of(settings) as broker:
        peers = connect(len(asked))
        for turn in range(len(asked[0])):
            open_peers = [peer for peer in peers if peer.failure is None]
            for peer, parts in zip(peers, asked, strict=True):
                if peer.failure is None:
                    peer.backlog = list(parts[turn])
            broker.serve_turn(*open_peers)
        flush(broker.served.store)
        check_places(broker, peers)
        return outcome(broker, peers)


async def serve_alone(asked: Turns, settings: dict[str, str]) -> Outcome:
    with broker_of(settings) as broker:
        broker.serve_generally()
        peers = connect(len(asked))
        for peer, parts in zip(peers, asked, strict=True):
            peer.backlog = list(chain.from_iterable(parts))
            broker.serve_turn(peer)
        flush(broker.served.store)
        return outcome(broker, peers)


@given(
    asked=turns(),
    flush_disk_type=st.sampled_from(["ASYNC_FLUSH", "SYNC_FLUSH"]),
    file_size_bytes=st.sampled_from(["4096", "65536"]),
)
def test_connections_that_share_their_turns_are_served_as_each_alone(
    asked: Turns, flush_disk_type: str, file_size_bytes: str
) -> None:
    settings = {"flushDiskType": flush_disk_type, "mappedFileSizeCommitLog": file_size_bytes}
    together = asyncio.run(serve_together(asked, settings))
    assert together == asyncio.run(serve_alone(asked, settings))
