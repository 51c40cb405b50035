"""Acknowledgements are answered, and settle, as the general way would; most do so many at once."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.features.pop.extra_info import format_extra_info
from rockhopper.broker.features.pop.processors.plain_acks import PlainAcks
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE
from rockhopper.protocol.frame import Frame
from tests.support.features import pop_of
from tests.support.hot_broker import HotBroker

MESSAGES = 6
POP_MS, INVISIBLE_MS, REVIVE_QUEUE = 1_700_000_000_000, 60_000, 3


def info(offset: int, **changes: object) -> str:
    """What a pop of all six says of the message at *offset*."""
    parts: dict[str, object] = {
        "start_offset": 0,
        "pop_ms": POP_MS,
        "invisible_ms": INVISIBLE_MS,
        "revive_queue_id": REVIVE_QUEUE,
        "retry_flag": "0",
        "broker_name": "broker-a",
        "queue_id": 1,
        "offset": offset,
    }
    return format_extra_info(**(parts | changes))  # type: ignore[arg-type]


def ack(at: int, flag: int = 0, opaque: int = 5, **fields: object) -> Frame:
    ext: dict[str, object] = {
        "consumerGroup": "readers",
        "topic": "orders",
        "queueId": "1",
        "offset": str(at),
        "extraInfo": info(at),
    }
    parts = {"code": 200_051, "extFields": ext | fields, "flag": flag, "opaque": opaque}
    parts |= {"language": "JAVA", "serializeTypeCurrentRPC": "JSON", "version": 479}
    return 0, json.dumps(parts, separators=(",", ":")).encode(), b""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[HotBroker]]:
    """Give two alike, of which the second serves acknowledgements the general way."""
    made = [HotBroker(tmp_path / name) for name in ("hot", "general")]
    for broker in made:
        served = broker.served
        served.tables.groups.put(SubscriptionGroup("readers"))
        for _ in range(MESSAGES):
            served.put("orders", queue_id=1)
        lane = pop_of(served).lanes.open("readers", "orders", 1, 0)
        pop_of(served).lanes.popped(lane, MESSAGES, POP_MS, INVISIBLE_MS, list(range(MESSAGES)))
    made[1].serve_generally()
    yield made
    for broker in made:
        broker.close()


def outcome(broker: HotBroker, *frames: Frame) -> tuple[bytes, list[int], int | None, int]:
    """What is answered; what is still in flight, committed and counted then."""
    broker.peer.written.clear()
    broker.serve(list(frames))
    served = broker.served
    lane = pop_of(served).lanes.get("readers", "orders", 1)
    assert lane is not None
    return (
        b"".join(broker.peer.written),
        list(lane.entries),
        served.tables.offsets.get("orders", "readers", 1),
        served.stats.get_ack_traffic("orders", "readers").messages,
    )


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many were taken in each go."""
    counts: list[int] = []
    serve = PlainAcks.serve

    def noted(self: PlainAcks, batch: ReplyBatch, frames: list[Frame], first: int) -> int:
        count = serve(self, batch, frames, first)
        counts.append(count)
        return count

    monkeypatch.setattr(PlainAcks, "serve", noted)
    return counts


CASES: dict[str, tuple[list[Frame], list[int]]] = {
    "all": ([ack(offset, opaque=offset) for offset in range(MESSAGES)], [6]),
    "some": ([ack(4), ack(1)], [2]),
    "one twice": ([ack(2), ack(2, opaque=6), ack(3)], [3]),
    "what is settled": ([ack(2), ack(3), ack(2, extraInfo=info(2, retry_flag="x"))], [2, 1]),
    "of another pop": ([ack(0), ack(1, extraInfo=info(1, pop_ms=POP_MS - 1)), ack(2)], [1, 1, 1]),
    "oneway": ([ack(0, FLAG_ONEWAY), ack(1)], [2]),
    "of the end": ([ack(MESSAGES)], [1]),
    "more fields": ([ack(0, bname="broker-a", liteTopic="x")], [1]),
    "numbers": ([ack(0, queueId=1, offset=0)], [1]),
    "of a retry topic": ([ack(0, extraInfo=info(0, retry_flag="1"))], [0]),
    "beyond the end": ([ack(0), ack(MESSAGES + 1), ack(1)], [1, 0, 1]),
    "in order": ([ack(0, extraInfo=info(0, revive_queue_id=999))], [0]),
    "short": ([ack(0, extraInfo=f"0 {POP_MS} {INVISIBLE_MS} 3")], [0]),
    "no info": ([ack(0, extraInfo="a b c d e f")], [0]),
    "another queue": ([ack(0, queueId="7")], [0]),
    "another topic": ([ack(0, topic="bills")], [0]),
    "another group": ([ack(0, consumerGroup="writers")], [1]),
    "marked": ([ack(0, rh="1")], [0]),
    "no number": ([ack(0, offset="one")], [0]),
    "an answer": ([ack(0, FLAG_RESPONSE)], [0]),
}


@pytest.mark.parametrize(("frames", "counts"), CASES.values(), ids=CASES.keys())
def test_what_comes_of_them_is_what_the_general_way_makes_of_it(
    brokers: list[HotBroker], taken: list[int], frames: list[Frame], counts: list[int]
) -> None:
    found, expected = (outcome(broker, *frames) for broker in brokers)
    assert found == expected
    assert taken == counts


def test_one_that_cannot_be_noted_is_refused_and_settles_nothing(
    brokers: list[HotBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for broker in brokers:
        monkeypatch.setattr(pop_of(broker.served).journal, "append", no_room)
    found, expected = (outcome(broker, ack(0), ack(1, opaque=6)) for broker in brokers)
    assert found == expected
    assert found[1] == list(range(MESSAGES))
    assert found[0].count(b'"code":14') == 2


def test_many_are_noted_at_once(brokers: list[HotBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(pop_of(brokers[0].served).journal, "append", written.append)
    outcome(brokers[0], *(ack(offset) for offset in range(MESSAGES)))
    assert len(written) == 1
