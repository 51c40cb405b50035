"""Routes: what a name server says, which one is asked, what is remembered."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator

import pytest

from rockhopper.client.errors import (
    BrokerUnreachableError,
    MalformedAnswerError,
    RequestRefusedError,
    RouteNotFoundError,
)
from rockhopper.client.network.connection_pool import ConnectionPool
from rockhopper.client.network.routing import NameServices, RouteCache, TopicRoute, route_from_data
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.bodies import QueueData, TopicRouteData
from rockhopper.protocol.command import Command
from tests.support.fake_server import FakeServer, route
from tests.support.held_clock import HeldClock

# As a name server of release 4.x writes it for old clients: bare keys that are numbers.
OLD_ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
    b'"brokerName":"broker-a","cluster":"C"}],"filterServerTable":{},"queueDatas":'
    b'[{"brokerName":"broker-a","perm":6,"readQueueNums":3,"topicSynFlag":0,"writeQueueNums":2}]}'
)


@pytest.fixture
async def pool() -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool()
    yield pool
    await pool.close()


@pytest.fixture
async def name_service() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        yield server


def table(pool: ConnectionPool, *addresses: str) -> RouteCache:
    return RouteCache(NameServices(addresses, pool, 2.0), pool)


def test_bare_number_keys_are_understood() -> None:
    found = route_from_data("orders", TopicRouteData.decode(OLD_ROUTE))
    assert found.read_queues == tuple(MessageQueue("orders", "broker-a", n) for n in range(3))
    assert found.write_queues == found.read_queues[:2]
    assert found.master("broker-a") == "10.0.0.1:10911"
    assert found.reader("broker-a", 1) == "10.0.0.2:10911"


@pytest.mark.parametrize(("perm", "reads", "writes"), [(4, 4, 0), (2, 0, 4), (0, 0, 0), (7, 4, 4)])
def test_permissions_decide_what_is_read_and_written(perm: int, reads: int, writes: int) -> None:
    data = TopicRouteData.from_json(route({"a": "a:1"}, perm=perm))
    found = route_from_data("orders", data)
    assert (len(found.read_queues), len(found.write_queues)) == (reads, writes)


def test_a_broker_without_a_master_is_read_but_not_written() -> None:
    raw = route({"a": "a:1"})
    raw["brokerDatas"] = [{"brokerAddrs": {"1": "slave:1"}, "brokerName": "a", "cluster": "C"}]
    found = route_from_data("orders", TopicRouteData.from_json(raw))
    assert found.write_queues == ()
    assert len(found.read_queues) == 4
    assert found.reader("a") == "slave:1"


def test_queues_come_in_the_order_of_broker_names() -> None:
    data = TopicRouteData.from_json(route({"b": "b:1", "a": "a:1"}, queues=2))
    names = [(each.broker_name, each.queue_id) for each in route_from_data("t", data).write_queues]
    assert names == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_an_order_configuration_fixes_the_queues_to_write() -> None:
    raw = {**route({"a": "a:1", "b": "b:1"}), "orderTopicConf": "b:2;a:1;gone:3"}
    found = route_from_data("t", TopicRouteData.from_json(raw))
    names = [(each.broker_name, each.queue_id) for each in found.write_queues]
    assert names == [("b", 0), ("b", 1), ("a", 0)]


async def test_a_topic_that_does_not_exist_is_sent_to_by_the_template_s_route(
    name_service: FakeServer, pool: ConnectionPool
) -> None:
    name_service.serve_routes({"TBW102": route({"a": "a:1"}, queues=8, perm=7)})
    routes = table(pool, name_service.address)
    found = await routes.route("new", for_sending=True)
    assert found.is_guess
    # As Java: not more than four, however many the template has.
    assert found.write_queues == tuple(MessageQueue("new", "a", n) for n in range(4))


async def test_a_guess_is_never_read_from(name_service: FakeServer, pool: ConnectionPool) -> None:
    name_service.serve_routes({"TBW102": route({"a": "a:1"})})
    routes = table(pool, name_service.address)
    await routes.route("new", for_sending=True)
    with pytest.raises(RouteNotFoundError, match=r"'new'.*rockhopper topic create new"):
        await routes.route("new")


async def test_without_a_template_the_error_says_that_nobody_creates_topics(
    name_service: FakeServer, pool: ConnectionPool
) -> None:
    name_service.serve_routes({})
    with pytest.raises(RouteNotFoundError, match="no broker creates topics on first use") as caught:
        await table(pool, name_service.address).route("new", for_sending=True)
    assert caught.value.code == 17
    assert caught.value.address == name_service.address


async def test_look_ups_of_one_topic_at_the_same_time_are_one_request(
    name_service: FakeServer, pool: ConnectionPool
) -> None:
    name_service.serve_routes({"orders": route({"a": "a:1"})})
    routes = table(pool, name_service.address)
    found = await asyncio.gather(*(routes.route("orders") for _ in range(20)))
    assert len(name_service.requests) == 1
    assert all(each is found[0] for each in found)


async def test_the_next_name_service_is_asked_when_one_is_down(
    name_service: FakeServer, pool: ConnectionPool
) -> None:
    async with FakeServer() as gone:
        down = gone.address
    name_service.serve_routes({"orders": route({"a": "a:1"})})
    services = NameServices((down, name_service.address), pool, 2.0)
    routes = RouteCache(services, pool)
    for topic in ("orders", "x", "y"):
        await services.route_data(topic)
    assert len(name_service.requests) == 3
    assert (await routes.route("orders")).master("a") == "a:1"


async def test_when_no_name_service_answers_the_error_lists_them_all(pool: ConnectionPool) -> None:
    async with FakeServer() as first, FakeServer() as second:
        addresses = (first.address, second.address)
    with pytest.raises(BrokerUnreachableError) as caught:
        await table(pool, *addresses).route("orders")
    assert all(address in str(caught.value) for address in addresses)


async def test_an_answer_that_is_no_route_is_said_to_be_none(
    name_service: FakeServer, pool: ConnectionPool
) -> None:
    name_service.on(105, lambda request: Command(0, body=b'{"queueDatas":7}'))
    with pytest.raises(MalformedAnswerError, match="an invalid route"):
        await table(pool, name_service.address).route("orders")


async def test_a_refusal_of_the_name_service_carries_code_and_remark(
    name_service: FakeServer, pool: ConnectionPool
) -> None:
    name_service.on(105, lambda request: Command(1, remark="name server not ready"))
    with pytest.raises(RequestRefusedError, match="name server not ready") as caught:
        await table(pool, name_service.address).route("orders")
    assert (caught.value.code, caught.value.address) == (1, name_service.address)


async def test_a_refresh_replaces_a_guess_by_the_route_and_tells_listeners(
    name_service: FakeServer, pool: ConnectionPool
) -> None:
    known = {"TBW102": route({"a": "a:1", "b": "b:1"})}
    name_service.serve_routes(known)
    routes = table(pool, name_service.address)
    changes: list[TopicRoute] = []
    routes.on_change.append(changes.append)
    await routes.route("new", for_sending=True)
    known["new"] = route({"a": "a:1"}, queues=4)
    await routes.refresh()
    found = await routes.route("new")
    assert not found.is_guess
    assert list(found.brokers) == ["a"]
    assert [change.is_guess for change in changes] == [True, False]


async def test_a_route_stays_while_the_name_service_is_down_or_has_forgotten_it(
    name_service: FakeServer, pool: ConnectionPool
) -> None:
    known = {"orders": route({"a": "a:1"})}
    name_service.serve_routes(known)
    routes = table(pool, name_service.address)
    before = await routes.route("orders")
    known.clear()
    await routes.refresh()
    assert await routes.route("orders") is before
    await name_service.stop_listening()
    name_service.drop_connections()
    await routes.refresh()
    assert await routes.route("orders") is before


async def test_a_name_service_that_does_not_answer_is_not_waited_for(
    name_service: FakeServer, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_service.serve_routes({"orders": route({"a": "a:1"})})
    monkeypatch.setattr(random, "randrange", lambda _count: 0)
    async with FakeServer() as hung:
        hung.on(105, lambda request: None)
        services = NameServices((hung.address, name_service.address), pool, 2.0)
        clock = HeldClock(monkeypatch)
        asking = asyncio.ensure_future(services.route_data("orders"))
        await hung.wait_for(105)
        clock.advance(0.2)
        assert await asking is not None
        await services.route_data("orders")
        assert len(hung.requests) == 1


async def test_a_slow_name_service_may_still_be_the_first_to_answer(
    name_service: FakeServer, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "randrange", lambda _count: 0)
    answers = asyncio.Event()

    async def late(request: Command) -> Command:
        await answers.wait()
        return Command(17)

    name_service.on(105, late)
    async with FakeServer() as hung:
        hung.on(105, lambda request: None)
        services = NameServices((name_service.address, hung.address), pool, 2.0)
        clock = HeldClock(monkeypatch)
        asking = asyncio.ensure_future(services.route_data("orders"))
        await name_service.wait_for(105)
        clock.advance(0.2)
        await hung.wait_for(105)
        answers.set()
        await hung.wait_for(105, 2)  # the others may know it
        clock.advance(1.0)
        assert await asking is None


def led_by(number: int) -> dict[str, object]:
    """The route of the broker "a", led by one of three replicas."""
    data = route({"a": f"h:{number}"})
    followers = {str(each): f"h:{each}" for each in (1, 2, 3) if each != number}
    addresses = {"0": f"h:{number}"} | followers
    data["brokerDatas"] = [{"brokerAddrs": addresses, "brokerName": "a", "cluster": "C"}]
    return data


async def test_a_broker_that_fails_is_looked_up_and_every_route_follows_it(
    name_service: FakeServer, pool: ConnectionPool
) -> None:
    known = {"orders": led_by(1), "bills": led_by(1), "other": route({"b": "b:1"})}
    name_service.serve_routes(known)
    routes = table(pool, name_service.address)
    for topic in known:
        await routes.route(topic)
    known |= {"orders": led_by(2), "bills": led_by(2)}
    changed: asyncio.Queue[TopicRoute] = asyncio.Queue()
    routes.on_change.append(changed.put_nowait)
    routes.doubt("nobody:1")
    routes.doubt("h:1")
    assert {(await changed.get()).topic, (await changed.get()).topic} == {"orders", "bills"}
    assert len(name_service.requests_of(105)) == 4
    for topic in ("orders", "bills"):
        found = routes.known(topic)
        assert found is not None
        assert (found.master("a"), found.slaves) == ("h:2", {"h:1", "h:3"})
    assert routes.has_master("h:2")
    assert not routes.has_master("h:1")
    assert routes.slaves == {"h:1", "h:3"}


async def test_a_route_is_not_renewed_more_often_than_is_useful(
    name_service: FakeServer, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_service.serve_routes({"orders": route({"a": "a:1"})})
    routes = table(pool, name_service.address)
    assert await routes.renew("orders") is None
    known = await routes.route("orders")
    clock = HeldClock(monkeypatch)
    for _ in range(3):
        assert await routes.renew("orders") is known
    assert len(name_service.requests_of(105)) == 2
    clock.advance(0.03)
    await routes.renew("orders")
    assert len(name_service.requests_of(105)) == 3


async def test_a_change_of_the_brokers_ends_the_wait_for_it(
    name_service: FakeServer, pool: ConnectionPool
) -> None:
    known = {"orders": led_by(1)}
    name_service.serve_routes(known)
    routes = table(pool, name_service.address)
    before = await routes.route("orders")
    assert await routes.changed(before, 0.001) is before
    known["orders"] = led_by(3)
    assert (await routes.changed(before, 600)).master("a") == "h:3"


async def test_a_name_service_that_is_away_leaves_a_route_as_it_was(
    name_service: FakeServer, pool: ConnectionPool
) -> None:
    name_service.serve_routes({"orders": led_by(1)})
    routes = table(pool, name_service.address)
    before = await routes.route("orders")
    await name_service.stop_listening()
    name_service.drop_connections()
    assert await routes.renew("orders") is before


async def test_a_guess_is_renewed_as_one(name_service: FakeServer, pool: ConnectionPool) -> None:
    name_service.serve_routes({"TBW102": led_by(1)})
    routes = table(pool, name_service.address)
    await routes.route("new", for_sending=True)
    name_service.serve_routes({"TBW102": led_by(2)})
    renewed = await routes.renew("new")
    assert renewed is not None
    assert renewed.is_guess
    assert renewed.master("a") == "h:2"


async def test_a_name_service_that_knows_nothing_is_not_believed_before_the_others_are_asked(
    pool: ConnectionPool, name_service: FakeServer
) -> None:
    name_service.serve_routes({"orders": route({"a": "10.0.0.1:10911"})})
    async with FakeServer() as empty:
        empty.serve_routes({})
        gone = empty.address.rsplit(":", 1)[0] + ":1"
        for addresses in ((empty.address, name_service.address), (empty.address, gone)):
            for _ in range(4):  # whichever is asked first
                routes = table(pool, *addresses)
                if gone in addresses:
                    with pytest.raises(RouteNotFoundError):
                        await routes.route("orders")
                else:
                    assert (await routes.route("orders")).master("a") == "10.0.0.1:10911"


async def test_the_name_of_a_name_service_that_moves_is_followed(
    pool: ConnectionPool, name_service: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(name_service.address.rpartition(":")[2])
    services = NameServices((f"localhost:{port}",), pool, 2.0)
    moved: list[str] = ["127.0.0.1"]

    async def look_up(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in moved]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    first = await pool.connect(services.addresses[0])
    await services.follow_names()
    assert pool.existing(services.addresses[0]) is first
    moved[:] = ["127.0.0.2"]
    await services.follow_names()
    assert pool.existing(services.addresses[0]) is None
    assert name_service.connections  # the old one still answers


@pytest.mark.parametrize(
    "data",
    [
        TopicRouteData([QueueData("a", 20_000_000, 4)]),
        TopicRouteData([QueueData("a", 4, 65_537)]),
        TopicRouteData([QueueData("a", 65_536, 65_536)] * 9),
        TopicRouteData(order_topic_conf="a:65537"),
        TopicRouteData(order_topic_conf="a:" + "9" * 5000),
        TopicRouteData(order_topic_conf=";".join(f"b{number}:65536" for number in range(9))),
    ],
)
async def test_counts_that_no_topic_can_have_are_refused(
    pool: ConnectionPool, name_service: FakeServer, data: TopicRouteData
) -> None:
    name_service.on(105, lambda _request: Command(0, body=data.encode()))
    with pytest.raises(MalformedAnswerError, match="an invalid route"):
        await table(pool, name_service.address).route("orders")


def test_an_order_of_many_queues_is_expanded_once_each_broker() -> None:
    data = TopicRouteData.from_json(route({"a": "a:1"}))
    data.order_topic_conf = "a:65536;a:65536;gone:65536;a:x"
    found = route_from_data("orders", data)
    assert (len(found.write_queues), len(found.masterless_queues)) == (65_536, 65_536)
