"""Several Consumers in one group: shares, members that come, go and die, order through all that."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.app import TEMPORARY_SETTINGS
from rockhopper.broker.settings.config_file import build_config
from rockhopper.client import Admin, Consumer, Message, Producer, RetryLater
from rockhopper.client.received import ReceivedMessage
from tests.support.billing import AT_ONCE, NEXT_ROUND_S
from tests.support.hang import HANG_S
from tests.support.turns import until

Scenario = Callable[[Broker, Producer, str, float], Awaitable[Counter[object]]]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(AT_ONCE) as broker:
        yield broker


@pytest.fixture
async def producer(broker: Broker) -> AsyncIterator[Producer]:
    async with Producer(broker.nameserver, timeout_s=HANG_S) as producer:
        yield producer


class Group:
    """Members of one group that write down what they consume."""

    def __init__(self, broker: Broker, topic: str, **options: object) -> None:
        self.seen: list[ReceivedMessage] = []
        self.arrived = asyncio.Condition()
        self._nameserver = broker.nameserver
        self._topic = topic
        self._options = options

    async def join(self) -> Consumer:
        consumer = Consumer(
            "billing",
            self._topic,
            nameserver=self._nameserver,
            handler=self._take,
            **self._options,  # type: ignore[arg-type]
        )
        return await consumer.start()

    async def _take(self, message: ReceivedMessage) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        async with self.arrived:
            self.seen.append(message)
            self.arrived.notify_all()

    async def wait_for(self, count: int) -> None:
        """Wait until so many different messages have been consumed."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.counts()) >= count)

    def counts(self) -> Counter[bytes]:
        return Counter(message.body for message in self.seen)

    def in_order_of_queues(self) -> dict[int, list[int]]:
        bodies: dict[int, list[int]] = defaultdict(list)
        for message in self.seen:
            bodies[message.queue_id].append(int(message.body))
        return bodies


async def die(consumer: Consumer) -> None:
    """End a member as a killed process ends: no goodbye, no last commit."""
    engine = consumer.engine
    engine.handout.stop()
    await engine.rebalancer.stop()
    engine.assignment.stop_fetching()
    assert engine.committing is not None
    engine.committing.cancel()
    for connection in engine.session.pool.connections:
        connection.abort()
    engine.assignment.held.clear()
    await consumer.close()


def shares(members: list[Consumer]) -> list[int]:
    topics = [[queue.topic for queue in member.assigned] for member in members]
    return [sum(not topic.startswith("%RETRY%") for topic in each) for each in topics]


async def test_members_share_the_queues_at_once_when_one_joins_or_leaves(broker: Broker) -> None:
    async with Admin(broker.nameserver) as admin:
        await admin.create_topic("orders", queues=8)
    group = Group(broker, "orders")
    members = [await group.join()]
    assert shares(members) == [8]
    for expected in ([4, 4], [3, 3, 2]):
        async with asyncio.timeout(NEXT_ROUND_S):
            members.append(await group.join())
            await until(lambda expected=expected: sorted(shares(members), reverse=True) == expected)  # type: ignore[misc]
    queues = [queue for member in members for queue in member.assigned]
    assert len(queues) == len(set(queues)) == 9
    async with asyncio.timeout(NEXT_ROUND_S):
        await members.pop(0).close()
        await until(lambda: shares(members) == [4, 4])
    for member in members:
        await member.close()


async def test_every_message_is_consumed_once_while_nobody_comes_or_goes(
    broker: Broker, producer: Producer
) -> None:
    async with Admin(broker.nameserver) as admin:
        await admin.create_topic("orders", queues=8)
    group = Group(broker, "orders")
    members = [await group.join() for _ in range(3)]
    await until(lambda: sorted(shares(members)) == [2, 3, 3])
    await producer.send_batch([Message("orders", b"%d" % n) for n in range(100)], queue=3)
    await asyncio.gather(*(producer.send("orders", b"%d" % n) for n in range(100, 2000)))
    await group.wait_for(2000)
    for member in members:
        await member.close()
    assert set(group.counts().values()) == {1}
    assert len(group.counts()) == 2000


