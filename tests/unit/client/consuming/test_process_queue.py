"""ProcessQueue: what waits, what is in flight, and what may be committed."""

import asyncio

import pytest

from rockhopper.client.consuming.process_queue import ProcessQueue, Room
from rockhopper.client.consuming.pulling import Space
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.message import StoredMessage

QUEUE = MessageQueue("orders", "a", 0)


def message(offset: int, size_bytes: int = 100) -> ReceivedMessage:
    stored = StoredMessage("orders", 0, offset, offset * 100, b"x", size_bytes=size_bytes)
    return ReceivedMessage(QUEUE, stored)


def holding(*offsets: int, start: int = 0, room: Room | None = None) -> ProcessQueue:
    held = ProcessQueue(QUEUE, start, room=room or Room(1000, 1 << 20), span_max=50)
    if offsets:
        held.append_messages([message(offset) for offset in offsets], offsets[-1] + 1)
    return held


async def test_nothing_to_do_stands_where_the_next_fetch_begins() -> None:
    held = holding(start=7)
    assert held.position == 7
    held.append_messages([], 12)
    assert held.position == 12


async def test_the_position_is_the_first_message_that_is_not_finished() -> None:
    held = holding(3, 4, 6, 7)
    taken = [held.next_message() for _ in range(4)]
    assert held.position == 3
    held.finish(taken[1])
    held.finish(taken[3])
    assert held.position == 3
    held.finish(taken[0])
    assert held.position == 6
    held.finish(taken[2])
    assert held.position == 8


async def test_waiting_messages_hold_the_position() -> None:
    held = holding(3, 4, 6)
    held.finish(held.next_message())
    assert held.position == 4


async def test_messages_put_back_wait_in_their_place_and_hold_the_position() -> None:
    held = holding(1, 2, 3, 9)
    one, two, three = held.next_message(), held.next_message(), held.next_message()
    held.put_back(one)
    held.put_back(three)
    assert [each.queue_offset for each in held.waiting] == [1, 3, 9]
    assert held.position == 1
    again = held.next_message()
    held.finish(two)
    assert held.position == 1
    last = held.next_message()
    held.next_message()
    held.finish(again)
    assert held.position == 3
    held.finish(last)
    assert held.position == 9


async def test_a_run_is_taken_and_finished_as_its_messages_one_by_one() -> None:
    held = holding(3, 4, 6, 7)
    run = held.next_messages(3)
    assert [each.queue_offset for each in run] == [3, 4, 6]
    assert (held.in_flight, held.position, held.room.count) == (3, 3, 4)
    waiting = held.drained()
    held.finish(run[1])
    assert held.finish_run([run[0], run[1]])
    assert (held.in_flight, held.position, held.room.count) == (1, 6, 2)
    assert (held.room.bytes, waiting.done()) == (200, False)
    assert held.finish_run(run)
    assert (held.in_flight, held.position, waiting.done()) == (0, 7, True)
    assert not held.finish_run(run)
    assert [each.queue_offset for each in held.next_messages(9)] == [7]


async def test_a_message_from_before_a_reset_does_not_finish_its_next_copy() -> None:
    held = holding(1, 2, 3)
    run = held.next_messages(2)
    held.reset(1)
    held.append_messages([message(1)], 2)
    again = held.next_message()
    assert not held.finish(run[0])
    assert not held.finish_run(run)
    assert (held.position, held.in_flight, held.room.count) == (1, 1, 1)
    assert held.finish(again)
    assert (held.position, held.room.count) == (2, 0)


async def test_what_was_dropped_is_fetched_again() -> None:
    held = holding(1, 2, 3)
    first = held.next_message()
    held.drop_waiting()
    assert (held.position, held.fetch_offset) == (1, 2)
    held.finish(first)
    assert held.position == 2


async def test_a_reset_forgets_what_is_in_flight() -> None:
    held = holding(1, 2, 3)
    first = held.next_message()
    held.reset(40)
    assert held.position == 40
    assert not held.finish(first)
    assert not held.put_back(first)
    assert (held.position, held.room.count, held.room.bytes) == (40, 0, 0)


async def test_a_queue_that_was_given_up_keeps_the_position_of_a_failed_message() -> None:
    held = holding(1, 2)
    first = held.next_message()
    held.drop_waiting()
    held.is_dropped = True
    held.put_back(first)
    assert held.position == 1
    assert held.room.count == 0


