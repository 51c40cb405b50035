"""The blocking face that the pipeline has towards brokers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Message, Producer
from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.pulls import BulkRead, QueuePull
from rockhopper.pipeline.remote import Remote, result
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.features import needs

MESSAGES = 3000


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary() as broker:
        async with Producer(nameserver=broker.nameserver) as producer:
            for start in range(0, MESSAGES, 500):
                await producer.send_batch(
                    [Message("T", b"%d" % n, tags=f"t{n % 10}") for n in range(start, start + 500)]
                )
        yield broker


@pytest.fixture
async def remote(broker: Broker) -> Remote:
    return await asyncio.to_thread(Remote, broker.nameserver)


async def test_a_remote_that_outlives_its_brokers_is_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Broker.temporary() as broker, Producer(nameserver=broker.nameserver) as producer:
        await producer.send("T", b"x")
        remote = await asyncio.to_thread(Remote, broker.nameserver)
        sender = await asyncio.to_thread(remote.sender, "g")
        assert await asyncio.to_thread(remote.queues, "T")
        await asyncio.to_thread(remote.run, sender.session.routes.route("T"))
    caplog.clear()
    for session in (remote.admin.session, sender.session):
        await asyncio.to_thread(remote.run, session.keep_up_once())
    assert [
        record.name for record in caplog.records if record.name.startswith("rockhopper.client")
    ] == []
    with pytest.raises(PipelineError):
        await asyncio.to_thread(remote.topics)


def offsets(read: BulkRead) -> list[int]:
    return [message.queue_offset for message in decode_messages(read.body)]


async def test_queues_and_what_they_hold(remote: Remote) -> None:
    queues = await asyncio.to_thread(remote.queues, "T")
    ranges = await asyncio.to_thread(remote.ranges, queues)
    assert sum(high - low for low, high in ranges.values()) == MESSAGES
    assert await asyncio.to_thread(remote.queues, "unknown") == []
    assert "T" in await asyncio.to_thread(remote.topics)


async def test_ends_of_queues_are_told_one_by_one_where_a_broker_cannot_tell_many(
    remote: Remote,
) -> None:
    queues = await asyncio.to_thread(remote.queues, "T")
    ranges = await asyncio.to_thread(remote.ranges, queues)
    remote.without_many.add(await remote_address(remote, queues[0]))
    assert await asyncio.to_thread(remote.ranges, queues) == ranges


@pytest.mark.parametrize("knows_many", [pytest.param(True, marks=needs("bulk_pull")), False])
async def test_many_queues_are_read_at_once(remote: Remote, knows_many: bool) -> None:
    queues = await asyncio.to_thread(remote.queues, "T")
    ranges = await asyncio.to_thread(remote.ranges, queues)
    if not knows_many:
        remote.without_many.add(await remote_address(remote, queues[0]))
    wanted = [
        QueuePull(queue, 3, min(ranges[queue][1], 9)) for queue in queues if ranges[queue][1] > 3
    ]
    found = await asyncio.to_thread(lambda: result(remote.begin_reads(wanted)))
    assert len(found) == (len(wanted) if knows_many else 1)
    for pull, read in zip(wanted, found, strict=False):
        assert offsets(read) == list(range(3, pull.end))
        assert (read.next_offset, read.has_moved) == (pull.end, False)


async def full_queue(remote: Remote) -> tuple[MessageQueue, int]:
    queues = await asyncio.to_thread(remote.queues, "T")
    ranges = await asyncio.to_thread(remote.ranges, queues)
    queue = max(ranges, key=lambda each: ranges[each][1])
    return queue, ranges[queue][1]


async def test_offsets_of_a_group_come_back(remote: Remote) -> None:
    queue, _ = await full_queue(remote)
    assert await asyncio.to_thread(remote.committed, "spark", [queue]) == {queue: None}
    await asyncio.to_thread(remote.commit, "spark", {queue: 7})
    assert await asyncio.to_thread(remote.committed, "spark", [queue]) == {queue: 7}
    assert await asyncio.to_thread(remote.offsets_at, [queue], 0) == {queue: 0}


@pytest.mark.parametrize("knows_bulk", [True, False])
async def test_a_range_is_read_exactly(remote: Remote, knows_bulk: bool) -> None:
    queue, high = await full_queue(remote)
    if not knows_bulk:
        remote.without_bulk.add(await remote_address(remote, queue))
    end = high - 3
    found: list[int] = []
    offset = 5
    while offset < end:
        read = await asyncio.to_thread(remote.read, QueuePull(queue, offset, end, bytes_max=20_000))
        found += offsets(read)
        offset = read.next_offset
    assert found == list(range(5, end))


async def remote_address(remote: Remote, queue: MessageQueue) -> str:
    return await asyncio.to_thread(remote.run, remote.admin.offsets.address(queue))


@pytest.mark.parametrize("knows_bulk", [True, False])
async def test_a_filtered_read_goes_on_behind_what_it_let_fall(
    remote: Remote, knows_bulk: bool
) -> None:
    queue, high = await full_queue(remote)
    if not knows_bulk:
        remote.without_bulk.add(await remote_address(remote, queue))
    found: list[str | None] = []
    offset = 0
    while offset < high:
        read = await asyncio.to_thread(remote.read, QueuePull(queue, offset, high, expression="t3"))
        found += [message.tags for message in decode_messages(read.body)]
        assert read.next_offset > offset
        offset = read.next_offset
    assert found == ["t3"] * (high // 10)


@pytest.mark.parametrize("knows_bulk", [True, False])
async def test_an_offset_outside_the_queue_says_where_it_goes_on(
    remote: Remote, knows_bulk: bool
) -> None:
    queue, high = await full_queue(remote)
    if not knows_bulk:
        remote.without_bulk.add(await remote_address(remote, queue))
    read = await asyncio.to_thread(remote.read, QueuePull(queue, high + 50, high + 60))
    assert (read.has_moved, read.next_offset, read.body) == (True, high, b"")


async def test_a_name_service_that_is_not_there_is_one_sentence() -> None:
    remote = await asyncio.to_thread(Remote, "127.0.0.1:1", timeout_s=1.0)
    with pytest.raises(PipelineError, match=r"127\.0\.0\.1:1"):
        await asyncio.to_thread(remote.topics)
