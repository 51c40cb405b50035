"""Fetching: it fills a queue while there is room, and no error ends it."""

import asyncio
import logging
from typing import Any

import pytest

from rockhopper.client.consuming.fetching import REFUSED_FOR_GOOD_S, Fetcher
from rockhopper.client.consuming.process_queue import ProcessQueue, Room
from rockhopper.client.consuming.pulling import Accept, PullResult, Space
from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.errors import BrokerUnreachableError, ClientError, RequestRefusedError
from rockhopper.client.network.outages import Outages
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.message import StoredMessage

QUEUE = MessageQueue("orders", "a", 0)
RETRY = MessageQueue("%RETRY%g", "a", 0)


def result(
    *offsets: int, next_offset: int = 0, moved: bool = False, **properties: str
) -> PullResult:
    messages = [
        ReceivedMessage(
            QUEUE, StoredMessage("%RETRY%g", 0, offset, 0, b"x", properties=dict(properties))
        )
        for offset in offsets
    ]
    return PullResult(messages, offsets[-1] + 1 if offsets else next_offset, 0, 100, moved)


def refused(code: int) -> RequestRefusedError:
    return RequestRefusedError(11, code, "no", "a:1")


class Fetched:
    """A fetcher whose source answers in the order given, then never again."""

    def __init__(self, *answers: PullResult | ClientError, queue: MessageQueue = QUEUE) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, float]] = []
        self.accepted: list[bool] = []
        self.pauses: list[float] = []
        self.told: list[str] = []
        self.done = asyncio.Event()
        self.shared = Room(1000, 1 << 20)
        self.held = ProcessQueue(queue, 0, room=Room(3, 1 << 20, self.shared))
        settings = ConsumerSettings("g", {}, poll_s=15.0)
        outages = Outages()
        self.now_s = 0.0
        self.held_s = 0.0
        self.fetcher = Fetcher(self, settings, self, outages, self._pause, lambda: self.now_s)

    async def follow(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int,
        wait_s: float,
        space: Space,
        accept: Accept,
    ) -> None:
        self.asked.append((offset, wait_s))
        self.now_s += self.held_s
        self.held_s = 0.0
        if not self.answers:
            self.done.set()
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, ClientError):
            raise answer
        self.accepted.append(accept(offset, answer))

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    def fetched(self, held: ProcessQueue) -> None:
        self.told.append("fetched")

    def moved(self, held: ProcessQueue) -> None:
        self.told.append("moved")

    def refused(self, held: ProcessQueue, error: RequestRefusedError) -> None:
        self.told.append(f"refused {error.code}")

    def unknown(self, held: ProcessQueue) -> None:
        self.told.append("unknown")

    async def run(self) -> None:
        """Until every answer was taken."""
        task = asyncio.ensure_future(self.fetcher.run(self.held))
        await self.done.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_reads_on_behind_what_came() -> None:
    fetched = Fetched(result(0), result(1))
    await fetched.run()
    assert fetched.asked == [(0, 15.0), (1, 15.0), (2, 15.0)]
    assert fetched.told == ["fetched", "fetched"]
    assert fetched.held.fetch_offset == 2


