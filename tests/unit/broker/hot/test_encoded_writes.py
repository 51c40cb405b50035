"""EncodedWrites: each connection is answered when its messages are as safe as it asked for."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from rockhopper.broker.hot.encoded_writes import EncodedWrites
from rockhopper.broker.hot.parts import HotKernel
from rockhopper.broker.observing.stats import BrokerStats
from rockhopper.broker.server.loop.latencies import RequestLabels, RequestTimes
from rockhopper.broker.store.files.errors import DiskFullError, StoreBusyError, StoreError
from rockhopper.broker.store.queues.queue_tail import StagedMessages
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import FrameDecoder
from tests.support.peers import Clock, Peer

SEND = int(RequestCode.SEND_MESSAGE_V2)


class Store:
    """The parts of a store that it needs; every write ends at 1,000."""

    def __init__(self, *, high_watermark: int = 1000) -> None:
        self.staging = self.safe_point = self
        self.is_writable = self.is_what_is_written = True
        self.is_busy = False
        self.high_watermark = high_watermark
        self.clock_reads = self.writes = 0
        self.handed_on: list[StagedMessages] = []
        self.failure: StoreError | None = None
        self.releases: list[tuple[int, Callable[[StoreError | None], None]]] = []

    def read_clock(self) -> None:
        self.clock_reads += 1

    def place(self) -> tuple[int, int, int]:
        return 900, 5000, 1_700_000_000_000

    def append_encoded(self, *_given: object) -> StagedMessages:
        self.writes += 1
        if self.failure is not None:
            raise self.failure
        staged = StagedMessages(900)
        staged.end = 1000
        return staged

    def hand_on(self, staged: StagedMessages) -> None:
        self.handed_on.append(staged)

    def when(
        self, end: int, release: Callable[[StoreError | None], None], answer_count: int
    ) -> None:
        assert answer_count > 0
        self.releases.append((end, release))


class Writing:
    """Writes for two connections."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = self.kernel = store or Store()
        self.stats = BrokerStats(now_ms=Clock())
        self.now_s = 100.0
        self.request_times = RequestTimes(lambda: self.now_s)
        self.peers = [Peer(port=40_000), Peer(port=40_001)]
        self.writes = EncodedWrites(cast(HotKernel, self))

    def write(self, *owed: tuple[int, int, bool], count: int = 1, code: int = SEND) -> bool:
        """Write for (peer, opaque, waits) each."""
        given = [
            (
                self.peers[peer].connection,
                encode_command(Command(0, opaque, 1, ext={"msgId": str(opaque)})),
                waits,
            )
            for peer, opaque, waits in owed
        ]
        return self.writes.write(b"", [], b"", given, {code: count}, self.now_s)

    def answers(self) -> list[list[tuple[int, int]]]:
        """Opaque and code of everything written to each peer."""
        return [
            [
                (command.opaque, command.code)
                for each in FrameDecoder().feed(b"".join(peer.written))
                for command in [decode_header(*each)]
            ]
            for peer in self.peers
        ]

    def counted(self) -> dict[RequestLabels, tuple[int, float]]:
        return {
            kind: (sum(row.counts), round(row.sum_s, 6)) for kind, row in self.request_times.rows()
        }


@pytest.mark.parametrize("change", [{"is_writable": False}, {"is_busy": True}])
def test_a_store_that_takes_nothing_has_no_place(change: dict[str, Any]) -> None:
    one = Writing()
    assert one.writes.find_place() == (900, 5000, 1_700_000_000_000)
    for name, value in change.items():
        setattr(one.store, name, value)
    assert one.writes.find_place() is None
    assert one.store.clock_reads == 1


def test_each_connection_gets_its_own_answers() -> None:
    one = Writing()
    assert one.write((0, 1, True), (1, 2, True), (0, 3, False), count=3)
    assert one.answers() == [[(1, 0), (3, 0)], [(2, 0)]]
    assert one.store.writes == 1
    assert one.counted() == {RequestLabels("send_message_v2", "success"): (3, 0.0)}


