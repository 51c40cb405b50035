"""Batches: when they are full, when the time is up, and in order."""

import asyncio
from typing import Any

import pytest

from rockhopper.client import ClientError
from rockhopper.client.consuming.face.batches import check_batches, collect
from tests.unit.client.consuming.test_handout import Backs, handout, queue_of

LONG_S = 3600.0


def offsets(batch: Any) -> list[tuple[int, int]]:
    return [(message.queue_id, message.queue_offset) for _, run in batch for message in run]


async def test_a_full_batch_does_not_wait() -> None:
    line = handout()
    for held in (queue_of(3, 0), queue_of(3, 1)):
        line.offer(held)
    assert offsets(await collect(line, 4, LONG_S)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert offsets(await collect(line, 4, 0.0)) == [(0, 2), (1, 2)]


async def test_each_queue_has_its_share_of_a_batch() -> None:
    line = handout()
    for held in (queue_of(9, 0), queue_of(1, 1), queue_of(9, 2)):
        line.offer(held)
    batch = offsets(await collect(line, 9, LONG_S))
    assert [sum(queue == number for number, _ in batch) for queue in range(3)] == [5, 1, 3]


async def test_after_stop_there_is_what_was_collected_then_nothing() -> None:
    line = handout()
    line.offer(queue_of(2))
    collecting = asyncio.create_task(collect(line, 9, LONG_S))
    await asyncio.sleep(0)
    line.stop()
    assert len(offsets(await collecting)) == 2
    assert await collect(line, 9, LONG_S) == []


async def test_a_cancelled_batch_is_put_back_in_its_place() -> None:
    line = handout()
    held = queue_of(3)
    line.offer(held)
    collecting = asyncio.create_task(collect(line, 9, LONG_S))
    await asyncio.sleep(0)
    assert held.in_flight == 3
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await collecting
    assert offsets(await collect(line, 9, 0.0)) == [(0, 0), (0, 1), (0, 2)]


async def test_an_error_waits_for_the_batch_before_it() -> None:
    line = handout()
    line.offer(queue_of(1))
    collecting = asyncio.create_task(collect(line, 9, LONG_S))
    await asyncio.sleep(0)
    line.fail(ClientError("no permission"))
    assert len(await collecting) == 1
    with pytest.raises(ClientError, match="no permission"):
        await collect(line, 9, LONG_S)


async def test_in_order_a_batch_holds_runs_and_nothing_else_is_handed_out_beside_it() -> None:
    line = handout(orderly=True)
    held = queue_of(5)
    line.offer(held)
    batch = await collect(line, 3, LONG_S)
    assert offsets(batch) == [(0, 0), (0, 1), (0, 2)]
    assert line.next_message() is None
    for each in batch:
        line.acknowledge_run(*each)
    assert offsets(await collect(line, 3, 0.0)) == [(0, 3), (0, 4)]


async def test_in_order_a_batch_takes_what_comes_while_it_waits() -> None:
    line = handout(orderly=True)
    held, later = queue_of(1), queue_of(3)
    line.offer(held)
    collecting = asyncio.create_task(collect(line, 3, LONG_S))
    await asyncio.sleep(0)
    held.append_messages(list(later.waiting)[1:], 3)
    line.offer(held)
    assert offsets(await collecting) == [(0, 0), (0, 1), (0, 2)]


async def test_in_order_a_failed_batch_comes_again_as_one_attempt_of_each_queue() -> None:
    backs = Backs()
    line = handout(backs, orderly=True, max_reconsume_times=1)
    one, two = queue_of(2, 0), queue_of(1, 1)
    for held in (one, two):
        line.offer(held)
    for times in range(2):
        batch = await collect(line, 3, LONG_S)
        assert sorted(offsets(batch)) == [(0, 0), (0, 1), (1, 0)]
        assert {each.reconsume_times for _, run in batch for each in run} == {times}
        await asyncio.gather(*line.redeliver_all(batch))
    assert (one.position, two.position) == (2, 1)
    assert sorted(offset for offset, _ in backs.sent) == [0, 0, 1]


@pytest.mark.parametrize(("count_max", "wait_s"), [(0, 1.0), (1, -1.0), (1, float("nan"))])
def test_batches_that_cannot_be_are_refused(count_max: int, wait_s: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        check_batches(count_max, wait_s)
