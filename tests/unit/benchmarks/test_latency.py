"""The load that measures latency, against a broker of ours."""

from array import array
from collections.abc import Iterator

import pytest

from benchmarks import latency, topics
from benchmarks.errors import BenchError
from rockhopper import ThreadedBroker
from rockhopper.protocol.command import decode_header
from rockhopper.protocol.frame import FrameDecoder


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with ThreadedBroker({"httpPort": -1}) as broker:
        number = int(broker.address.rpartition(":")[2])
        topics.prepare(number)
        yield number


def test_a_send_is_a_frame_with_its_time_in_the_body() -> None:
    sends = latency.Sends("orders", 3)
    frames = [sends.encode(due_ns, latency.FIRST_OPAQUE + due_ns) for due_ns in (5, 700)]
    assert len(set(map(len, frames))) == 1
    for frame, due_ns in zip(FrameDecoder().feed(b"".join(frames)), (5, 700), strict=True):
        kind, header, body = frame
        command = decode_header(kind, header)
        assert command.opaque == latency.FIRST_OPAQUE + due_ns
        ext = command.ext or {}
        assert (ext["b"], ext["e"]) == ("orders", "3")
        assert ext["i"] == f"UNIQ_KEY\x01{command.opaque:032X}"
        assert len(body) == latency.BODY_SIZE_BYTES
        assert int.from_bytes(body[:8], "big") == due_ns


def test_every_message_is_acknowledged_and_consumed(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency, "WARM_UP_NS", 0)
    load = latency.Load(port, 20_000)
    load.run(lambda _: len(load.late_ns) < 50)
    assert len(load.acknowledged_ns) == len(load.consumed_ns) == 50 * 20
    assert min(load.acknowledged_ns) > 0 < min(load.consumed_ns)


def test_messages_of_the_warm_up_do_not_count(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "WARM_UP_NS", 1 << 60)
    load = latency.Load(port, 1000)
    load.run(lambda _: len(load.late_ns) < 10)
    assert not load.acknowledged_ns
    with pytest.raises(BenchError, match="no message was measured"):
        latency.describe_ms(load.consumed_ns)


def test_the_history_is_read_once(port: int) -> None:
    size_bytes = 8 * latency.HISTORY_BATCH * latency.HISTORY_BODY_BYTES
    latency.fill(port, size_bytes)
    ends = latency.end_offsets(port, topics.TOPIC, topics.QUEUE_COUNT)
    assert sum(ends) == size_bytes // latency.HISTORY_BODY_BYTES
    latency.read(port)


def test_percentiles_are_in_milliseconds() -> None:
    times_ns = array("q", [each * 1_000_000 for each in range(1001)])
    assert latency.describe_ms(times_ns) == {"p50": 500, "p99": 990, "p99.9": 999, "max": 1000}
