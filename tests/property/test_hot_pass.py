"""The hot pass answers and stores exactly what the general way does.

Each case is served by two brokers. One gets headers that name the code first, as clients write
them; the other gets the same headers in another order, which only the general way understands.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.protocol.command import Command
from tests.support.hot_broker import HotBroker
from tests.support.open_stores import flush
from tests.support.send_requests import GROUPS, TOPICS, Asked, json_frame, number, sends


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
    counted = broker.served.stats.get_send_traffic("orders")
    return counted.messages, counted.calls, counted.bytes


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


@given(asked=st.lists(sends(batch=True), min_size=1, max_size=5), mode=MODES)
def test_batches_are_served_alike(asked: list[Asked], mode: str) -> None:
    check(asked, flush_disk_type=mode)


@given(asked=st.lists(REQUESTS, min_size=1, max_size=12), passes=st.integers(1, 3), mode=MODES)
def test_a_mixture_of_requests_is_served_alike(asked: list[Asked], passes: int, mode: str) -> None:
    check(asked, passes, flush_disk_type=mode)
