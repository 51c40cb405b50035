"""The hot pass answers and stores exactly what the general way does.

Each case is served by two brokers. One gets headers that name the code first, as clients write
them; the other gets the same headers in another order, which only the general way understands.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.broker.store.log import encoding
from rockhopper.protocol.command import Command
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.store.message_codec import encode_batch
from tests.support.hot_broker import HotBroker
from tests.support.open_stores import flush


class Asked(NamedTuple):
    """One request: its header fields as JSON values, and its body."""

    code: int
    ext: dict[str, Any]
    body: bytes = b""
    flag: int | None = 0


def json_frame(asked: Asked, opaque: int, *, code_first: bool) -> Frame:
    header = {
        "code": asked.code,
        "extFields": asked.ext,
        "flag": asked.flag,
        "language": "JAVA",
        "opaque": opaque,
        "version": 479,
    }
    if not code_first:
        header["code"] = header.pop("code")
    return 0, json.dumps(header, separators=(",", ":")).encode(), asked.body


@contextmanager
def two_brokers(settings: dict[str, str]) -> Iterator[tuple[HotBroker, HotBroker]]:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        # Nobody cuts the power here, and each store would be synced many times.
        patch.setattr(os, "fsync", lambda _descriptor: None)
        patch.setattr(os, "fdatasync", lambda _descriptor: None)
        hot = HotBroker(Path(directory) / "hot", settings)
        general = HotBroker(Path(directory) / "general", settings)
        try:
            yield hot, general
        finally:
            for broker in (hot, general):
                broker.served.store.abandon()


def check(asked: Sequence[Asked], passes: int = 1, *, flush_disk_type: str = "ASYNC_FLUSH") -> None:
    """Serve *asked* both ways, in so many passes, and compare answers and stored bytes."""

    async def serve() -> None:
        with two_brokers({"flushDiskType": flush_disk_type}) as (hot, general):
            step = -(-len(asked) // passes)
            for start in range(0, len(asked), step):
                some = list(enumerate(asked))[start : start + step]
                hot.serve([json_frame(one, n, code_first=True) for n, one in some])
                general.serve([json_frame(one, n, code_first=False) for n, one in some])
            # Answers at once, then those that waited for the disk.
            assert in_order(hot) == in_order(general)
            for broker in (hot, general):
                flush(broker.served.store)
            assert in_order(hot) == in_order(general)
            assert hot.log_bytes() == general.log_bytes()
            assert hot.peer.responses == general.peer.responses
            assert (hot.peer.failure is None) == (general.peer.failure is None)
            assert traffic(hot) == traffic(general)

    asyncio.run(serve())


def in_order(broker: HotBroker) -> list[tuple[Command, bytes]]:
    return sorted(broker.answers(), key=lambda answer: answer[0].opaque)


def traffic(broker: HotBroker) -> tuple[int, ...]:
    counted = broker.served.stats.put("orders")
    return counted.messages, counted.calls, counted.bytes


NAMES = ["TAGS", "KEYS", "a", "ключ", "XWAIT", "XDELAY", "XTRAN_MSG"]
SPECIAL = ["DELAY", "TRAN_MSG", "MSG_REGION", "INNER_NUM", "POP_CK", "REAL_TOPIC", "CLUSTER"]
VALUES = ["true", "false", "1", "3", "k1 k2", "TagA", "标签", "x y", "WAIT", "\U0001f600"]
KEYS = ["0A1B2C3D", "not alnum!", "ключ"]


@st.composite
def properties(draw: st.DrawFn) -> str:
    """Properties as a client's library joins them: each name once, nothing empty."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    pairs = [(name, draw(st.sampled_from(VALUES))) for name in names]
    if draw(st.integers(0, 9)) == 0:
        pairs.append((draw(st.sampled_from(SPECIAL)), draw(st.sampled_from(VALUES))))
    if draw(st.integers(0, 3)):
        pairs.append(("WAIT", draw(st.sampled_from(["true", "false", "TRUE"]))))
    if draw(st.integers(0, 9)):
        key = KEYS[0] if draw(st.integers(0, 9)) else draw(st.sampled_from(KEYS))
        pairs.append(("UNIQ_KEY", key))
    pairs = draw(st.permutations(pairs))
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs)


