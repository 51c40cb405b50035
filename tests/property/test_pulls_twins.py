"""The compiled pass answers pulls as the general path does, whatever changes in between."""

import asyncio
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockhopper.broker.hot import plain_pulls
from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.store.reading import property_stage
from rockhopper.protocol.command import Command
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.subscription import Subscription
from tests.support.hot_broker import HotBroker, HotPeer
from tests.support.send_requests import json_frame, usual_sends

pytestmark = pytest.mark.skipif(plain_pulls.take_pulls is None, reason="it is not compiled")

GROUP, TOPIC = "group", "orders"
Event = Callable[[HotBroker], object]


def heartbeat(expression: str, version: int, model: str = "CLUSTERING") -> Event:
    def happen(broker: HotBroker) -> None:
        client = Client(broker.peer.connection, "me", 0, 453)
        subscription = Subscription(TOPIC, expression, version=version)
        told = ConsumeSettings(message_model=model)
        broker.served.kernel.consumers.register(GROUP, client, told, {TOPIC: subscription})

    return happen


def leave(broker: HotBroker) -> None:
    broker.served.kernel.consumers.unregister(GROUP, broker.peer.connection)


def topic(perm: int, queues: int = 3) -> Event:
    made = TopicConfig(TOPIC, read_queue_nums=queues, write_queue_nums=3, perm=perm)
    return lambda broker: broker.served.tables.topics.put(made)


def forget_the_topic(broker: HotBroker) -> None:
    broker.served.tables.topics.delete(TOPIC)
    broker.served.store.visibility.delete_topics([TOPIC])
    broker.served.create_topic(TOPIC, 3)


def group(*, consume_enable: bool) -> Event:
    made = SubscriptionGroup(GROUP, consume_enable=consume_enable)
    return lambda broker: broker.served.tables.groups.put(made)


def forbid(*, readable: bool) -> Event:
    return lambda broker: broker.served.tables.groups.forbid(GROUP, TOPIC, readable=readable)


def reset(broker: HotBroker) -> None:
    broker.served.tables.offsets.reset(TOPIC, GROUP, 0, 1)


EVENTS: dict[str, Event] = {
    "nothing": lambda _broker: None,
    "a heartbeat": heartbeat("*", 1),
    "the same for a tag": heartbeat("A", 2),
    "a broadcasting one": heartbeat("*", 1, "BROADCASTING"),
    "a goodbye": leave,
    "the topic is closed": topic(2),
    "the topic is open": topic(6),
    "fewer queues": topic(6, 1),
    "the topic is made anew": forget_the_topic,
    "the group is closed": group(consume_enable=False),
    "the group is open": group(consume_enable=True),
    "forbidden": forbid(readable=False),
    "allowed": forbid(readable=True),
    "a reset": reset,
}


EXPRESSIONS = ["a = 'b'", "TAGS = 'A'", "a IS NULL", "a = 'c'", "TAGS"]


class Served(NamedTuple):
    """What came of it."""

    answers: list[list[tuple[Command, bytes]]]
    offset: int | None
    counted: list[tuple[int, int, int]]
    found: int
    tested: int


@st.composite
def pull(draw: st.DrawFn) -> dict[str, object]:
    """The fields of a pull, usual ones nearly always."""
    fields: dict[str, object] = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "0",
        "queueOffset": str(draw(st.integers(0, 6))),
        "maxMsgNums": str(draw(st.sampled_from([32, 1, 2, 0, -1]))),
        "sysFlag": draw(st.sampled_from(["4", "5", "0", "1"])),
        "commitOffset": str(draw(st.integers(-1, 5))),
        "suspendTimeoutMillis": "15000",
        "subVersion": "1",
        "subscription": "*",
        "expressionType": "TAG",
        "maxMsgBytes": "262144",
    }
    if draw(st.integers(0, 3)):
        return fields
    fields |= {
        "queueId": draw(st.sampled_from(["0", "1", 0, "7"])),
        "queueOffset": str(draw(st.integers(-1, 12))),
        "sysFlag": draw(st.sampled_from(["0", "2", "6"])),
        "subVersion": draw(st.sampled_from(["1", "0", "3"])),
        "subscription": draw(st.sampled_from(["*", "A", "", None])),
    }
    if draw(st.booleans()):
        fields |= {
            "sysFlag": "4",
            "subVersion": "1",
            "expressionType": "SQL92",
            "subscription": draw(st.sampled_from(EXPRESSIONS)),
        }
    if draw(st.integers(0, 9)) == 0:
        del fields[draw(st.sampled_from(sorted(fields)))]
    if draw(st.integers(0, 19)) == 0:
        fields["rh"] = "1"
    return fields


