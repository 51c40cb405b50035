"""Ordinary pulls: a range in windows of 32, many at a time, asked again where one came short."""

from typing import Any, cast

import pytest

from rockhopper.client import Admin
from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.pulls import OrdinaryPulls, QueuePull, read_answer
from rockhopper.protocol.command import Command

QUEUE = MessageQueue("orders", "a", 3)


class Broker:
    """A queue of messages of one byte each; answers no more than *most* at a time."""

    def __init__(self, end: int, most: int = 32) -> None:
        self.end = end
        self.most = most
        self.low = 0
        self.asked: list[tuple[int, int]] = []
        self.fields: dict[str, str] = {}

    async def request(
        self, address: str, code: int, ext: dict[str, str], *, accept: Any, timeout_s: float
    ) -> Command:
        self.fields = ext
        offset, count = int(ext["queueOffset"]), int(ext["maxMsgNums"])
        self.asked.append((offset, count))
        if offset < self.low:
            return self.answered(21, b"", self.low)
        stop = min(offset + min(count, self.most), self.end)
        if stop <= offset:
            return self.answered(19, b"", offset)
        return self.answered(0, bytes(range(offset, stop)), stop)

    def answered(self, code: int, body: bytes, next_offset: int) -> Command:
        """The answer to a pull."""
        ext = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(next_offset),
            "minOffset": str(self.low),
            "maxOffset": str(self.end),
        }
        return Command(code, ext=ext, body=body)


def pulls(broker: Broker) -> OrdinaryPulls:
    return OrdinaryPulls(cast(Admin, broker), "a:1", 3.0)


def wanted(offset: int, end: int, bytes_max: int = 1 << 20) -> QueuePull:
    return QueuePull(QUEUE, offset, end, bytes_max, "g", "red")


@pytest.mark.parametrize("most", [32, 10, 1])
async def test_a_range_comes_whole_and_in_order_however_short_answers_are(most: int) -> None:
    broker = Broker(200, most)
    read = await pulls(broker).read(wanted(5, 150))
    assert read.body == bytes(range(5, 150))
    assert (read.next_offset, read.min_offset, read.max_offset) == (150, 0, 200)
    assert not read.has_moved


async def test_windows_are_asked_for_side_by_side_and_say_what_is_wanted() -> None:
    broker = Broker(200)
    await pulls(broker).read(wanted(0, 70))
    assert broker.asked == [(0, 32), (32, 32), (64, 6)]
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": "3", "subscription": "red"}
    assert broker.fields.items() >= fields.items()


async def test_it_stops_when_enough_bytes_are_there() -> None:
    broker = Broker(250)
    read = await pulls(broker).read(wanted(0, 250, 1))
    assert 1 <= len(read.body) == read.next_offset


async def test_the_end_of_the_queue_ends_it() -> None:
    read = await pulls(Broker(40)).read(wanted(0, 200))
    assert (len(read.body), read.next_offset) == (40, 40)


async def test_an_offset_that_has_expired_is_said() -> None:
    broker = Broker(100)
    broker.low = 50
    read = await pulls(broker).read(wanted(0, 100))
    assert (read.body, read.next_offset, read.has_moved) == (b"", 50, True)


def test_an_answer_says_where_to_go_on() -> None:
    answer = Broker(9).answered(0, b"x", 7)
    assert read_answer(answer) == (b"x", 7, 0, 9, False)