async def finish_slowly(
    broker: Broker, producer: Producer, topic: str, hand_over_s: float
) -> Counter[object]:
    """Let handlers take half of the time that they have when a second member comes."""
    seen: Counter[object] = Counter()
    release = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        seen[message.queue_id, message.body] += 1
        if message.body == b"slow":
            await release.wait()

    def member() -> Consumer:
        nameserver = broker.nameserver
        return Consumer(
            "billing", topic, nameserver=nameserver, handler=handle, hand_over_s=hand_over_s
        )

    loop = asyncio.get_running_loop()
    async with member() as first, asyncio.timeout(HANG_S):
        for queue in range(2):
            await producer.send(topic, b"slow", queue=queue)
        await until(lambda: len(seen) == 2)
        async with member() as second:
            await until(lambda: shares([first, second]) == [1, 1])
            joined = loop.time()
            await until(lambda: loop.time() - joined > 0.3 * hand_over_s)
            release.set()
            for queue in range(2):
                await producer.send(topic, b"next", queue=queue)
            await until(lambda: len(seen) == 4)
    return seen


async def join_and_leave(
    broker: Broker, producer: Producer, topic: str, hand_over_s: float
) -> Counter[object]:
    """Let members come and go while messages do."""
    group = Group(broker, topic, concurrency=4, hand_over_s=hand_over_s)
    members = [await group.join()]
    sent = 0
    for joins in (True, True, False, True, False):
        sending = asyncio.gather(
            *(producer.send(topic, b"%d" % n) for n in range(sent, sent + 200))
        )
        sent += 200
        if joins:
            members.append(await group.join())
        else:
            await members.pop(0).close()
        await sending
    await group.wait_for(sent)
    for member in members:
        await member.close()
    return Counter(group.counts().elements())


# Longer than usual in the first case: that all members go by it shows only then.
@pytest.mark.parametrize(
    ("scenario", "queues", "usual_s"), [(finish_slowly, 2, 2.0), (join_and_leave, 8, 0.5)]
)
async def test_nothing_comes_twice_where_handlers_end_within_the_hand_over(
    broker: Broker, producer: Producer, scenario: Scenario, queues: int, usual_s: float
) -> None:
    """On a busy machine half a second may be too short for a handler, a minute is not."""
    for topic, hand_over_s in (("quiet", usual_s), ("busy", 5 * usual_s), ("overloaded", 60.0)):
        async with Admin(broker.nameserver) as admin:
            await admin.create_topic(topic, queues=queues)
        counts = await scenario(broker, producer, topic, hand_over_s)
        if set(counts.values()) == {1}:
            return
    pytest.fail(f"came more than once: {[body for body, times in counts.items() if times > 1]}")


async def test_failing_messages_climb_the_whole_ladder_once(
    broker: Broker, producer: Producer
) -> None:
    times: Counter[bytes] = Counter()

    async def fail(message: ReceivedMessage) -> None:
        times[message.body] += 1
        raise RetryLater

    await asyncio.gather(*(producer.send("orders", b"%d" % n) for n in range(100)))
    options = {"nameserver": broker.nameserver, "handler": fail}
    first = Consumer("billing", "orders", **options)  # type: ignore[arg-type]
    second = Consumer("billing", "orders", **options)  # type: ignore[arg-type]
    async with first, second:
        await until(lambda: broker.store.reading.queue_range("%DLQ%billing", 0)[1] == 100)
    assert len(times) == 100
    assert set(times.values()) == {17}
    assert broker.store.reading.queue_range("%DLQ%billing", 0)[1] == 100