def pull_frame(fields: dict[str, object], opaque: int, *, has_blanks: bool = False) -> Frame:
    separators = None if has_blanks else (",", ":")
    parts = {"code": 11, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": opaque}
    return 0, json.dumps(parts, separators=separators).encode(), b""


@st.composite
def passes(draw: st.DrawFn) -> list[tuple[str, list[Frame]]]:
    """Events, and what is asked behind each."""
    made = []
    for _ in range(draw(st.integers(1, 5))):
        frames = [
            pull_frame(draw(pull()), opaque, has_blanks=draw(st.booleans()))
            if draw(st.integers(0, 4))
            else json_frame(draw(usual_sends(batch=draw(st.booleans()))), opaque, code_first=True)
            for opaque in range(draw(st.integers(1, 12)))
        ]
        made.append((draw(st.sampled_from([*EVENTS, *["nothing"] * 8])), frames))
    return made


def serve(stream: list[tuple[str, list[Frame]]], store: dict[str, str]) -> Served:
    async def serve_it() -> Served:
        with tempfile.TemporaryDirectory() as directory:
            broker = HotBroker(Path(directory), store)
            try:
                answers = []
                heartbeat("*", 1)(broker)
                for number in range(4):
                    broker.served.put(TOPIC, b"%d" % number, properties="TAGS\x01A\x02")
                for event, frames in stream:
                    EVENTS[event](broker)
                    broker.serve(frames)
                    # Compiled code answers the pulls that have waited in the next turn.
                    await asyncio.sleep(0)
                    # So they may come later than those to other requests.
                    answers.append(sorted(broker.answers(), key=str))
                    broker.peer.written.clear()
                traffic = broker.served.stats.get_pull_traffic(TOPIC, GROUP)
                counted = [(traffic.messages, traffic.calls, traffic.bytes)] + [
                    (queue_id, reads.calls, reads.next_offset)
                    for queue_id, reads in sorted(traffic.queues.items())
                ]
                offset = broker.served.tables.offsets.get(TOPIC, GROUP, 0)
                return Served(
                    answers,
                    offset,
                    counted,
                    broker.served.stats.get_found,
                    broker.served.store.reading.reader.tested_count,
                )
            finally:
                broker.close()

    with (
        mock.patch.object(os, "fsync"),
        mock.patch.object(os, "fdatasync"),
        # How much is tested in one turn depends on the clock.
        mock.patch.object(property_stage, "BUDGET_S", 1e9),
    ):
        return asyncio.run(serve_it())


@settings(max_examples=5 * settings().max_examples)
@given(stream=passes(), file_size_bytes=st.sampled_from(["60", "2048", "65536"]))
def test_every_stream_is_served_alike(
    stream: list[tuple[str, list[Frame]]], file_size_bytes: str
) -> None:
    store = {
        "mappedFileSizeCommitLog": "4096",
        "mappedFileSizeConsumeQueue": file_size_bytes,
        "enablePropertyFilter": "true",
    }
    compiled = serve(stream, store)
    with mock.patch.object(plain_pulls, "take_pulls", None):
        assert compiled == serve(stream, store)


@st.composite
def turns(draw: st.DrawFn) -> list[tuple[str, list[list[Frame]]]]:
    """Events, and what each of three connections pulls behind each, without commits.

    The order of the commits of several connections is not defined.
    """
    made = []
    for _ in range(draw(st.integers(1, 4))):
        asked = [draw(st.lists(pull(), max_size=4)) for _ in range(3)]
        for fields in (each for one in asked for each in one):
            if "sysFlag" in fields:
                fields["sysFlag"] = str(int(str(fields["sysFlag"])) & ~1)
        event = draw(st.sampled_from([*EVENTS, *["nothing", "a message"] * 6]))
        frames = [[pull_frame(each, at) for at, each in enumerate(one)] for one in asked]
        made.append((event, frames))
    return made


def serve_turns(
    stream: list[tuple[str, list[list[Frame]]]], store: dict[str, str]
) -> list[list[list[tuple[Command, bytes]]]]:
    """Return the answers to each connection behind each turn."""

    async def serve_it() -> list[list[list[tuple[Command, bytes]]]]:
        with tempfile.TemporaryDirectory() as directory:
            broker = HotBroker(Path(directory), store)
            try:
                peers = [broker.peer, HotPeer(40_001), HotPeer(40_002)]
                for peer in peers:
                    broker.peer = peer
                    heartbeat("*", 1)(broker)
                for number in range(4):
                    broker.served.put(TOPIC, b"%d" % number, properties="TAGS\x01A\x02")
                made = []
                for event, asked in stream:
                    if event == "a message":
                        broker.served.put(TOPIC, b"more")
                    else:
                        EVENTS[event](broker)
                    for peer, frames in zip(peers, asked, strict=True):
                        peer.backlog = list(frames)
                    broker.serve_turn(*peers)
                    await asyncio.sleep(0)
                    made.append([sorted(peer.answers(), key=str) for peer in peers])
                    for peer in peers:
                        peer.written.clear()
                return made
            finally:
                broker.close()

    with (
        mock.patch.object(os, "fsync"),
        mock.patch.object(os, "fdatasync"),
        mock.patch.object(property_stage, "BUDGET_S", 1e9),
    ):
        return asyncio.run(serve_it())


@given(stream=turns(), file_size_bytes=st.sampled_from(["60", "2048", "65536"]))
def test_the_pulls_of_a_turn_are_served_alike(
    stream: list[tuple[str, list[list[Frame]]]], file_size_bytes: str
) -> None:
    store = {
        "mappedFileSizeCommitLog": "4096",
        "mappedFileSizeConsumeQueue": file_size_bytes,
        "enablePropertyFilter": "true",
    }
    compiled = serve_turns(stream, store)
    with mock.patch.object(plain_pulls, "take_pulls", None):
        assert compiled == serve_turns(stream, store)