def number(values: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    """A number as Java (text) or ali-ons (bare) sends it, or now and then something else."""
    odd = st.sampled_from(
        ["", " 1", "x", "1.0", 1.0, 1.5, True, None, 2**31, str(2**63), "+1", "01"]
    )
    usual = st.one_of(values, values.map(str))
    return st.integers(0, 19).flatmap(lambda n: odd if n == 0 else usual)


BOOLEANS = st.sampled_from(
    ["false", "false", False, "true", True, "TRUE", "0", "1", 0, 1, "no", None]
)
TOPICS = st.sampled_from(
    ["orders"] * 12
    + ["unknown", "readonly", "writeonly", "Batches", "%RETRY%group", "SCHEDULE_TOPIC_XXXX", "a/b"]
    + [""]
)
GROUPS = st.sampled_from(["group"] * 30 + ["", "bad group", "g" * 200])


@st.composite
def sends(draw: st.DrawFn, *, batch: bool = False) -> Asked:
    # The hot way does not look at c and d, which are for topics that do not exist yet.
    ext: dict[str, Any] = {
        "a": draw(GROUPS),
        "b": draw(TOPICS),
        "e": draw(number(st.integers(0, 3))),
        "f": draw(number(st.sampled_from([0, 0, 0, 1, 0x10, 4, 8, 0xC0]))),
        "g": draw(number(st.integers(0, 2**41))),
        "h": draw(number(st.sampled_from([0, 7, -1]))),
        "i": draw(properties()),
        "j": draw(number(st.integers(0, 20))),
        "k": draw(BOOLEANS),
        "m": draw(BOOLEANS) if draw(st.integers(0, 9)) == 0 else str(batch).lower(),
    }
    if draw(st.integers(0, 9)) == 0:
        del ext[draw(st.sampled_from(sorted(ext)))]
    if draw(st.integers(0, 19)) == 0:
        ext["rh"] = draw(st.sampled_from(["1", "0", 1]))
    ext |= {"c": "TBW102", "d": draw(st.sampled_from([4, "4"]))}
    flag = draw(st.sampled_from([0] * 10 + [2, 2, 1, 3, None]))
    body = draw(st.binary(max_size=40))
    if batch and draw(st.integers(0, 9)):
        inner = draw(st.lists(st.tuples(st.binary(max_size=10), properties()), max_size=3))
        body = encode_batch([(n, data, text.encode()) for n, (data, text) in enumerate(inner)])
    code = 320 if batch else draw(st.sampled_from([310] * 12 + [3100, 10]))
    return Asked(code, ext, body, flag)


@st.composite
def pulls(draw: st.DrawFn) -> Asked:
    ext: dict[str, Any] = {
        "consumerGroup": draw(GROUPS),
        "topic": draw(TOPICS),
        "queueId": draw(number(st.integers(-1, 3))),
        "queueOffset": draw(number(st.integers(-1, 6))),
        "maxMsgNums": draw(number(st.sampled_from([32, 1, 0, -1]))),
        "sysFlag": draw(number(st.sampled_from([4, 4, 4, 5, 0]))),
        "commitOffset": draw(number(st.integers(-1, 5))),
        "suspendTimeoutMillis": draw(number(st.just(15000))),
        "subVersion": draw(number(st.just(0))),
        "subscription": draw(st.sampled_from(["*", "TagA", "TagA || b", "||", "", None])),
        "expressionType": draw(st.sampled_from(["TAG", None, "SQL92", "odd"])),
    }
    if draw(st.integers(0, 4)) == 0:
        del ext[draw(st.sampled_from(sorted(ext)))]
    if draw(st.integers(0, 19)) == 0:
        ext["rh"] = "1"
    return Asked(11, ext, b"", draw(st.sampled_from([0] * 10 + [1, 2])))


REQUESTS = st.one_of(sends(), sends(batch=True), pulls())


MODES = st.sampled_from(["ASYNC_FLUSH", "SYNC_FLUSH"])


@given(asked=st.lists(sends(), min_size=1, max_size=8), mode=MODES)
def test_sends_are_served_alike(asked: list[Asked], mode: str) -> None:
    check(asked, flush_disk_type=mode)


@given(asked=st.lists(sends(), min_size=1, max_size=8))
def test_sends_are_served_alike_without_compiled_functions(asked: list[Asked]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rockhopper.broker.store.staging.encode_plain", encoding.encode_plain)
        check(asked)


@given(asked=st.lists(sends(batch=True), min_size=1, max_size=5), mode=MODES)
def test_batches_are_served_alike(asked: list[Asked], mode: str) -> None:
    check(asked, flush_disk_type=mode)


@given(asked=st.lists(REQUESTS, min_size=1, max_size=12), passes=st.integers(1, 3), mode=MODES)
def test_a_mixture_of_requests_is_served_alike(asked: list[Asked], passes: int, mode: str) -> None:
    check(asked, passes, flush_disk_type=mode)