async def test_without_room_nothing_is_asked() -> None:
    fetched = Fetched(result(0, 1, 2), result(3))
    task = asyncio.ensure_future(fetched.fetcher.run(fetched.held))
    for _ in range(5):
        await asyncio.sleep(0)
    assert fetched.asked == [(0, 15.0)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_answer_that_brings_nothing_at_once_is_followed_by_a_pause() -> None:
    fetched = Fetched(result(), result())
    await fetched.run()
    assert fetched.pauses == [0.1, 0.1]


async def test_what_is_filtered_out_is_stepped_over_without_a_pause() -> None:
    fetched = Fetched(result(next_offset=7))
    await fetched.run()
    assert fetched.asked[-1] == (7, 15.0)
    assert (fetched.pauses, fetched.told) == ([], [])


async def test_a_broker_sends_it_elsewhere() -> None:
    fetched = Fetched(result(next_offset=50, moved=True))
    await fetched.run()
    assert fetched.told == ["moved"]
    assert fetched.asked == [(0, 15.0), (50, 15.0)]


async def test_after_an_outage_it_asks_without_being_held_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    gone = BrokerUnreachableError("gone")
    fetched = Fetched(gone, gone, result(0))
    await fetched.run()
    assert [wait_s for _, wait_s in fetched.asked] == [15.0, 0.0, 0.0, 15.0]
    assert fetched.pauses == [0.05, 0.1]
    said = [record.getMessage() for record in caplog.records]
    assert said == ["reading from a is interrupted: gone", "reading from a has resumed"]


async def test_pauses_grow_up_to_half_a_second() -> None:
    fetched = Fetched(*[BrokerUnreachableError("gone")] * 9)
    await fetched.run()
    assert fetched.pauses[:4] == [0.05, 0.1, 0.2, 0.4]
    assert set(fetched.pauses[4:]) == {0.5}


@pytest.mark.parametrize("code", [16, 26, 23])
async def test_what_does_not_pass_is_told_while_nothing_ever_came(code: int) -> None:
    fetched = Fetched(refused(code))
    await fetched.run()
    assert (fetched.told, fetched.pauses) == ([f"refused {code}"], [1.0])
    later = Fetched(result(0), refused(code))
    await later.run()
    assert later.told == ["fetched"]


async def test_a_queue_that_was_read_is_refused_for_good_after_half_a_minute() -> None:
    for_so_long = int(REFUSED_FOR_GOOD_S)
    fetched = Fetched(result(0), *[refused(16)] * for_so_long)
    await fetched.run()
    assert fetched.told == ["fetched"]
    fetched = Fetched(result(0), *[refused(16)] * (for_so_long + 1))
    await fetched.run()
    assert fetched.told == ["fetched", "refused 16"]


async def test_a_queue_whose_first_pull_was_held_had_been_allowed() -> None:
    fetched = Fetched(*[refused(16)] * int(REFUSED_FOR_GOOD_S), result(0))
    fetched.held_s = 3.0
    await fetched.run()
    assert fetched.told == ["fetched"]
    fetched = Fetched(refused(16))
    await fetched.run()
    assert fetched.told == ["refused 16"]


async def test_a_permission_that_comes_back_in_time_ends_nothing() -> None:
    refusals = [refused(16)] * (int(REFUSED_FOR_GOOD_S) - 1)
    fetched = Fetched(result(0), *refusals, result(1), *refusals)
    await fetched.run()
    assert fetched.told == ["fetched", "fetched"]


@pytest.mark.parametrize("code", [24, 25, 17])
async def test_a_broker_that_does_not_know_it_is_told_apart(code: int) -> None:
    fetched = Fetched(refused(code))
    await fetched.run()
    assert fetched.told == ["unknown"]


async def test_a_queue_that_the_topic_lost_lets_the_route_be_asked_for() -> None:
    said = "queueId[7] is illegal, topic:[t] topicConfig.readQueueNums:[2] consumer:[c]"
    fetched = Fetched(RequestRefusedError(11, 29, said, "a:1"))
    await fetched.run()
    assert fetched.told == ["unknown"]


async def test_messages_that_come_again_have_the_topic_they_were_sent_to() -> None:
    fetched = Fetched(result(0, RETRY_TOPIC="orders"), result(1), queue=RETRY)
    await fetched.run()
    first, second = (fetched.held.next_message() for _ in range(2))
    assert [message.topic for message in (first, second)] == ["orders", "%RETRY%g"]


async def test_an_answer_to_an_old_offset_is_dropped() -> None:
    fetched = Fetched(result(0))
    follow = fetched.follow

    async def reset_meanwhile(*given: Any) -> None:
        def accept(offset: int, answer: PullResult) -> bool:
            fetched.held.reset(40)
            accepted.append(given[-1](offset, answer))
            return True

        queue, offset, max_count, wait_s, space, _ = given
        await follow(queue, offset, max_count, wait_s, space, accept)

    accepted: list[bool] = []
    fetched.follow = reset_meanwhile  # type: ignore[method-assign, assignment]
    await fetched.run()
    assert (fetched.told, accepted) == ([], [False])
    assert fetched.asked[1] == (40, 15.0)


async def test_a_source_reads_on_only_behind_messages_and_while_there_is_room() -> None:
    gone = BrokerUnreachableError("gone")
    fetched = Fetched(gone, result(0), result(next_offset=1), result(1), result(2))
    task = asyncio.ensure_future(fetched.fetcher.run(fetched.held))
    for _ in range(10):
        await asyncio.sleep(0)
    assert fetched.accepted == [False, False, True, False]  # after an error; nothing came; full
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_source_does_not_read_on_for_a_queue_that_was_given_up() -> None:
    fetched = Fetched(result(0))
    fetched.held.is_dropped = True
    task = asyncio.ensure_future(fetched.fetcher.run(fetched.held))
    await asyncio.gather(task)
    assert fetched.asked == []
