"""Our Consumer and Apache's Java client in one group: the split agrees, each message comes once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rockhopper.client import Admin, Consumer, Producer
from rockhopper.client.received import ReceivedMessage
from tests.interop import node
from tests.interop.apache import ApacheServer
from tests.interop.conftest import Server
from tests.interop.java_client import JavaClient
from tests.support.hang import HANG_S

pytestmark = pytest.mark.interop

# Starts a foreign member; what it returns holds what that member has consumed.
Start = Callable[[dict[str, object]], Awaitable[dict[str, Any]]]

QUEUES = 8
PER_QUEUE = 50


def _java_member(java: JavaClient, **more: object) -> Start:
    return lambda options: asyncio.wrap_future(java.begin("consume", **options, **more))


async def _eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_S):
        while not condition():  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0.05)


async def _until_committed(nameserver: str, topic: str, group: str) -> None:
    async def lag(admin: Admin) -> int:
        return sum(each.lag for each in await admin.groups.lag(group) if each.queue.topic == topic)

    async with Admin(nameserver) as admin, asyncio.timeout(HANG_S):
        while await lag(admin):  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0.05)


async def _share_a_topic(
    nameserver: str, topic: str, start: Start, leave: Callable[[str], object] | None = None
) -> None:
    """Consume one half of a topic while a foreign member consumes the other.

    With `leave` the foreign member stays until its offsets are committed, and is then told to go.
    """
    ours: list[ReceivedMessage] = []
    has_come = asyncio.Condition()

    async def take(message: ReceivedMessage) -> None:
        async with has_come:
            ours.append(message)
            has_come.notify_all()

    async with Admin(nameserver) as admin:
        await admin.create_topic(topic, queues=QUEUES)
    group = f"{topic}-group"
    options = {"nameserver": nameserver, "topic": topic, "group": group}
    consumer = Consumer(group, topic, nameserver=nameserver, handler=take)

    def shares() -> int:
        return sum(queue.topic == topic for queue in consumer.assigned)

    async with consumer, Producer(nameserver) as producer:
        assert shares() == QUEUES
        foreign_count = QUEUES // 2 * PER_QUEUE
        foreign = start({**options, "count": foreign_count, "timeoutMs": 300_000})
        await _eventually(lambda: shares() == QUEUES // 2)
        half = set(consumer.assigned)
        queues = await producer.queues(topic)
        for number in range(PER_QUEUE):
            for queue in queues:
                await producer.send(topic, b"%d" % number, queue=queue)
        theirs = await foreign
        if leave is not None:
            await _until_committed(nameserver, topic, group)
            await asyncio.to_thread(leave, group)
        # The other member has left, and all is ours again.
        await _eventually(lambda: shares() == QUEUES)
        for queue in queues:
            await producer.send(topic, b"last", queue=queue)
        async with has_come, asyncio.timeout(HANG_S):
            await has_come.wait_for(lambda: sum(m.body == b"last" for m in ours) == QUEUES)

    assert theirs["deliveries"] == foreign_count
    own = [m for m in ours if m.body != b"last" and m.queue in half]
    counts = Counter(message.queue_id for message in own)
    assert Counter(message.queue_offset for message in own) == dict.fromkeys(
        range(PER_QUEUE), QUEUES // 2
    )
    counts.update(message["queueId"] for message in theirs["messages"])
    assert counts == dict.fromkeys(range(QUEUES), PER_QUEUE)
    # ali-ons does not commit what it finishes while it closes.
    assert len(ours) - len(own) <= QUEUES + 1


async def test_the_queues_of_our_broker_are_shared(java: JavaClient, broker: Server) -> None:
    await _share_a_topic(broker.nameserver, "MixedOurs", _java_member(java))


async def test_the_queues_of_apache_s_broker_are_shared(
    java: JavaClient, apache_server: ApacheServer
) -> None:
    # Apache's broker may tell the group that a member has left before it has handled the offsets
    # that the member committed last, which need no answer.
    def leave(group: str) -> None:
        java.call("leave", group=group)

    member = _java_member(java, stays=True)
    await _share_a_topic(apache_server.nameserver, "MixedApache", member, leave)


async def test_the_queues_of_our_broker_are_shared_with_ali_ons(
    npm: None, broker: Server, tmp_path: Path
) -> None:
    def start(options: dict[str, object]) -> Awaitable[dict[str, Any]]:
        consuming = asyncio.to_thread(node.run, "consume.js", tmp_path, **options)
        return asyncio.ensure_future(consuming)

    await _share_a_topic(broker.nameserver, "MixedScript", start)


async def test_apache_s_broker_takes_failed_messages_back_and_keeps_queues_in_order(
    apache_server: ApacheServer,
) -> None:
    nameserver = apache_server.nameserver
    async with Admin(nameserver) as admin:
        await admin.create_topic("MixedRetry", queues=2)
    seen: list[tuple[bytes, int]] = []
    done = asyncio.Event()

    async def fail_once(message: ReceivedMessage) -> None:
        seen.append((message.body, message.reconsume_times))
        if len(seen) == 11:
            done.set()
        if message.body == b"3" and message.reconsume_times == 0:
            raise RuntimeError("once")

    async with Producer(nameserver) as producer:
        for number in range(10):
            await producer.send("MixedRetry", b"%d" % number)
        async with Consumer("retrying", "MixedRetry", nameserver=nameserver, handler=fail_once):
            async with asyncio.timeout(HANG_S):
                await done.wait()
    assert seen[-1] == (b"3", 1)

    in_order: dict[int, list[int]] = {0: [], 1: []}
    options = {"nameserver": nameserver, "orderly": True}
    async with Consumer("in-order", "MixedRetry", **options) as consumer:  # type: ignore[arg-type]
        async for message in consumer:
            in_order[message.queue_id].append(message.queue_offset)
            if sum(map(len, in_order.values())) == 10:
                break
    assert all(offsets == list(range(len(offsets))) for offsets in in_order.values())