def test_an_answer_that_need_not_wait_leaves_before_its_message_is_dispatched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Writing()
    seen: list[list[list[tuple[int, int]]]] = []
    monkeypatch.setattr(one.store, "hand_on", lambda _staged: seen.append(one.answers()))
    assert one.write((0, 1, True), (1, 2, True))
    assert seen == [[[(1, 0)], [(2, 0)]]]


def test_messages_are_dispatched_even_if_an_answer_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_data: bytes) -> None:
        raise RuntimeError("no")

    one = Writing()
    monkeypatch.setattr(one.peers[0], "write", fail)
    with pytest.raises(RuntimeError):
        one.write((0, 1, True), (1, 2, True))
    assert [staged.end for staged in one.store.handed_on] == [1000]


@pytest.mark.parametrize("high_watermark", [500, 1000])
def test_messages_that_must_be_safe_first_are_handed_on_before_their_answers(
    monkeypatch: pytest.MonkeyPatch, high_watermark: int
) -> None:
    one = Writing(Store(high_watermark=high_watermark))
    one.store.is_what_is_written = False
    seen: list[list[list[tuple[int, int]]]] = []
    monkeypatch.setattr(one.store, "hand_on", lambda _staged: seen.append(one.answers()))
    assert one.write((0, 1, False))
    assert seen == [[[], []]]
    assert one.answers() == [[(1, 0)], []]


def test_who_waits_for_the_disk_is_answered_when_it_has_it() -> None:
    one = Writing(Store(high_watermark=500))
    one.store.is_what_is_written = False
    assert one.write((0, 1, True), (0, 2, False), (1, 3, True), count=3)
    assert one.answers() == [[(2, 0)], []]
    assert one.counted() == {}
    ((end, release),) = one.store.releases
    assert end == 1000
    one.now_s += 2
    release(None)
    assert one.answers() == [[(2, 0), (1, 0)], [(3, 0)]]
    assert one.counted() == {RequestLabels("send_message_v2", "success"): (3, 6.0)}


def test_what_is_safe_already_is_answered_at_once() -> None:
    one = Writing()
    one.store.is_what_is_written = False
    assert one.write((0, 1, True))
    assert one.answers() == [[(1, 0)], []]
    assert one.store.releases == []


def test_sends_of_which_none_waits_are_counted_at_once() -> None:
    one = Writing(Store(high_watermark=500))
    one.store.is_what_is_written = False
    assert one.write((0, 1, False))
    assert one.store.releases == []
    assert one.counted() == {RequestLabels("send_message_v2", "success"): (1, 0.0)}


def test_what_the_disk_did_not_confirm_is_said_to_be_stored_all_the_same() -> None:
    one = Writing(Store(high_watermark=500))
    one.store.is_what_is_written = False
    one.write((0, 1, True), (1, 2, True), count=2)
    one.store.releases[0][1](StoreBusyError("the flush took too long"))
    late = ResponseCode.FLUSH_DISK_TIMEOUT
    assert one.answers() == [[(1, late)], [(2, late)]]
    assert one.counted() == {RequestLabels("send_message_v2", "flush_disk_timeout"): (2, 0.0)}


@pytest.mark.parametrize(
    ("error", "code", "label"),
    [
        (StoreBusyError("too much waits"), ResponseCode.SYSTEM_BUSY, "system_busy"),
        (
            DiskFullError("no room"),
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service_not_available",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_to_each(
    error: StoreError, code: int, label: str
) -> None:
    one = Writing()
    one.store.failure = error
    batch = int(RequestCode.SEND_BATCH_MESSAGE)
    assert not one.write((0, 1, True), (1, 2, False), count=2, code=batch)
    assert one.answers() == [[(1, code)], [(2, code)]]
    assert one.stats.put_failed == 2
    assert one.counted() == {RequestLabels("send_batch_message", label): (2, 0.0)}
