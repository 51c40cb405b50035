"""Which sends are tried again and when; and sends that follow a broker to another replica."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from rockhopper.client import (
    BrokerUnreachableError,
    ClientError,
    Message,
    MessageRejectedError,
    Producer,
    RequestRefusedError,
    RequestTimeoutError,
)
from rockhopper.client.queues import MessageQueue
from rockhopper.client.sending.outgoing import OutgoingMessage
from rockhopper.client.sending.tries import Tries
from rockhopper.protocol.command import Command
from rockhopper.protocol.sys_flags import SYS_FLAG_TRANSACTION_PREPARED
from tests.support.fake_server import FakeServer, route
from tests.support.held_clock import HeldClock
from tests.support.turns import until
from tests.unit.client.test_producer import stored

FOLLOWS = Command(2, remark="[REJECTREQUEST]this broker follows another")


def tries(*, key: str | None = None, sys_flag: int = 0, retries: int = 2) -> Tries:
    outgoing = OutgoingMessage("orders", b"", "", "id", 0, sys_flag=sys_flag, sharding_key=key)
    return Tries(outgoing, retries, is_bound=False)


def broken(*, was_sent: bool) -> BrokerUnreachableError:
    error = BrokerUnreachableError("broken")
    error.was_sent = was_sent
    return error


def refused(code: int, remark: str = "") -> RequestRefusedError:
    return RequestRefusedError(310, code, remark, "a:1")


def pauses(made: Tries, error: ClientError, count: int) -> list[float | None]:
    found = []
    for _ in range(count):
        made.failed(error, "a")
        found.append(made.pause_s(has_others=False))
    return found


@pytest.mark.parametrize(
    "error",
    [
        broken(was_sent=True),
        broken(was_sent=False),
        refused(2, "[REJECTREQUEST]system busy"),
        refused(14, "why ever"),
        refused(1, "in-sync replicas not enough"),
    ],
)
def test_a_broker_that_may_be_led_by_another_is_tried_ever_more_slowly(error: ClientError) -> None:
    expected = [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    assert pauses(tries(), error, 7) == expected
    other = tries()
    other.failed(error, "a")
    assert other.pause_s(has_others=True) == 0.0
    assert other.failed_on == {"a"}


@pytest.mark.parametrize("code", [1, 29])
@pytest.mark.parametrize("retries", [0, 2])
def test_a_queue_that_is_gone_is_no_reason_to_give_up_before_the_route_is_new(
    code: int, retries: int
) -> None:
    gone = refused(code, "request queueId[7] is illegal, topic [orders] has 2 queues")
    expected = [0.0, 0.08, 0.16, 0.32, 0.64, 1.28, None]
    assert pauses(tries(retries=retries), gone, 7) == expected


@pytest.mark.parametrize("error", [refused(2, "busy"), refused(1, "no"), refused(13)])
def test_a_broker_that_refuses_for_other_reasons_is_not_asked_again(error: ClientError) -> None:
    assert pauses(tries(), error, 1) == [None]


@pytest.mark.parametrize(
    ("error", "is_tried"),
    [
        (broken(was_sent=False), True),
        (refused(14), True),
        (broken(was_sent=True), False),
        (RequestTimeoutError(310, "a:1", 1.0), False),
    ],
)
@pytest.mark.parametrize("made", [{"sys_flag": SYS_FLAG_TRANSACTION_PREPARED}, {"retries": 0}])
def test_what_must_not_be_stored_twice_is_tried_again_only_if_it_was_not(
    made: dict[str, int], error: ClientError, is_tried: bool
) -> None:
    (pause_s,) = pauses(tries(**made), error, 1)  # type: ignore[arg-type]
    assert (pause_s is not None) is is_tried


def test_the_last_failure_tells_of_those_that_were_others() -> None:
    made = tries()
    for text in ("one", "two", "two", "three", "three"):
        made.failed(ClientError(text), "a")
    outcome = made.outcome()
    assert str(outcome) == "three"
    assert outcome.__notes__ == ["earlier attempts: one", "earlier attempts: two"]


@pytest.fixture
async def old() -> AsyncIterator[FakeServer]:
    """The replica that leads at first."""
    async with FakeServer() as server:
        server.on(34, lambda request: Command(0))
        server.on(310, stored())
        yield server


@pytest.fixture
async def new() -> AsyncIterator[FakeServer]:
    """The replica that leads afterwards."""
    async with FakeServer() as server:
        server.on(34, lambda request: Command(0))
        server.on(310, stored())
        yield server


class Names:
    """A name server that says which replicas the broker "a" has."""

    def __init__(self, server: FakeServer, master: FakeServer) -> None:
        self.server = server
        self._routes = {"orders": route({"a": master.address}, queues=2)}
        server.serve_routes(self._routes)

    def say(self, **addresses: str) -> None:
        data = route({"a": ""}, queues=2)
        brokers = {key.removeprefix("id"): address for key, address in addresses.items()}
        data["brokerDatas"] = [{"brokerAddrs": brokers, "brokerName": "a", "cluster": "C"}]
        self._routes["orders"] = data

    def shrink(self, master: FakeServer, queues: int) -> None:
        self._routes["orders"] = route({"a": master.address}, queues=queues)


@pytest.fixture
async def names(old: FakeServer) -> AsyncIterator[Names]:
    async with FakeServer() as server:
        yield Names(server, old)


@pytest.fixture
async def producer(names: Names) -> AsyncIterator[Producer]:
    async with Producer(names.server.address) as producer:
        await producer.queues("orders")
        yield producer


def sent(server: FakeServer) -> list[bytes]:
    return [request.body for request in server.requests_of(310)]


@pytest.mark.parametrize("key", [None, "alice"])
@pytest.mark.parametrize("code", [2, 14])
async def test_a_send_follows_its_broker_to_the_replica_that_leads(
    producer: Producer, names: Names, old: FakeServer, new: FakeServer, key: str | None, code: int
) -> None:
    def depose(request: Command) -> Command:
        names.say(id0=new.address, id1=old.address)
        return Command(code, remark=FOLLOWS.remark)

    old.on(310, depose)
    await producer.send(Message("orders", b"x", sharding_key=key))
    await producer.send(Message("orders", b"y", sharding_key=key))
    assert (sent(old), sent(new)) == ([b"x"], [b"x", b"y"])


@pytest.mark.parametrize("queue", [None, MessageQueue("orders", "a", 1)])
async def test_a_send_outlives_the_master_that_is_killed_under_it(
    producer: Producer,
    names: Names,
    old: FakeServer,
    new: FakeServer,
    queue: MessageQueue | None,
) -> None:
    async def die(request: Command) -> None:
        await old.stop_listening()
        old.drop_connections()

    old.on(310, die)
    sending = asyncio.ensure_future(producer.send("orders", b"x", queue=queue))
    await old.wait_for(310)
    await names.server.wait_for(105, len(names.server.requests_of(105)) + 2)
    names.say(id0=new.address)
    await sending
    assert sent(new) == [b"x"]


@pytest.mark.parametrize("queue", [None, MessageQueue("orders", "a", 1), 1])
async def test_a_broker_without_a_master_is_waited_for(
    names: Names, new: FakeServer, queue: MessageQueue | int | None
) -> None:
    names.say(id1=new.address)
    async with Producer(names.server.address) as producer:
        sending = asyncio.ensure_future(producer.send("orders", b"x", queue=queue))
        await names.server.wait_for(105, 3)
        assert sent(new) == []
        names.say(id0=new.address)
        await sending
    assert sent(new) == [b"x"]


async def test_when_no_replica_comes_to_lead_in_time_the_error_says_so(
    names: Names, new: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names.say(id1=new.address)
    async with Producer(names.server.address) as producer:
        clock = HeldClock(monkeypatch)
        sending = asyncio.ensure_future(producer.send("orders", b"x", timeout_s=1))
        waited_s = 0.0
        while not sending.done():
            clock.advance(0.01)
            waited_s += 0.01
            await asyncio.sleep(0)
        with pytest.raises(BrokerUnreachableError, match="name no master of broker 'a'"):
            await sending
    assert waited_s >= 1


async def test_a_master_of_which_nothing_is_heard_is_left_once_another_leads(
    producer: Producer,
    names: Names,
    old: FakeServer,
    new: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = HeldClock(monkeypatch)
    old.on(310, lambda request: None)
    sending = asyncio.ensure_future(producer.send("orders", b"x"))
    await old.wait_for(310)
    names.say(id0=new.address)
    pool = producer.session.pool
    clock.advance(1.1)
    await until(lambda: pool.silent == [old.address])
    clock.advance(0.6)
    await until(lambda: producer.session.routes.has_master(new.address))
    clock.advance(0.6)
    await sending
    assert sent(new) == [b"x"]


async def test_a_name_service_that_knows_no_better_does_not_keep_a_send_from_the_new_master(
    old: FakeServer, new: FakeServer
) -> None:
    async with FakeServer() as stale, FakeServer() as fresh:
        stale.serve_routes({"orders": route({"a": old.address})})
        fresh.serve_routes({"orders": route({"a": new.address})})
        old.on(310, lambda request: FOLLOWS)
        async with Producer(f"{stale.address};{fresh.address}") as producer:
            for number in range(3):
                await producer.send("orders", b"%d" % number)
    assert sent(new) == [b"0", b"1", b"2"]


async def test_with_no_tries_allowed_nothing_is_stored_twice(names: Names, old: FakeServer) -> None:
    old.on(310, lambda request: old.drop_connections())
    async with Producer(names.server.address, retries=0) as producer:
        with pytest.raises(BrokerUnreachableError):
            await producer.send("orders", b"x")
    assert sent(old) == [b"x"]


def test_what_a_send_ends_with_has_no_way_down_to_the_socket() -> None:
    made = tries()
    try:
        raise broken(was_sent=False)
    except BrokerUnreachableError as error:
        made.failed(error, "a")
    assert made.outcome().__traceback__ is None


def _shrink(names: Names, server: FakeServer, count: int) -> None:
    """Let the topic have `count` queues, whatever routes say of it that were asked for before."""
    names.shrink(server, count)

    def answer(request: Command) -> Command:
        number = int((request.ext or {})["e"])
        if number >= count:
            return Command(29, remark=f"request queueId[{number}] is illegal, topic [orders] has")
        return stored()(request)

    server.on(310, answer)


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("key", [None, "bob"])
async def test_a_send_to_a_queue_that_is_gone_goes_to_one_that_is_there(
    names: Names, old: FakeServer, key: str | None, retries: int
) -> None:
    names.shrink(old, 8)
    async with Producer(names.server.address, retries=retries) as producer:
        await producer.queues("orders")
        _shrink(names, old, 1)
        messages = [Message("orders", b"%d" % n, sharding_key=key) for n in range(8)]
        receipts = await asyncio.gather(*map(producer.send, messages))
    assert {receipt.queue.queue_id for receipt in receipts} == {0}


async def test_a_chosen_queue_that_is_gone_is_said_to_be(
    producer: Producer, names: Names, old: FakeServer
) -> None:
    _shrink(names, old, 1)
    with pytest.raises(MessageRejectedError, match="queues 0 to 0 on a"):
        await producer.send("orders", b"x", queue=1)


async def test_a_topic_that_may_be_written_again_is_at_once(
    producer: Producer, names: Names, old: FakeServer
) -> None:
    names.shrink(old, 0)
    await producer.session.keep_up_once()
    names.shrink(old, 2)
    await producer.send("orders", b"x")
    assert sent(old) == [b"x"]


async def test_a_topic_that_was_not_there_is_looked_for_anew(
    producer: Producer, names: Names, old: FakeServer, new: FakeServer
) -> None:
    old.on(310, lambda request: Command(17, remark="topic[orders] not exist"))
    with pytest.raises(RequestRefusedError, match="not exist"):
        await producer.send("orders", b"x")
    # Open transactions find their broker by it.
    assert producer.session.routes.known("orders") is not None
    names.say(id0=new.address)
    while not sent(new):
        with contextlib.suppress(RequestRefusedError):  # a route is asked for every 20 ms at most
            await producer.send("orders", b"y")
    assert sent(new) == [b"y"]
