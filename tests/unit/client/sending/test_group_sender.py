"""Messages of one sharding key: which queue, and in which order whatever fails."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rockhopper.client import (
    BrokerUnreachableError,
    EarlierSendFailedError,
    Message,
    Producer,
    RequestRefusedError,
    RequestTimeoutError,
    SendReceipt,
)
from rockhopper.client.network.routing import route_from_data
from rockhopper.client.queues import MessageQueue
from rockhopper.client.sending import group_sender
from rockhopper.client.sending.queue_choice import choose_queue_for_key
from rockhopper.protocol.bodies import TopicRouteData
from rockhopper.protocol.command import Command
from tests.support.fake_server import FakeServer, route
from tests.support.held_clock import HeldClock
from tests.unit.client.test_producer import stored


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        server.on(34, lambda request: Command(0))
        server.on(35, lambda request: Command(0))
        server.on(310, stored())
        server.serve_routes({"orders": route({"a": server.address})})
        yield server


@pytest.fixture
async def producer(server: FakeServer) -> AsyncIterator[Producer]:
    async with Producer(server.address) as producer:
        yield producer


def numbered(number: int, key: str = "alice") -> Message:
    return Message("orders", b"%d" % number, sharding_key=key)


def bodies(server: FakeServer) -> list[bytes]:
    return [request.body for request in server.requests_of(310)]


async def test_a_message_under_way_holds_up_the_later_ones_of_its_key(
    producer: Producer, server: FakeServer
) -> None:
    gate = asyncio.Event()

    async def slow(request: Command) -> Command:
        if request.body == b"0":
            await gate.wait()
        return stored()(request)

    server.on(310, slow)
    sends = [asyncio.create_task(producer.send(numbered(number))) for number in range(3)]
    await producer.send(numbered(9, key="bob"))
    assert sorted(bodies(server)) == [b"0", b"9"]
    gate.set()
    await asyncio.gather(*sends)
    assert bodies(server)[2:] == [b"1", b"2"]


@pytest.mark.parametrize("code", [2, 14])
async def test_a_message_refused_for_a_moment_is_tried_again_before_the_later_ones(
    producer: Producer, server: FakeServer, code: int
) -> None:
    refusals = iter([Command(code, remark="busy")])
    server.on(310, lambda request: next(refusals, None) or stored()(request))
    await asyncio.gather(*(producer.send(numbered(number)) for number in range(3)))
    assert bodies(server) == [b"0", b"0", b"1", b"2"]


async def test_a_message_whose_connection_broke_is_tried_again_before_the_later_ones(
    producer: Producer, server: FakeServer
) -> None:
    breaks = [True]

    def answer(request: Command) -> Command | None:
        if breaks and breaks.pop():
            server.drop_connections()
            return None
        return stored()(request)

    server.on(310, answer)
    await asyncio.gather(*(producer.send(numbered(number)) for number in range(3)))
    assert bodies(server) == [b"0", b"0", b"1", b"2"]


async def test_those_that_waited_behind_a_failed_message_fail_and_may_be_sent_again(
    producer: Producer, server: FakeServer
) -> None:
    server.on(310, lambda request: Command(13, remark="illegal"))
    results = await asyncio.gather(
        *(producer.send(numbered(number)) for number in range(3)), return_exceptions=True
    )
    assert isinstance(results[0], RequestRefusedError)
    assert all(isinstance(result, EarlierSendFailedError) for result in results[1:])
    server.on(310, stored())
    await asyncio.gather(*(producer.send(numbered(number)) for number in range(3)))
    assert bodies(server) == [b"0", b"0", b"1", b"2"]


async def test_the_time_of_a_message_runs_from_its_turn_behind_the_earlier_ones_of_its_key(
    producer: Producer, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HeldClock(monkeypatch)
    answers = asyncio.Event()

    async def answer_later(request: Command) -> Command:
        await answers.wait()
        return stored()(request)

    server.on(310, answer_later)
    first = asyncio.create_task(producer.send(numbered(0), timeout_s=4))
    second = asyncio.create_task(producer.send(numbered(1), timeout_s=1))
    await server.wait_for(310)
    clock.advance(3)
    assert not second.done()
    answers.set()
    await asyncio.gather(first, second)
    assert bodies(server) == [b"0", b"1"]
    server.on(310, lambda request: None)
    third = asyncio.create_task(producer.send(numbered(2), timeout_s=2))
    fourth = asyncio.create_task(producer.send(numbered(3), timeout_s=1))
    await server.wait_for(310, 3)
    clock.advance(2)
    with pytest.raises(RequestTimeoutError):
        await third
    with pytest.raises(EarlierSendFailedError, match="must not overtake it"):
        await fourth
    assert bodies(server) == [b"0", b"1", b"2"]


async def test_a_broker_that_is_away_is_waited_for_until_the_time_is_up(
    producer: Producer, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await producer.queues("orders")
    await server.stop_listening()
    server.drop_connections()
    clock = HeldClock(monkeypatch)
    sending = asyncio.create_task(producer.send(numbered(0), timeout_s=1))
    while not sending.done():
        clock.advance(0.01)
        await asyncio.sleep(0)
    with pytest.raises(BrokerUnreachableError) as caught:
        await sending
    assert caught.value.__notes__


async def test_batches_oneways_and_single_messages_of_a_key_keep_their_order(
    producer: Producer, server: FakeServer
) -> None:
    server.on(320, stored(msgId="ID1,ID2"))
    await asyncio.gather(
        producer.send(numbered(0)),
        producer.send_batch([numbered(1), numbered(2)]),
        producer.send_oneway(numbered(3)),
        producer.send(numbered(4)),
    )
    codes = [request.code for request in server.requests if request.code in (310, 320)]
    assert codes == [310, 320, 310, 310]
    assert bodies(server) == [b"0", b"3", b"4"]
    sent = [request for request in server.requests if request.code in (310, 320)]
    assert len({(request.ext or {})["e"] for request in sent}) == 1


def test_the_order_in_which_a_name_service_lists_brokers_does_not_matter() -> None:
    listed = [route({"a": "h:1", "b": "h:2"}), route({"b": "h:2", "a": "h:1"})]
    routes = [route_from_data("orders", TopicRouteData.from_json(data)) for data in listed]
    for key in ("alice", "bob", "carol", "", "ключ"):
        assert choose_queue_for_key(routes[0], key) == choose_queue_for_key(routes[1], key)


def test_a_key_keeps_its_queue_while_a_broker_has_no_master() -> None:
    whole = route_from_data("orders", TopicRouteData.from_json(route({"a": "h:1", "b": "h:2"})))
    data = route({"a": "h:1", "b": "h:2"})
    data["brokerDatas"][1]["brokerAddrs"] = {"1": "h:3"}  # type: ignore[index]
    part = route_from_data("orders", TopicRouteData.from_json(data))
    assert {queue.broker_name for queue in part.write_queues} == {"a"}
    for key in map(str, range(50)):
        assert choose_queue_for_key(part, key) == choose_queue_for_key(whole, key)


def test_an_order_topic_keeps_its_queues_while_a_broker_is_gone() -> None:
    data = route({"a": "h:1"}) | {"orderTopicConf": "a:2;b:2"}
    ordered = route_from_data("orders", TopicRouteData.from_json(data))
    assert [queue.queue_id for queue in ordered.write_queues] == [0, 1]
    taken = {choose_queue_for_key(ordered, key) for key in map(str, range(50))}
    assert taken == {MessageQueue("orders", name, number) for name in "ab" for number in (0, 1)}


async def test_sends_beyond_those_under_way_wait_and_their_time_runs_from_their_turn(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_sender, "IN_FLIGHT_MAX", 2)
    gates = [asyncio.Event() for _ in range(6)]

    async def slow(request: Command) -> Command:
        await gates[int(request.body)].wait()
        return stored()(request)

    server.on(310, slow)
    async with Producer(server.address, timeout_s=3.0) as producer:
        await producer.queues("orders")
        clock = HeldClock(monkeypatch)
        sends = [
            asyncio.create_task(producer.send("orders", b"%d" % number)) for number in range(6)
        ]
        await server.wait_for(310, 2)
        sends[2].cancel()
        clock.advance(2.0)
        gates[0].set()
        await server.wait_for(310, 3)
        clock.advance(0.5)
        gates[1].set()
        await server.wait_for(310, 4)
        clock.advance(2.0)  # 4.5 s after all of them were called
        for gate in gates:
            gate.set()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert isinstance(outcomes.pop(2), asyncio.CancelledError)
    assert all(isinstance(each, SendReceipt) for each in outcomes)
    assert sorted(bodies(server)) == [b"0", b"1", b"3", b"4", b"5"]


async def test_time_that_the_loop_lost_while_the_route_was_looked_up_does_not_count(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on(310, stored())
    async with Producer(server.address, timeout_s=3.0) as producer:
        clock = HeldClock(monkeypatch)
        sending = asyncio.create_task(producer.send(numbered(0)))
        await asyncio.sleep(0)
        clock.advance(20)  # other tasks that start in the same turn
        assert isinstance(await sending, SendReceipt)