async def test_members_that_join_leave_and_die_lose_nothing(
    broker: Broker, producer: Producer
) -> None:
    async with Admin(broker.nameserver) as admin:
        await admin.create_topic("orders", queues=8)
    group = Group(broker, "orders")
    members = [await group.join(), await group.join()]
    sent = 0
    deaths = 0
    for turn in range(6):
        for _ in range(5):
            await asyncio.gather(
                *(producer.send("orders", b"%d" % n) for n in range(sent, sent + 40))
            )
            sent += 40
        if turn % 3 == 0:
            members.append(await group.join())
        elif turn % 3 == 1:
            await members.pop(0).close()
        else:
            deaths += 1
            await die(members.pop(0))
            members.append(await group.join())
    await group.wait_for(sent)
    for member in members:
        await member.close()
    counts = group.counts()
    assert len(counts) == sent
    # Only what a dead member had consumed and not committed comes twice.
    assert sum(counts.values()) - sent <= deaths * 200


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_restart_of_the_broker_moves_no_queue_and_repeats_nothing(
    tmp_path: Path, orderly: bool
) -> None:
    def broker_on(ports: dict[str, str]) -> Broker:
        settings = TEMPORARY_SETTINGS | {"storePathRootDir": str(tmp_path)} | ports
        return Broker(build_config(settings))

    async def send(nameserver: str, numbers: range) -> None:
        async with Producer(nameserver, timeout_s=HANG_S) as producer:
            await asyncio.gather(*(producer.send("orders", b"%d" % n) for n in numbers))

    async with broker_on({}) as broker:
        ports = {
            "listenPort": str(broker.servers.remoting.port),
            "namesrvPort": broker.nameserver.rpartition(":")[2],
        }
        async with Admin(broker.nameserver) as admin:
            await admin.create_topic("orders", queues=6)
        group = Group(broker, "orders", orderly=orderly)
        members = [await group.join() for _ in range(3)]
        await until(lambda: shares(members) == [2, 2, 2])
        before = [member.assigned for member in members]
        await send(broker.nameserver, range(300))
        await group.wait_for(300)
    async with broker_on(ports) as broker:
        await send(broker.nameserver, range(300, 600))
        await group.wait_for(600)
        await until(lambda: len(broker.kernel.consumers.get("billing").client_ids()) == 3)  # type: ignore[union-attr]
        assert [member.assigned for member in members] == before
        for member in members:
            await member.close()
    assert set(group.counts().values()) == {1}


async def test_a_broker_that_leaves_the_route_and_comes_back_is_read_where_it_was_left(
    tmp_path: Path,
) -> None:
    async with Broker.temporary({"brokerName": "broker-a"}) as first:
        settings = {
            "storePathRootDir": str(tmp_path),
            "brokerName": "broker-b",
            "role": "broker",
            "namesrvAddr": first.nameserver,
        }
        second = Broker(build_config(TEMPORARY_SETTINGS | settings))
        async with second, Admin(first.nameserver) as admin:
            await second.announce()
            port = str(second.servers.remoting.port)
            await admin.create_topic("orders", queues=2)
            group = Group(first, "orders")
            members = [await group.join(), await group.join()]
            await until(lambda: shares(members) == [2, 2])
            async with Producer(first.nameserver, timeout_s=HANG_S) as producer:
                queues = await producer.queues("orders")
                for number in range(40):
                    await producer.send("orders", b"%d" % number, queue=queues[number % 4])
            await group.wait_for(40)
        for member in members:
            await member.engine.session.keep_up_once()
        await until(lambda: shares(members) == [1, 1])
        again = Broker(build_config(TEMPORARY_SETTINGS | settings | {"listenPort": port}))
        async with again:
            back_at = asyncio.get_running_loop().time()
            await again.announce()
            async with Producer(first.nameserver, timeout_s=HANG_S) as producer:
                for number in range(40, 80):
                    await producer.send("orders", b"%d" % number, queue=queues[number % 4])
            await group.wait_for(80)
            # A second and a half on a machine that does nothing else.
            assert asyncio.get_running_loop().time() - back_at < NEXT_ROUND_S
            for member in members:
                await member.close()
    assert set(group.counts().values()) == {1}


async def test_queues_are_consumed_in_order_through_rebalances(
    broker: Broker, producer: Producer
) -> None:
    async with Admin(broker.nameserver) as admin:
        await admin.create_topic("orders", queues=6)
    group = Group(broker, "orders", orderly=True)
    members = [await group.join()]
    queues = await producer.queues("orders")
    numbers = iter(range(10_000_000))

    async def send(count: int) -> None:
        for _ in range(count):
            for queue in queues:
                await producer.send("orders", b"%d" % next(numbers), queue=queue)

    total = 0
    for change in ("join", "join", "leave", "join", "leave"):
        sending = asyncio.create_task(send(20))
        if change == "join":
            members.append(await group.join())
        else:
            await members.pop(0).close()
        await sending
        total += 120
    await group.wait_for(total)
    for member in members:
        await member.close()
    assert set(group.counts().values()) == {1}
    for bodies in group.in_order_of_queues().values():
        assert bodies == sorted(bodies)
