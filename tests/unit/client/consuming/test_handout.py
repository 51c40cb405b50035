"""Handout: who gets the next message, and what becomes of it."""

import asyncio
from dataclasses import replace
from unittest import mock

import pytest

from rockhopper.client import ClientError
from rockhopper.client.consuming.handout import Handout
from rockhopper.client.consuming.process_queue import ProcessQueue, Room
from rockhopper.client.consuming.redelivery import BY_THE_LADDER, DEAD_LETTER, Delay
from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.subscription import Subscription

SETTINGS = ConsumerSettings(
    "billing", {"orders": Subscription("orders")}, suspend_s=0.0, local_retry_s=0.0
)


class Backs:
    """In place of Redelivery: writes down what is sent back."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Delay]] = []
        self.works = True

    async def send_back(self, message: ReceivedMessage, delay: Delay = BY_THE_LADDER) -> bool:
        self.sent.append((message.queue_offset, delay))
        return self.works


def handout(backs: Backs | None = None, **changes: object) -> Handout:
    settings = replace(SETTINGS, **changes)  # type: ignore[arg-type]
    return Handout(settings, backs or Backs())  # type: ignore[arg-type]


def queue_of(count: int, queue_id: int = 0) -> ProcessQueue:
    queue = MessageQueue("orders", "a", queue_id)
    held = ProcessQueue(queue, 0, room=Room(1000, 1 << 20))
    stored = [StoredMessage("orders", queue_id, n, n * 100, b"x") for n in range(count)]
    held.append_messages([ReceivedMessage(queue, each) for each in stored], count)
    return held


async def test_queues_take_turns() -> None:
    line = handout()
    for held in (queue_of(3, 0), queue_of(2, 1)):
        line.offer(held)
        line.offer(held)
    order = []
    while (delivered := line.next_message()) is not None:
        order.append((delivered[1].queue_id, delivered[1].queue_offset))
    assert order == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]


async def test_whoever_waits_gets_what_comes_each_one_message() -> None:
    line = handout()
    waiting = [asyncio.create_task(line.next()) for _ in range(3)]
    await asyncio.sleep(0)
    line.offer(queue_of(3))
    delivered = await asyncio.gather(*waiting)
    assert sorted(each[1].queue_offset for each in delivered if each) == [0, 1, 2]


async def test_a_cancelled_wait_passes_its_turn_on() -> None:
    line = handout()
    first, second = asyncio.create_task(line.next()), asyncio.create_task(line.next())
    await asyncio.sleep(0)
    line.offer(queue_of(1))
    first.cancel()
    delivered = await second
    assert delivered is not None
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_cancelled_wait_leaves_the_others_in_their_order() -> None:
    line = handout()
    gone, *waiting = [asyncio.create_task(line.next()) for _ in range(3)]
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    await asyncio.sleep(0)
    line.offer(queue_of(1, 0))
    line.offer(queue_of(1, 1))
    delivered = await asyncio.gather(*waiting)
    assert [each[1].queue_id for each in delivered if each] == [0, 1]


async def test_stop_ends_every_wait_and_hands_out_nothing_more() -> None:
    line = handout()
    waiting = [asyncio.create_task(line.next()) for _ in range(2)]
    await asyncio.sleep(0)
    line.stop()
    assert await asyncio.gather(*waiting) == [None, None]
    line.offer(queue_of(1))
    assert line.next_message() is None


async def test_an_error_is_raised_once() -> None:
    line = handout()
    waiting = asyncio.create_task(line.next())
    await asyncio.sleep(0)
    line.fail(ClientError("refused"))
    with pytest.raises(ClientError, match="refused"):
        await waiting
    line.offer(queue_of(1))
    assert await line.next() is not None


async def test_a_message_that_was_sent_back_is_finished() -> None:
    backs = Backs()
    line = handout(backs)
    held = queue_of(2)
    line.offer(held)
    delivered = line.next_message()
    assert delivered is not None
    await line.redeliver(*delivered, Delay(5))
    assert backs.sent == [(0, Delay(5))]
    assert held.position == 1


async def test_a_message_that_could_not_be_sent_back_is_handed_out_again_here() -> None:
    backs = Backs()
    backs.works = False
    line = handout(backs)
    held = queue_of(1)
    line.offer(held)
    delivered = line.next_message()
    assert delivered is not None
    await line.redeliver(*delivered)
    assert held.position == 0
    again = await line.next()
    assert again is not None
    assert again[1].reconsume_times == 1
    line.acknowledge(*again)
    assert held.position == 1


async def test_a_message_that_fails_after_its_queue_was_handed_over_is_not_sent_back() -> None:
    backs = Backs()
    line = handout(backs)
    held = queue_of(1)
    line.offer(held)
    delivered = line.next_message()
    assert delivered is not None
    held.is_dropped = held.is_lost = True
    await line.redeliver(*delivered)
    assert backs.sent == []
    assert held.position == 0


async def test_a_message_that_fails_while_its_queue_is_handed_over_is_sent_back() -> None:
    backs = Backs()
    line = handout(backs)
    held = queue_of(1)
    line.offer(held)
    delivered = line.next_message()
    assert delivered is not None
    held.is_dropped = True
    await line.redeliver(*delivered)
    assert backs.sent == [(0, BY_THE_LADDER)]
    assert held.position == 1


async def test_in_broadcast_a_failed_message_is_given_up() -> None:
    backs = Backs()
    line = handout(backs, broadcast=True)
    held = queue_of(1)
    line.offer(held)
    delivered = line.next_message()
    assert delivered is not None
    await line.redeliver(*delivered)
    assert (backs.sent, held.position) == ([], 1)


async def test_in_broadcast_and_in_order_a_message_is_tried_again_and_then_given_up() -> None:
    backs = Backs()
    line = handout(backs, broadcast=True, orderly=True, suspend_s=0.0, max_reconsume_times=1)
    held = queue_of(1)
    line.offer(held)
    for _ in range(2):
        assert held.position == 0
        delivered = await line.next()
        assert delivered is not None
        await line.redeliver(*delivered)
    assert (backs.sent, held.position) == ([], 1)


async def test_in_order_a_queue_hands_out_one_message_at_a_time() -> None:
    line = handout(orderly=True)
    one, two = queue_of(2, 0), queue_of(2, 1)
    line.offer(one)
    line.offer(two)
    first, second = line.next_message(), line.next_message()
    assert first is not None
    assert second is not None
    assert line.next_message() is None
    line.acknowledge(*second)
    third = line.next_message()
    assert third is not None
    assert (third[1].queue_id, third[1].queue_offset) == (1, 1)


async def test_in_order_a_failed_message_comes_again_before_the_next() -> None:
    backs = Backs()
    line = handout(backs, orderly=True, max_reconsume_times=1)
    line.offer(queue_of(2))
    seen = []
    for _ in range(3):
        delivered = await line.next()
        assert delivered is not None
        seen.append((delivered[1].queue_offset, delivered[1].reconsume_times))
        if delivered[1].queue_offset == 0:
            await line.redeliver(*delivered)
    assert seen == [(0, 0), (0, 1), (1, 0)]
    assert backs.sent == [(0, DEAD_LETTER)]


async def test_in_order_nothing_is_handed_out_of_a_queue_that_may_be_another_s() -> None:
    may = False
    line = Handout(
        replace(SETTINGS, orderly=True),
        Backs(),  # type: ignore[arg-type]
        may_hand_out=lambda _held: may,
    )
    held = queue_of(1)
    line.offer(held)
    assert line.next_message() is None
    may = True
    line.offer(held)
    assert line.next_message() is not None


async def test_idle_queues_are_told_of() -> None:
    idle: list[ProcessQueue] = []
    line = Handout(SETTINGS, Backs(), on_idle=idle.append)  # type: ignore[arg-type]
    held = queue_of(2)
    line.offer(held)
    first, second = line.next_message(), line.next_message()
    assert first is not None
    assert second is not None
    line.acknowledge(*first)
    assert idle == []
    line.acknowledge(*second)
    assert idle == [held]


async def test_a_run_is_acknowledged_as_its_messages_one_by_one() -> None:
    idle: list[ProcessQueue] = []
    line = Handout(SETTINGS, Backs(), on_idle=idle.append)  # type: ignore[arg-type]
    held = queue_of(3)
    line.offer(held)
    first, second = line.next_run(2), line.next_run(2)
    assert first is not None
    assert second is not None
    assert [[each.queue_offset for each in run] for _, run in (first, second)] == [[0, 1], [2]]
    assert line.next_run(1) is None
    line.acknowledge_run(*second)
    assert (line.finished, held.position, idle) == (1, 0, [])
    line.acknowledge_run(*first)
    assert (line.finished, held.position, idle) == (3, 3, [held])


async def test_each_message_of_a_run_is_traced() -> None:
    line = handout()
    line.trace = trace = mock.Mock()
    line.offer(queue_of(2))
    run = line.next_run(9)
    assert run is not None
    assert [call.args[1] for call in trace.consuming.mock_calls] == [[each] for each in run[1]]
    line.acknowledge_run(*run)
    assert trace.consuming.return_value.done.call_count == 2


async def test_a_run_of_a_mixed_queue_has_what_is_not_paused() -> None:
    line = handout()
    retry = queue_of(2)
    retry.queue = MessageQueue("%RETRY%billing", "a", 0)
    retry.waiting[0].stored.topic = "returns"
    line.pauses.pause("returns")
    line.offer(retry)
    run = line.next_run(9)
    assert run is not None
    assert [each.queue_offset for each in run[1]] == [1]
    assert run[0].is_collected
    assert line.next_run(9) is None


async def test_in_order_only_what_collects_takes_more_of_a_queue() -> None:
    line = handout(orderly=True)
    held = queue_of(3)
    line.offer(held)
    assert line.next_run(1) is not None
    assert line.next_message() is None
    line.offer(held)
    run = line.next_run(9)
    assert run is not None
    assert [each.queue_offset for each in run[1]] == [1, 2]


async def test_an_error_is_raised_to_a_batch_once() -> None:
    line = handout()
    line.fail(ClientError("refused"))
    with pytest.raises(ClientError, match="refused"):
        await line.wait_run(1)
    line.offer(queue_of(1))
    assert await line.wait_run(1) is not None
    line.stop()
    assert await line.wait_run(1) is None
