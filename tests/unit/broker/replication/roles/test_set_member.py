"""Brokers as replicas of a set: following, promotion, switches, and what operators may ask."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import structlog

from rockhopper.broker.app import Broker
from rockhopper.broker.replication.election.replica_disk import ReplicaDisk
from rockhopper.broker.replication.election.replica_set import SwapOutcome
from rockhopper.broker.replication.engines.engine import EngineError, MemoryEngine
from rockhopper.broker.replication.roles.set_member import SetMember, SwitchError
from rockhopper.broker.replication.roles.store_period import OpenAs, StorePeriod
from rockhopper.broker.replication.shipping import engine_health, set_presence
from rockhopper.broker.replication.shipping.replica import now_ms
from rockhopper.broker.replication.state.state_log import STATE_QUEUE_ID
from rockhopper.broker.server.remoting.handover import Handover, MasterFinder
from rockhopper.broker.store.files.errors import DeposedError, StoreError
from rockhopper.broker.store.put import MessageToStore
from rockhopper.client import Producer, PullConsumer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.errors import ClientError, RouteNotFoundError
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.names import STATE_TOPIC
from tests.support.direct import send_fields
from tests.support.hang import HANG_S
from tests.support.replica_set import SHORT_S, ReplicaSet
from tests.support.turns import until
from tests.support.wire import WireClient


@pytest.fixture
async def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ReplicaSet]:
    async with ReplicaSet(tmp_path, monkeypatch) as replicas:
        await replicas.start(1, 2, 3)
        await replicas.master(in_sync=3)
        yield replicas


async def read_all(nameserver: str, topic: str, count: int) -> list[bytes]:
    """Read so many messages; a name server hears of a new master a moment after it serves."""
    found: list[bytes] = []
    async with asyncio.timeout(HANG_S), AsyncExitStack() as undo:
        while True:
            with contextlib.suppress(RouteNotFoundError):
                consumer = await undo.enter_async_context(
                    PullConsumer(topic, nameserver=nameserver)
                )
                break
        while len(found) < count:
            found += [message.body for message in await consumer.pull()]
    return sorted(found)


def log_of(replicas: ReplicaSet, number: int, end: int) -> bytes:
    files = sorted((replicas.root_of(number) / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files)[:end]


async def test_all_replicas_hold_what_was_acknowledged(three: ReplicaSet) -> None:
    bodies = [b"%d" % number for number in range(50)]
    async with Producer(three.nameserver, group="p") as producer:
        for body in bodies:
            await producer.send("orders", body)
    await three.same_logs()
    end = three.brokers[1].store.log.written_offset
    assert log_of(three, 1, end) == log_of(three, 2, end) == log_of(three, 3, end)
    assert await read_all(three.nameserver, "orders", 50) == sorted(bodies)


async def test_a_stopped_master_hands_over_and_nothing_is_lost(three: ReplicaSet) -> None:
    async with Producer(three.nameserver, group="p") as producer:
        await producer.send("orders", b"before")
        first = await three.master()
        await three.stop(first)
        second = await three.master(but=first)
        await producer.send("orders", b"after")
        await three.start(first)
        await three.master(in_sync=3)
        assert await three.master() == second
    assert await read_all(three.nameserver, "orders", 2) == [b"after", b"before"]


async def test_a_master_that_stops_acknowledges_nothing_that_the_others_do_not_get(
    three: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await three.master(in_sync=3)
    asked = asyncio.Event()
    # Nobody takes over in time, as when the engine is away.
    monkeypatch.setattr(three.member(first).replica, "hand_over", lambda _target: asked.set())
    three.hand_over_within(SHORT_S)
    async with Admin(three.nameserver) as admin:
        await admin.create_topic("early")
        stopping = asyncio.create_task(three.stop(first))
        await asked.wait()
        with pytest.raises(ClientError):
            await admin.create_topic("late")
        await stopping
    second = await three.master(but=first)
    topics = three.brokers[second].tables.topics.configs
    assert "early" in topics
    assert "late" not in topics


async def test_a_set_that_is_stopped_at_once_ends_cleanly(three: ReplicaSet) -> None:
    await three.stop_all_at_once()
    assert not [each for each in (1, 2, 3) if (three.root_of(each) / "abort").exists()]


async def test_a_replica_is_withdrawn_once_its_store_is_closed(
    three: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores_in_use: list[bool] = []
    withdraw = MemoryEngine.withdraw

    async def withdrawing(engine: MemoryEngine) -> None:
        stores_in_use.append((three.root_of(follower) / "abort").exists())
        await withdraw(engine)

    monkeypatch.setattr(MemoryEngine, "withdraw", withdrawing)
    master = await three.master(in_sync=3)
    follower = next(each for each in three.brokers if each != master)
    await three.stop(follower)
    assert stores_in_use == [False]
    assert follower not in three.memory.members


async def test_a_replica_whose_store_is_not_closed_is_not_withdrawn(
    three: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = await three.master(in_sync=3)
    follower = next(each for each in three.brokers if each != master)

    close_period = StorePeriod.close

    async def closing(period: StorePeriod) -> None:
        await close_period(period)
        raise OSError("a table could not be saved")

    with monkeypatch.context() as patch:
        patch.setattr(StorePeriod, "close", closing)
        with pytest.raises(OSError, match="could not be saved"):
            await three.stop(follower)
    assert follower in three.memory.members


async def test_what_a_stopped_master_could_not_replicate_is_refused_and_kept_unconfirmed(
    three: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await three.master(in_sync=3)
    store, replica = three.brokers[first].store, three.member(first).replica
    await until(lambda: replica.machine.replica_state.replicated_offset == store.log.written_offset)
    confirmed = replica.machine.replica_state.replicated_offset
    # The others get nothing more, as if they had just stopped.
    monkeypatch.setattr(replica, "wrote", lambda: None)
    three.hand_over_within(SHORT_S)
    told: list[StoreError | None] = []
    end = store.put(MessageToStore("orders", 0, b"late", "")).end_offset
    store.safe_point.when(end, told.append)
    await three.stop(first)
    assert [type(each) for each in told] == [DeposedError]
    root = three.root_of(first)
    assert not (root / "abort").exists()
    assert ReplicaDisk(root / "rockhopper" / "ha").replicated_offset == confirmed < end


async def test_topics_groups_and_offsets_are_there_after_a_switch(three: ReplicaSet) -> None:
    async with Admin(three.nameserver) as admin:
        await admin.create_topic("made", queues=3)
    first = await three.master()
    async with Producer(three.nameserver, group="p") as producer:
        await producer.send("made", b"1", queue=0)
    three.brokers[first].tables.offsets.commit("made", "readers", 0, 1)
    second = await three.member(first).switch(None)
    await three.master(but=first)
    broker = three.brokers[second]
    assert broker.tables.topics.configs["made"].write_queue_nums == 3
    assert broker.tables.offsets.get("made", "readers", 0) == 1


async def test_no_client_comes_in_before_its_changes_are_told_to_the_others(
    three: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, told = await three.master(in_sync=3), list[bool]()
    open_port = Broker._open_broker_port

    async def opening(broker: Broker, undo: AsyncExitStack) -> None:
        told.append(broker.store.staging.tail(STATE_TOPIC, STATE_QUEUE_ID).next_offset > before)
        await open_port(broker, undo)

    before = three.brokers[first].store.staging.tail(STATE_TOPIC, STATE_QUEUE_ID).next_offset
    monkeypatch.setattr(Broker, "_open_broker_port", opening)
    await three.member(first).switch(None)
    await three.master(but=first)
    assert told == [True]


class Sends:
    """Sends without a pause; the first that fails ends the test."""

    def __init__(self, nameserver: str) -> None:
        self.acknowledged: set[bytes] = set()
        self._numbers = count()
        self._nameserver = nameserver
        self._stop = asyncio.Event()

    async def __aenter__(self) -> "Sends":
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await self._running

    async def _run(self) -> None:
        async with Producer(self._nameserver, group="p") as producer:
            await asyncio.gather(*(self._send(producer) for _ in range(4)))

    async def _send(self, producer: Producer) -> None:
        while not self._stop.is_set():
            body = b"%d" % next(self._numbers)
            await producer.send("orders", body, timeout_s=HANG_S)
            self.acknowledged.add(body)

    async def go_on(self) -> None:
        """Return when some more were answered."""
        wanted = len(self.acknowledged) + 100
        await until(lambda: len(self.acknowledged) >= wanted)

    async def all_are_there(self) -> None:
        """Return when each was read; some may be there twice."""
        found: set[bytes] = set()
        async with PullConsumer("orders", nameserver=self._nameserver) as consumer:
            while not self.acknowledged <= found:
                found |= {message.body for message in await consumer.pull()}


async def test_no_send_fails_during_a_switch(three: ReplicaSet) -> None:
    async with Sends(three.nameserver) as sends:
        for _ in range(3):
            await sends.go_on()
            first = await three.master(in_sync=3)
            await three.member(first).switch(None)
            await three.master(but=first)
    await sends.all_are_there()


@pytest.fixture
async def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ReplicaSet]:
    """Three replicas; a master that is stopped waits for its clients longer than any test."""
    async with ReplicaSet(tmp_path, monkeypatch, {"haDrainTime": "600000"}) as replicas:
        await replicas.start(1, 2, 3)
        yield replicas


async def test_a_master_that_is_stopped_passes_its_clients_on_until_they_have_gone(
    patient: ReplicaSet,
) -> None:
    first = await patient.master(in_sync=3)
    old = patient.brokers[first]
    async with WireClient(old.address) as client:
        await client.ask(RequestCode.SEND_MESSAGE, send_fields("orders"), b"before")
        stopping = asyncio.create_task(patient.stop(first))
        await patient.master(but=first)
        sent = await client.ask(RequestCode.SEND_MESSAGE, send_fields("orders"), b"after")
        assert sent.code == ResponseCode.SUCCESS
        assert not stopping.done()
    await stopping
    assert await read_all(patient.nameserver, "orders", 2) == [b"after", b"before"]


async def test_a_set_that_is_stopped_at_once_waits_for_no_client(patient: ReplicaSet) -> None:
    first = await patient.master(in_sync=3)
    async with WireClient(patient.brokers[first].address) as client:
        await client.ask(RequestCode.SEND_MESSAGE, send_fields("orders"), b"before")
        await patient.stop_all_at_once()
        await client.task


async def test_a_master_that_is_told_to_hurry_waits_for_no_client(
    patient: ReplicaSet,
) -> None:
    first = await patient.master(in_sync=3)
    old = patient.brokers[first]
    async with WireClient(old.address) as client:
        stopping = asyncio.create_task(patient.stop(first))
        await patient.master(but=first)
        old.hurry()
        await stopping
        await client.task


class Newcomer:
    """A client that sends one message over a connection that it opens then."""

    def __init__(self, address: str) -> None:
        self._client = WireClient(address)
        self.answered: asyncio.Task[Command] | None = None

    async def connect(self) -> None:
        with contextlib.suppress(ConnectionRefusedError):
            await self._client.__aenter__()
            asking = self._client.ask(RequestCode.SEND_MESSAGE, send_fields("orders"), b"new")
            self.answered = asyncio.create_task(asking)

    async def code(self) -> int | None:
        """What it was answered; None if it was refused, or hung up on."""
        if self.answered is None:
            return None
        ends = (self.answered, self._client.task)
        await asyncio.wait(ends, timeout=HANG_S, return_when=asyncio.FIRST_COMPLETED)
        await self._client.close()
        return self.answered.result().code if self.answered.done() else None


async def test_who_connects_to_either_master_during_a_switch_is_answered(
    three: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await three.master(in_sync=3)
    second = three.member(first).replica.machine.best_successor()
    assert second is not None
    old, new = three.brokers[first].address, three.brokers[second].address
    left, promoting, reopening = Newcomer(old), Newcomer(new), Newcomer(old)
    loop, is_reopening, may_open = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    pass_on, build_parts, open_store = Broker.pass_on, Broker.build_parts, Broker.open_store

    async def passing(broker: Broker, handed_off: Handover, finder: MasterFinder) -> None:
        await left.connect()
        await until(lambda: left.answered is None or handed_off.is_holding)
        await pass_on(broker, handed_off, finder)

    async def building(broker: Broker) -> None:
        await build_parts(broker)
        await promoting.connect()

    def opening(broker: Broker, *arguments: Any) -> None:
        loop.call_soon_threadsafe(is_reopening.set)
        may_open.wait(HANG_S)
        open_store(broker, *arguments)

    monkeypatch.setattr(Broker, "pass_on", passing)
    monkeypatch.setattr(Broker, "build_parts", building)
    monkeypatch.setattr(Broker, "open_store", opening)
    await three.member(first).switch(second)
    await is_reopening.wait()
    await reopening.connect()
    try:
        assert [await each.code() for each in (left, promoting, reopening)] == [0, 0, 0]
    finally:
        may_open.set()
    await three.master(in_sync=3, but=first)
    late = Newcomer(old)
    await late.connect()
    assert await late.code() == 0


async def test_every_replica_is_restarted_without_a_failed_send(three: ReplicaSet) -> None:
    async with Sends(three.nameserver) as sends:
        master = await three.master(in_sync=3)
        for number in [each for each in three.brokers if each != master]:
            await three.stop(number)
            await sends.go_on()
            await three.start(number)
            await three.master(in_sync=3)
        await three.member(master).switch(None)
        await three.master(in_sync=3, but=master)
        await sends.go_on()
        await three.stop(master)
        await sends.go_on()
        await three.start(master)
        await three.master(in_sync=3)
    await sends.all_are_there()


async def test_alone_below_the_floor_nothing_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ReplicaSet(tmp_path, monkeypatch) as replicas:
        await replicas.start(1)
        await until(lambda: replicas.member(1).is_serving)
        async with WireClient(replicas.brokers[1].address) as client:
            answer = await client.ask(RequestCode.SEND_MESSAGE, send_fields("TBW102"), b"alone")
        assert answer.code != ResponseCode.SUCCESS
        assert "in-sync replicas not enough" in str(answer.remark)
        # The log may get records of state meanwhile.
        files = (replicas.root_of(1) / "commitlog").iterdir()
        assert not any(b"alone" in each.read_bytes() for each in files)
        assert "in-sync replicas not enough" in (replicas.member(1).why_not_ready() or "")


async def test_a_replica_is_seeded_anew_when_an_operator_says_so(three: ReplicaSet) -> None:
    async with Producer(three.nameserver, group="p") as producer:
        await producer.send("orders", b"kept")
    master = await three.master(in_sync=3)
    number = next(each for each in three.brokers if each != master)
    await three.member(number).reseed()
    replaced = three.root_of(number) / "rockhopper" / "replaced"
    await until(replaced.exists)
    await until(lambda: three.member(number).replica.machine.replica_state.is_clean)
    await three.master(in_sync=3)
    await three.same_logs()
    await three.member(master).switch(number)
    await three.master(but=master)
    assert "orders" in three.brokers[number].tables.topics.configs
    assert await read_all(three.nameserver, "orders", 1) == [b"kept"]


async def test_a_replica_that_stops_while_its_store_is_opened_closes_what_was_opened(
    three: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = await three.master(in_sync=3)
    number = next(each for each in three.brokers if each != master)
    opening, may_open = threading.Event(), threading.Event()
    open_store = Broker.open_store

    def slowly(broker: Broker, *arguments: Any) -> None:
        opening.set()
        assert may_open.wait(HANG_S)
        open_store(broker, *arguments)

    monkeypatch.setattr(Broker, "open_store", slowly)
    await three.member(number).reseed()
    await until(opening.is_set)
    with structlog.testing.capture_logs() as logs:
        asyncio.get_running_loop().call_later(0.3, may_open.set)
        await three.stop(number)
        assert may_open.is_set()
        await three.start(number)
    assert not [each for each in logs if each["event"] == "replication has stopped"]
    await three.master(in_sync=3)


async def test_a_replica_that_is_starting_says_so(three: ReplicaSet) -> None:
    broker = three.brokers[1]
    engine = MemoryEngine(three.memory, now_ms)
    starting = SetMember(broker, broker, engine, OpenAs(bytes(8), 1))
    assert not starting.has_started
    assert starting.why_not_ready() == "this replica is starting"
    assert list(starting.metrics()) == []


async def test_what_cannot_be_done_is_refused_with_a_reason(three: ReplicaSet) -> None:
    master = await three.master(in_sync=3)
    other = next(each for each in three.brokers if each != master)
    with pytest.raises(SwitchError, match="does not lead"):
        await three.member(other).switch(master)
    with pytest.raises(SwitchError, match="replica 9 cannot take over"):
        await three.member(master).switch(9)
    with pytest.raises(SwitchError, match="leads"):
        await three.member(other).elect_unclean()
    with pytest.raises(SwitchError, match="no master to seed it"):
        await three.member(master).reseed()
    with pytest.raises(SwitchError, match="is in sync"):
        three.member(master).forget(other)
    assert "no master waits for it" in three.member(master).forget(9)


async def test_status_names_master_and_replicas(three: ReplicaSet) -> None:
    master = await three.master(in_sync=3)
    status = three.member(master).status()
    assert (status["masterId"], status["role"]) == (master, "leading")
    assert [each["isInSync"] for each in status["replicas"]] == [True] * 3
    other = next(each for each in three.brokers if each != master)
    assert three.member(other).why_not_ready() is None
    assert three.member(other).advertisement().broker_id == other
    assert three.member(master).advertisement().broker_id == 0


async def test_who_is_taking_another_role_is_not_ready(
    three: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    refuse = Broker.refuse

    async def refusing(broker: Broker, undo: AsyncExitStack) -> None:
        seen.append(broker.why_not_ready())
        await refuse(broker, undo)

    monkeypatch.setattr(Broker, "refuse", refusing)
    first = await three.master(in_sync=3)
    await three.member(first).switch(None)
    await until(lambda: bool(seen))
    await until(lambda: three.brokers[first].why_not_ready() is None)
    assert seen == ["this replica is changing its role"]


async def test_metrics_are_shown_in_any_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: dict[str, list[str]] = {}
    refuse, build_parts = Broker.refuse, Broker.build_parts

    async def look(broker: Broker, when: str) -> None:
        pages[when] = (await broker.metrics()).body.decode().splitlines()

    async def refusing(broker: Broker, undo: AsyncExitStack) -> None:
        await look(broker, "starting")
        await refuse(broker, undo)

    async def building(broker: Broker) -> None:
        await look(broker, "elected")
        await build_parts(broker)

    monkeypatch.setattr(Broker, "refuse", refusing)
    monkeypatch.setattr(Broker, "build_parts", building)
    async with ReplicaSet(tmp_path, monkeypatch, {"minInSyncReplicas": "1"}) as replicas:
        await replicas.start(1)
        number = await replicas.master(in_sync=1)
        await look(replicas.brokers[number], "serving")

    def value(when: str, name: str) -> str:
        return next((each.split()[-1] for each in pages[when] if each.startswith(name)), "")

    role = "rockhopper_ha_role"
    assert [value(when, "rockhopper_ready{") for when in pages] == ["0.0", "0.0", "1.0"]
    assert [value(when, role) != "" for when in pages] == [False, True, True]
    assert [value(when, "rocketmq_topic_number{") != "" for when in pages] == [False, False, True]
    assert [line for line in pages["serving"] if "elections_total" in line and "1.0" in line] == [
        'rockhopper_ha_elections_total{cluster="DefaultCluster",'
        f'node_id="broker-a:{number}",node_type="broker",cause="first-start"}} 1.0'
    ]


COMMIT = {"topic": "orders", "consumerGroup": "readers", "queueId": "0", "commitOffset": "0"}
GROUP = b'{"groupName":"readers"}'
LOCK = b'{"consumerGroup":"readers","clientId":"c","mqSet":[]}'
TOPIC = {
    "defaultTopic": "TBW102",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
}


class Asked:
    """What a client asks of a master, each kind of promise once."""

    def __init__(self, client: WireClient) -> None:
        self.promises = [
            client.send(RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT),
            client.send(RequestCode.LOCK_BATCH_MQ, body=LOCK),
            client.send(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "late"} | TOPIC),
        ]
        self.read = client.send(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})

    async def codes(self) -> list[int]:
        """What each promise was answered with."""
        return [(await each).code for each in self.promises]


async def test_a_master_whose_lease_may_be_over_promises_nothing_until_it_is_sure(
    three: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await three.master(in_sync=3)
    async with Admin(three.nameserver) as admin:
        await admin.create_topic("orders")
    machine = three.member(first).replica.machine
    async with WireClient(three.brokers[first].address) as client:
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=GROUP)
        with monkeypatch.context() as patch:
            patch.setattr(machine, "leads_alone", lambda _now_ms: False)
            asked = Asked(client)
            assert (await asked.read).code == ResponseCode.SUCCESS
            await until(lambda: "late" in three.brokers[first].tables.topics)
            assert not any(each.done() for each in asked.promises)
        assert await asked.codes() == [ResponseCode.SUCCESS] * 3


async def test_a_master_that_nobody_confirms_anything_to_promises_nothing(
    three: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await three.master(in_sync=3)
    async with Admin(three.nameserver) as admin:
        await admin.create_topic("orders")
    member = three.member(first)
    machine = member.replica.machine
    async with WireClient(three.brokers[first].address) as client:
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=GROUP)
        with monkeypatch.context() as patch:
            patch.setattr(machine, "received", lambda *_: None)
            patch.setattr(machine, "renewed", lambda *_: None)
            before = client.send(RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT)
            assert (await before).code == ResponseCode.SUCCESS
            await until(lambda: not member.gate.is_open())
            asked = Asked(client)
            assert (await asked.read).code == ResponseCode.SUCCESS
            assert not any(each.done() for each in asked.promises)
        member.replica.step_down("a test says so")
        committed, locked, _ = asked.promises
        assert (await committed).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert (await locked).code == ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_name_servers_hear_at_once_that_a_master_leads_no_longer(
    three: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, told = await three.master(in_sync=3), list[tuple[Broker, int]]()
    broker, member = three.brokers[first], three.member(first)

    def announce(changed: Broker) -> None:
        # A registration begins in the next turn of the loop.
        loop.call_soon(lambda: told.append((changed, member.advertisement().broker_id)))

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(Broker, "advertisement_changed", announce)
    member.replica.step_down("a test says so")
    await asyncio.sleep(0)
    assert told == [(broker, first)]


async def test_replicas_that_nobody_leads_are_not_ready(
    three: ReplicaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise EngineError("permission denied")

    monkeypatch.setattr(set_presence, "ANNOUNCE_INTERVAL_S", 0.1)
    monkeypatch.setattr(engine_health, "UNWRITABLE_PATIENCE_MS", 0)
    monkeypatch.setattr(three.memory, "campaign", lambda *_: SwapOutcome.UNKNOWN)
    monkeypatch.setattr(three.memory, "announce", refuse)
    three.hand_over_within(SHORT_S)
    await three.stop(await three.master())
    members = [three.member(number) for number in three.brokers]
    await until(
        lambda: any("not heard from a master" in (each.why_not_ready() or "") for each in members)
    )
    await until(lambda: all(each.why_not_ready() for each in members))
    await until(lambda: all("refuses writes" in str(each.status()["alarms"]) for each in members))


async def test_an_election_that_may_lose_messages_begins_a_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after a crash: the disk does not say how much of the log was confirmed.
    monkeypatch.setattr(ReplicaDisk, "note_confirmed", lambda *_: None)
    async with ReplicaSet(tmp_path, monkeypatch, {"minInSyncReplicas": "1"}) as replicas:
        await replicas.start(1, 2)
        first = await replicas.master(in_sync=2)
        before = histories(replicas, first)
        await replicas.member(first).switch(None)
        second = await replicas.master(in_sync=2, but=first)
        assert histories(replicas, second) == before
        await replicas.stop(first)
        await replicas.stop_all_at_once()
        await replicas.start(first)
        await elect_unclean(replicas, first)
        assert histories(replicas, first)[1:] == before


async def test_an_asynchronous_master_begins_a_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ReplicaSet(tmp_path, monkeypatch, {"haMode": "async"}) as replicas:
        await replicas.start(1, 2)
        first = await replicas.master(in_sync=2)
        before = histories(replicas, first)
        await replicas.member(first).switch(None)
        second = await replicas.master(but=first)
        assert histories(replicas, second)[1:] == before


def histories(replicas: ReplicaSet, number: int) -> list[str]:
    return replicas.brokers[number].tables.catalog.history.ids(9)


async def elect_unclean(replicas: ReplicaSet, number: int) -> None:
    """Repeat the command until the former master has been silent for long enough."""
    async with asyncio.timeout(HANG_S):
        while not replicas.member(number).is_serving:
            with contextlib.suppress(SwitchError):
                await replicas.member(number).elect_unclean()
            await asyncio.sleep(0.01)
