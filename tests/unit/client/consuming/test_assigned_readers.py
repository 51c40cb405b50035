"""AssignedReaders: several queues in turns, pauses, and queues that leave and come back."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rockhopper.client.consuming.assigned_readers import AssignedReaders
from rockhopper.client.consuming.pulling import Accept, PullResult, Space
from rockhopper.client.errors import ClientStateError, RequestRefusedError
from rockhopper.client.network.outages import Outages
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.message import StoredMessage
from tests.support.turns import until

A, B = (MessageQueue("orders", "a", number) for number in range(2))


class Topic:
    """A source with `end` messages in each queue; pulls beyond it are held."""

    def __init__(self, end: int = 4) -> None:
        self.end = end
        self.forbidden: set[MessageQueue] = set()

    async def follow(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int,
        wait_s: float,
        space: Space,
        accept: Accept,
    ) -> None:
        if queue in self.forbidden:
            raise RequestRefusedError(11, 16, "no permission", "a:1")
        if offset >= self.end:
            await asyncio.get_running_loop().create_future()
        messages = [
            ReceivedMessage(queue, StoredMessage("orders", queue.queue_id, at, at * 100, b"x"))
            for at in range(offset, self.end)
        ]
        accept(offset, PullResult(messages, self.end, 0, self.end, False))


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
async def readers(topic: Topic) -> AsyncIterator[AssignedReaders]:
    made = AssignedReaders(topic, Outages())
    made.adopt(A, 0)
    made.adopt(B, 0)
    yield made
    await made.stop()


def take(readers: AssignedReaders, count: int) -> list[tuple[MessageQueue, int]]:
    taken = [readers.take_message() for _ in range(count)]
    return [(message.queue, message.queue_offset) for message in taken]


async def begin(readers: AssignedReaders, count: int = 2) -> None:
    readers.start_reading()
    await until(lambda: len(readers.ready) == count)


async def test_full_queues_deliver_in_turns(readers: AssignedReaders) -> None:
    await begin(readers)
    first, second = readers.ready[0].queue, readers.ready[1].queue
    assert take(readers, 4) == [(first, 0), (second, 0), (first, 1), (second, 1)]
    assert readers.positions == {A: 2, B: 2}


async def test_nothing_is_fetched_before_the_start(readers: AssignedReaders) -> None:
    assert all(readers.find(queue).task is None for queue in readers.queues)
    await begin(readers)
    assert all(readers.find(queue).task is not None for queue in readers.queues)


async def test_a_released_queue_leaves_the_line_and_its_position_is_remembered_once(
    readers: AssignedReaders,
) -> None:
    await begin(readers)
    take(readers, 2)
    await readers.release([A])

    assert [each.queue for each in readers.ready] == [B]
    with pytest.raises(ClientStateError, match="is not assigned to this consumer"):
        readers.find(A)
    assert (readers.pop_left(A), readers.pop_left(A)) == (1, None)


async def test_a_queue_adopted_during_the_reading_is_read_at_once(
    readers: AssignedReaders,
) -> None:
    await begin(readers)
    await readers.release([A])
    readers.adopt(A, 3)
    await until(lambda: len(readers.ready) == 2)
    assert readers.find(A).position == 3


async def test_a_paused_queue_keeps_its_messages_and_its_task_stops(
    readers: AssignedReaders,
) -> None:
    await begin(readers)
    readers.pause(A)
    assert readers.paused == [A]
    assert [each.queue for each in readers.ready] == [B]
    assert readers.find(A).task is None

    readers.resume()
    assert {each.queue for each in readers.ready} == {A, B}
    assert readers.find(A).position == 0
    assert readers.find(A).task is not None


async def test_a_pause_of_everything_ends_a_wait(readers: AssignedReaders) -> None:
    waiting = asyncio.ensure_future(readers.wait_for_progress())
    await asyncio.sleep(0)
    readers.pause()
    await waiting
    assert readers.paused == ["orders"]


async def test_a_message_put_back_is_the_next_of_its_queue(readers: AssignedReaders) -> None:
    await begin(readers)
    message = readers.take_message()
    readers.put_back(message)
    assert readers.find(message.queue).position == 0


async def test_a_message_of_a_queue_that_was_released_is_not_put_back(
    readers: AssignedReaders,
) -> None:
    await begin(readers)
    message = readers.take_message()
    await readers.release([message.queue])
    readers.put_back(message)
    assert len(readers.ready) == 1


async def test_a_message_behind_the_place_sought_is_not_put_back(
    readers: AssignedReaders,
) -> None:
    await begin(readers)
    take(readers, 6)
    message = readers.take_message()
    await readers.seek(readers.find(message.queue), 1)
    readers.put_back(message)
    assert readers.find(message.queue).position == 1


async def test_a_refusal_is_raised_once(topic: Topic, readers: AssignedReaders) -> None:
    topic.forbidden.add(A)
    await begin(readers, 1)
    await until(lambda: readers.find(A).failure is not None)
    with pytest.raises(RequestRefusedError, match="no permission"):
        readers.raise_failure()
    readers.raise_failure()