@pytest.mark.parametrize("room", [Room(3, 1 << 20), Room(1000, 250)])
async def test_room_is_counted_in_messages_and_bytes(room: Room) -> None:
    held = holding(0, 1, room=room)
    assert room.free.is_set()
    held.append_messages([message(2)], 3)
    assert not room.free.is_set()
    taken = held.next_message()
    assert not room.free.is_set()
    held.finish(taken)
    assert room.free.is_set()
    assert (room.count, room.bytes) == (2, 200)


async def test_an_old_unfinished_message_stops_the_fetching() -> None:
    held = holding(0)
    stuck = held.next_message()
    held.append_messages([message(49)], 50)
    assert not held.span_free.is_set()
    held.finish(stuck)
    assert held.span_free.is_set()


async def test_an_old_unfinished_run_stops_the_fetching() -> None:
    held = holding(0, 1)
    stuck = held.next_messages(2)
    held.append_messages([message(49)], 50)
    assert not held.span_free.is_set()
    held.finish_run(stuck)
    assert held.span_free.is_set()


async def test_drained_waits_for_what_is_in_flight() -> None:
    held = holding(0, 1)
    one, two = held.next_message(), held.next_message()
    waiting = held.drained()
    held.finish(two)
    assert not waiting.done()
    held.finish(one)
    assert waiting.done()
    assert held.drained().done()


@pytest.mark.parametrize(("count", "size_bytes"), [(1, 0), (0, 1)])
async def test_a_room_is_free_only_below_its_bounds(count: int, size_bytes: int) -> None:
    room = Room(10, 100)
    room.count_received(9 + 2 * count, 99 + 2 * size_bytes)
    assert not room.free.is_set()
    room.remove(count, size_bytes)
    assert not room.free.is_set()
    room.remove(count, size_bytes)
    assert room.free.is_set()


def test_space_is_what_is_left_here_and_in_all_queues() -> None:
    shared = Room(10, 1000)
    held = ProcessQueue(QUEUE, 0, room=Room(5, 5000, shared))
    assert held.room.space == Space(5, 1000)
    held.append_messages([message(0), message(1)], 2)
    assert held.room.space.messages == 3
    shared.count_received(6, 900)
    assert held.room.space == Space(2, 1000 - shared.bytes)


def test_each_step_of_a_queue_counts_in_the_room_of_all_queues() -> None:
    shared = Room(10, 1000)
    held = ProcessQueue(QUEUE, 0, room=Room(5, 5000, shared))
    other = ProcessQueue(QUEUE, 0, room=Room(5, 5000, shared))
    held.append_messages([message(n) for n in range(5)], 5)
    other.append_messages([message(0)], 1)
    assert (held.room.count, shared.count) == (5, 6)

    held.finish(held.next_message())
    assert (held.room.count, shared.count) == (4, 5)
    held.next_message()
    held.drop_waiting()
    assert (held.room.count, shared.count) == (1, 2)
    held.reset(0)
    other.reset(0)
    assert (held.room.count, shared.count, shared.bytes) == (0, 0, 0)


@pytest.mark.parametrize("reason", ["its room", "the room of all queues", "its span", "a pause"])
async def test_a_queue_is_fetched_again_once_nothing_prevents_it(reason: str) -> None:
    shared = Room(3 if reason == "the room of all queues" else 9, 1000)
    room = Room(3 if reason == "its room" else 9, 1000, shared)
    span_max = 3 if reason == "its span" else 9
    held = ProcessQueue(QUEUE, 0, room=room, span_max=span_max)
    assert held.is_fetchable
    held.append_messages([message(0), message(1), message(2)], 3)
    held.pause(reason == "a pause")
    assert not held.is_fetchable
    waiting = asyncio.ensure_future(held.wait_fetchable())
    await asyncio.sleep(0)
    assert not waiting.done()
    held.finish(held.next_message())
    held.pause(False)
    assert held.is_fetchable
    await waiting


@pytest.mark.parametrize("is_full", [True, False])
async def test_a_wait_for_room_waits_for_all_queues_as_well(is_full: bool) -> None:
    shared = Room(1, 1000)
    room = Room(5, 5000, shared)
    if is_full:
        shared.count_received(1, 10)
    waiting = asyncio.ensure_future(room.wait_free())
    await asyncio.sleep(0)
    assert waiting.done() is not is_full
    shared.remove(int(is_full), 10 * is_full)
    await waiting
