"""QueueReader: outages, and brokers that do not hold requests."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from rockhopper.client.consuming.pulling import Accept, PullResult, Space
from rockhopper.client.consuming.queue_reader import QueueReader
from rockhopper.client.errors import BrokerUnreachableError, ClientError, RequestRefusedError
from rockhopper.client.network.outages import Outages
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.message import StoredMessage

QUEUE = MessageQueue("orders", "a", 0)


def result(*offsets: int, next_offset: int = 0) -> PullResult:
    messages = [
        ReceivedMessage(QUEUE, StoredMessage("orders", 0, offset, offset * 100, b"x"))
        for offset in offsets
    ]
    return PullResult(messages, offsets[-1] + 1 if offsets else next_offset, 0, 100, False)


class Script:
    """Answers pulls in the order given, then holds the next one for ever; counts the pauses."""

    def __init__(self, *answers: PullResult | ClientError) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []
        self.waits: list[float] = []
        self.pauses: list[float] = []
        self.is_done = asyncio.Event()

    async def follow(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int,
        wait_s: float,
        space: Space,
        accept: Accept,
    ) -> None:
        self.asked.append(offset)
        self.waits.append(wait_s)
        if not self.answers:
            self.is_done.set()
            await asyncio.get_running_loop().create_future()
        answer = self.answers.pop(0)
        if isinstance(answer, ClientError):
            raise answer
        accept(offset, answer)

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture
async def readers() -> AsyncIterator[list[QueueReader]]:
    readers: list[QueueReader] = []
    yield readers
    for reader in readers:
        await reader.stop()


def start(script: Script, readers: list[QueueReader]) -> QueueReader:
    reader = QueueReader(QUEUE, 0, script, lambda _: None, Outages(), pause=script.pause)
    readers.append(reader)
    reader.start()
    return reader


def refusal(code: int) -> RequestRefusedError:
    return RequestRefusedError(11, code, "no", "a:1")


async def test_an_outage_is_waited_out_with_growing_pauses_and_logged_once(
    readers: list[QueueReader], caplog: pytest.LogCaptureFixture
) -> None:
    gone = BrokerUnreachableError("gone", address="a:1")
    script = Script(refusal(2), gone, refusal(1500), result(0, 1))
    with caplog.at_level(logging.WARNING):
        reader = start(script, readers)
        await script.is_done.wait()
    assert reader.take().queue_offset == 0
    assert script.asked == [0, 0, 0, 0, 2]
    assert script.pauses == [0.1, 0.2, 0.4]
    assert caplog.text.count("is interrupted") == 1
    assert caplog.text.count("has resumed") == 1


async def test_an_outage_may_last_for_any_time(readers: list[QueueReader]) -> None:
    script = Script(*[BrokerUnreachableError("gone")] * 2000, result(0))
    reader = start(script, readers)
    assert reader.task is not None
    done = asyncio.create_task(script.is_done.wait())
    await asyncio.wait([done, reader.task], return_when=asyncio.FIRST_COMPLETED)
    assert done.done()
    assert reader.has_message
    assert script.pauses == [0.1, 0.2, 0.4, 0.8, 1.6] + [2.0] * 1995


async def test_after_an_outage_the_broker_need_not_hold_its_first_answer(
    readers: list[QueueReader], caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(BrokerUnreachableError("gone"), result(next_offset=0))
    with caplog.at_level(logging.WARNING):
        start(script, readers)
        await script.is_done.wait()
    held, asked, held_again = script.waits
    assert (held > 0, asked, held_again) == (True, 0, held)
    assert "has resumed" in caplog.text


async def test_what_will_not_pass_ends_the_reading(readers: list[QueueReader]) -> None:
    script = Script(result(0), refusal(16), result(1))
    reader = start(script, readers)
    assert reader.task is not None
    await reader.task
    assert reader.failure is not None
    assert reader.failure.code == 16
    assert reader.has_message  # what came before stays


async def test_a_failure_that_was_heard_of_is_not_the_end(readers: list[QueueReader]) -> None:
    script = Script(result(0), refusal(17), refusal(17), result(1))
    reader = start(script, readers)
    for _ in range(2):
        assert reader.task is not None
        await reader.task
        failure = reader.take_failure()
        assert failure is not None
        assert failure.code == 17
        assert reader.take_failure() is None
    await script.is_done.wait()
    assert script.pauses == [1.0, 1.0]  # a loop around a failing pull does not hammer the broker
    assert [reader.take().queue_offset, reader.take().queue_offset] == [0, 1]


async def test_a_reader_that_was_stopped_does_not_go_on_by_itself(
    readers: list[QueueReader],
) -> None:
    reader = start(Script(refusal(17)), readers)
    assert reader.task is not None
    await reader.task
    await reader.stop()
    assert reader.take_failure() is not None
    assert reader.task is None


async def test_a_broker_that_does_not_hold_requests_is_not_asked_in_a_tight_loop(
    readers: list[QueueReader],
) -> None:
    script = Script(result(next_offset=0), result(next_offset=0))
    start(script, readers)
    await script.is_done.wait()
    assert script.pauses == [0.1, 0.1]


async def test_filtered_messages_are_passed_without_a_pause(readers: list[QueueReader]) -> None:
    script = Script(result(next_offset=32), result(next_offset=64))
    reader = start(script, readers)
    await script.is_done.wait()
    assert script.pauses == []
    assert reader.position == 64


async def test_an_outage_of_a_broker_is_logged_once_for_all_its_queues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outages = Outages()
    gone = BrokerUnreachableError("gone", address="a:1")
    scripts = [Script(gone, result(next_offset=0)) for _ in range(3)]
    with caplog.at_level(logging.WARNING):
        for number, script in enumerate(scripts):
            queue = MessageQueue("orders", "a", number)
            reader = QueueReader(queue, 0, script, lambda _: None, outages, pause=script.pause)
            reader.start()
            await script.is_done.wait()
            await reader.stop()
    said = [each.getMessage() for each in caplog.records]
    assert said == ["reading from a is interrupted: gone", "reading from a has resumed"]
