"""A turn: answers leave in one write, those to sends when their messages are as safe as asked."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.latencies import RequestLabels, RequestTimes
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.broker.store.files.errors import (
    DiskFullError,
    NotReplicatedError,
    StoreBusyError,
    StoreError,
)
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import FrameDecoder
from tests.support.peers import Clock, Peer


class Store:
    """What a turn asks of a store; a pass ends at 1,000."""

    def __init__(self, *, high_watermark: int = 1000) -> None:
        self.staging = self.safe_point = self.log = self
        self.is_writable = self.is_what_is_written = True
        self.high_watermark = high_watermark
        self.written_offset = 1000
        self.begins = self.commits = 0
        self.refusal: StoreError | None = None
        self.failure: StoreError | None = None
        self.releases: list[tuple[int, Callable[[StoreError | None], None]]] = []

    def check_writable(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def read_clock(self) -> None:
        self.begins += 1

    def commit(self) -> int:
        self.commits += 1
        if self.failure is not None:
            raise self.failure
        return 1000

    def when(self, end: int, release: Callable[[StoreError | None], None]) -> None:
        self.releases.append((end, release))


class Pass:
    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.peer = Peer()
        self.stats = BrokerStats(now_ms=Clock())
        self.seconds = 100.0
        self.times = RequestTimes(lambda: self.seconds)
        self.reply_batch = ReplyBatch(
            cast(MessageStore, self.store),
            self.stats,
            self.peer.connection,
            self.times,
            self.seconds,
        )

    def sent(self, opaque: int, log_offset: int = 0, *, waits: bool = True) -> None:
        frame = encode_command(Command(0, opaque, 1, ext={"msgId": str(opaque)}))
        self.reply_batch.sent(frame, log_offset, waits=waits)

    def answers(self) -> list[tuple[int, int]]:
        """Opaque and code of everything written, write by write."""
        return [
            (command.opaque, command.code)
            for each in FrameDecoder().feed(b"".join(self.peer.written))
            for command in [decode_header(each[0], each[1], each[2])]
        ]


def test_everything_leaves_in_one_write_sends_in_their_order() -> None:
    one = Pass()
    one.reply_batch.answer(encode_command(Command(0, 1, 1)))
    one.sent(2)
    one.sent(3)
    one.reply_batch.flush()
    assert one.answers() == [(1, 0), (2, 0), (3, 0)]
    assert len(one.peer.written) == 1
    assert (one.store.commits, one.reply_batch.staged, one.reply_batch.size_bytes) == (1, 0, 0)
    one.reply_batch.flush()
    assert (len(one.peer.written), one.store.commits) == (1, 1)


def test_the_clock_is_read_once_a_pass() -> None:
    one = Pass()
    assert one.reply_batch.can_stage()
    assert one.reply_batch.can_stage()
    assert one.store.begins == 1
    one.sent(1)
    one.reply_batch.settle()
    assert one.reply_batch.can_stage()
    assert one.store.begins == 2


@pytest.mark.parametrize(
    "change", [{"is_writable": False}, {"refusal": StoreBusyError("too much waits")}]
)
def test_a_store_that_takes_nothing_stages_nothing(change: dict[str, Any]) -> None:
    one = Pass()
    for name, value in change.items():
        setattr(one.store, name, value)
    assert not one.reply_batch.can_stage()
    assert one.store.begins == 0


def test_who_waits_for_the_disk_is_answered_when_it_has_it() -> None:
    one = Pass(Store(high_watermark=500))
    one.store.is_what_is_written = False
    one.sent(1)
    one.sent(2, waits=False)
    one.sent(3)
    one.reply_batch.flush()
    assert one.answers() == [(2, 0)]
    ((end, release),) = one.store.releases
    assert end == 1000
    release(None)
    assert one.answers() == [(2, 0), (1, 0), (3, 0)]


def test_what_the_disk_did_not_confirm_is_said_to_be_stored_all_the_same() -> None:
    one = Pass(Store(high_watermark=500))
    one.store.is_what_is_written = False
    one.sent(1)
    one.reply_batch.flush()
    one.store.releases[0][1](StoreBusyError("the flush took too long"))
    ((opaque, code),) = one.answers()
    assert (opaque, code) == (1, ResponseCode.FLUSH_DISK_TIMEOUT)


def test_a_pass_that_was_written_in_part_refuses_the_rest() -> None:
    one = Pass()
    one.store.failure = DiskFullError("no room")
    one.sent(1, log_offset=900)
    one.sent(2, log_offset=1000)
    one.reply_batch.flush()
    assert dict(one.answers())[1] == ResponseCode.SUCCESS
    assert dict(one.answers())[2] != ResponseCode.SUCCESS
    assert one.stats.put_failed == 1


def counted(one: Pass) -> dict[RequestLabels, tuple[int, float]]:
    return {kind: (sum(times.counts), round(times.sum_s, 6)) for kind, times in one.times.rows()}


def test_requests_are_counted_with_the_time_until_their_answers_are_written() -> None:
    one = Pass()
    one.reply_batch.count(RequestCode.PULL_MESSAGE, 3)
    one.sent(1)
    one.reply_batch.count_sends(RequestCode.SEND_MESSAGE_V2, 2)
    one.seconds += 0.25
    one.reply_batch.flush()
    assert counted(one) == {
        RequestLabels("pull_message", "success", False, False): (3, 0.75),
        RequestLabels("send_message_v2", "success", False, False): (2, 0.5),
    }


def test_sends_that_wait_for_the_disk_are_counted_when_it_has_them() -> None:
    one = Pass()
    one.store.is_what_is_written = False
    one.store.high_watermark = 0
    one.sent(1)
    one.reply_batch.count_sends(RequestCode.SEND_MESSAGE_V2)
    one.reply_batch.flush()
    assert counted(one) == {}
    one.seconds += 2
    one.store.releases[0][1](None)
    assert counted(one) == {RequestLabels("send_message_v2", "success", False, False): (1, 2.0)}


def test_sends_that_are_refused_are_counted_as_that() -> None:
    one = Pass()
    one.store.failure = StoreBusyError("too much waits")
    one.sent(1)
    one.reply_batch.count_sends(RequestCode.SEND_BATCH_MESSAGE)
    one.reply_batch.flush()
    assert counted(one) == {
        RequestLabels("send_batch_message", "system_busy", False, False): (1, 0.0)
    }


async def test_a_promise_that_must_not_leave_when_the_pass_ends_is_held() -> None:
    one, is_open = Pass(), True
    gate = LeaseGate(lambda: is_open, 3000)
    one.reply_batch = ReplyBatch(
        cast(MessageStore, one.store),
        one.stats,
        one.peer.connection,
        one.times,
        one.seconds,
        gate=gate,
    )
    one.reply_batch.promise(encode_command(Command(0, 1, 1)))
    one.reply_batch.answer(encode_command(Command(0, 2, 1)))
    is_open = False
    one.reply_batch.flush()
    assert one.answers() == [(2, 0)]
    gate.refuse(NotReplicatedError("another one leads"))
    assert one.answers() == [(2, 0), (1, ResponseCode.FLUSH_SLAVE_TIMEOUT)]
    gate.close()
