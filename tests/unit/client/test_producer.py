"""Producer: what goes out, when it is tried again, what comes back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from rockhopper.client import (
    ClientStateError,
    Message,
    MessageRejectedError,
    Producer,
    RequestRefusedError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import SendReceipt, SendStatus
from rockhopper.protocol.codes import FLAG_ONEWAY
from rockhopper.protocol.command import Command
from rockhopper.protocol.properties import decode_properties
from rockhopper.protocol.store.message_codec import decode_batch
from tests.support.fake_server import FakeServer, route
from tests.support.held_clock import HeldClock
from tests.support.turns import until

ORDERS = Message("orders", b"hello", tags="new", keys=["o-1"], properties={"region": "eu"})


def stored(offset: int = 7, code: int = 0, **more: str) -> Callable[[Command], Command]:
    def answer(request: Command) -> Command:
        assert request.ext is not None
        return Command(
            code,
            ext={
                "queueId": request.ext["e"],
                "queueOffset": str(offset),
                "msgId": "7F00000100002A9F0000000000000400",
                **more,
            },
        )

    return answer


@pytest.fixture
async def first() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        server.on(310, stored())
        server.on(320, stored())
        yield server


@pytest.fixture
async def second() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        server.on(310, stored())
        yield server


@pytest.fixture
async def name_service(first: FakeServer, second: FakeServer) -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        server.serve_routes(
            {
                "orders": route({"a": first.address, "b": second.address}),
                "single": route({"a": first.address}),
                "readonly": route({"a": first.address}, perm=4),
                "TBW102": route({"a": first.address}, perm=7),
            }
        )
        yield server


@pytest.fixture
async def producer(name_service: FakeServer) -> AsyncIterator[Producer]:
    async with Producer(name_service.address, group="billing") as producer:
        yield producer


async def test_the_request_says_what_java_s_says(producer: Producer, first: FakeServer) -> None:
    await producer.send(Message("single", b"hello", tags="new"), queue=2)
    (request,) = first.requests_of(310)
    ext = request.ext
    assert ext is not None
    assert request.body == b"hello"
    fixed = {name: ext[name] for name in "abcdefhjkmn"}
    assert fixed == {
        "a": "billing",
        "b": "single",
        "c": "TBW102",
        "d": "4",
        "e": "2",
        "f": "0",
        "h": "0",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "a",
    }
    assert decode_properties(ext["i"])["TAGS"] == "new"
    assert ext["g"].isdigit()


async def test_the_receipt_says_where_the_message_is(producer: Producer, first: FakeServer) -> None:
    receipt = await producer.send("single", "text", keys=["k"], queue=1)
    (request,) = first.requests_of(310)
    assert request.ext is not None
    assert receipt.queue == MessageQueue("single", "a", 1)
    assert receipt.queue_offset == 7
    assert receipt.offset_message_id == "7F00000100002A9F0000000000000400"
    assert receipt.message_id == decode_properties(request.ext["i"])["UNIQ_KEY"]
    assert receipt.status is SendStatus.OK
    assert request.body == b"text"


KEYS = [("o-1", "o-1"), ("o-1 o-2", "o-1 o-2"), (["o-1"], "o-1"), (("o-1", "o-2"), "o-1 o-2")]


@pytest.mark.parametrize(("keys", "stored_as"), KEYS)
async def test_keys_are_a_string_or_a_sequence_wherever_they_are_taken(
    producer: Producer, first: FakeServer, keys: str | Sequence[str], stored_as: str
) -> None:
    await producer.send("single", b"x", keys=keys)
    await producer.send(Message("single", b"x", keys=keys))
    await producer.send_oneway("single", b"x", keys=keys)
    await until(lambda: len(first.requests_of(310)) == 3)
    for request in first.requests_of(310):
        assert request.ext is not None
        assert decode_properties(request.ext["i"])["KEYS"] == stored_as


@pytest.mark.parametrize("status", [10, 11, 12])
async def test_stored_but_not_confirmed_counts_as_sent(
    producer: Producer, first: FakeServer, status: int
) -> None:
    first.on(310, stored(code=status))
    assert (await producer.send("single", b"x")).status == status
    assert len(first.requests_of(310)) == 1


async def test_sends_take_the_queues_in_turn(producer: Producer) -> None:
    receipts = [await producer.send("orders", b"x") for _ in range(16)]
    assert len({receipt.queue for receipt in receipts}) == 8


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500])
async def test_a_refusal_that_another_broker_may_not_share_is_tried_there(
    producer: Producer, first: FakeServer, second: FakeServer, code: int
) -> None:
    first.on(310, lambda request: Command(code, remark="not me"))
    for _ in range(8):
        assert (await producer.send("orders", b"x")).queue.broker_name == "b"
    assert len(first.requests_of(310)) >= 1


async def test_a_refusal_that_any_broker_would_share_is_raised_at_once(
    producer: Producer, first: FakeServer, second: FakeServer
) -> None:
    for server in (first, second):
        server.on(310, lambda request: Command(13, remark="the message is illegal"))
    with pytest.raises(RequestRefusedError, match="the message is illegal") as caught:
        await producer.send("orders", b"x")
    assert caught.value.code == 13
    assert caught.value.remark == "the message is illegal"
    assert caught.value.address in (first.address, second.address)
    assert len(first.requests_of(310)) + len(second.requests_of(310)) == 1


async def test_when_every_broker_refuses_the_last_error_remembers_the_others(
    producer: Producer, first: FakeServer, second: FakeServer
) -> None:
    for server in (first, second):
        server.on(310, lambda request: Command(2, remark="busy"))
    with pytest.raises(RequestRefusedError) as caught:
        await producer.send("orders", b"x")
    (note, *_) = caught.value.__notes__
    other = {first.address, second.address} - {caught.value.address}
    assert other.pop() in note


async def test_a_broker_that_is_down_is_passed_over(
    producer: Producer, first: FakeServer, second: FakeServer
) -> None:
    await first.stop_listening()
    first.drop_connections()
    names = {(await producer.send("orders", b"x")).queue.broker_name for _ in range(8)}
    assert names == {"b"}


async def test_a_broker_that_hangs_leaves_time_for_another(
    producer: Producer, first: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HeldClock(monkeypatch)
    first.on(310, lambda request: clock.advance(1.5))
    # One for each queue: the first of them is taken by chance.
    receipts = [await producer.send("orders", b"x", timeout_s=2) for _ in range(8)]
    assert first.requests_of(310)
    assert {receipt.queue.broker_name for receipt in receipts} == {"b"}


async def test_a_message_tried_again_keeps_its_id(
    producer: Producer, first: FakeServer, second: FakeServer
) -> None:
    first.on(310, lambda request: Command(1))
    second.on(310, lambda request: Command(1))
    with pytest.raises(RequestRefusedError):
        await producer.send("orders", b"x")
    tries = first.requests_of(310) + second.requests_of(310)
    assert len(tries) == 2
    assert len({(request.ext or {})["i"] for request in tries}) == 1


async def test_a_send_to_a_chosen_queue_is_not_sent_elsewhere(
    producer: Producer, first: FakeServer, second: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HeldClock(monkeypatch)
    first.on(310, lambda request: clock.advance(2))
    with pytest.raises(RequestTimeoutError):
        await producer.send("orders", b"x", queue=MessageQueue("orders", "a", 0), timeout_s=2)
    assert second.requests_of(310) == []
    assert len(first.requests_of(310)) == 1


async def test_messages_of_one_sharding_key_go_to_one_queue(producer: Producer) -> None:
    receipts = [
        await producer.send(Message("orders", b"x", sharding_key=key))
        for key in ("alice", "bob", "carol", "dave") * 3
    ]
    by_key: dict[int, set[MessageQueue]] = {}
    for index, receipt in enumerate(receipts):
        by_key.setdefault(index % 4, set()).add(receipt.queue)
    assert all(len(queues) == 1 for queues in by_key.values())


async def test_a_batch_is_one_request_and_one_receipt_for_each_message(
    producer: Producer, first: FakeServer
) -> None:
    first.on(320, stored(offset=40, msgId="ID1,ID2,ID3"))
    messages = [Message("single", b"%d" % number) for number in range(3)]
    receipts = await producer.send_batch(messages)
    (request,) = first.requests_of(320)
    assert (request.ext or {})["m"] == "true"
    assert [body for _, body, _ in decode_batch(request.body)] == [b"0", b"1", b"2"]
    assert [receipt.queue_offset for receipt in receipts] == [40, 41, 42]
    assert [receipt.offset_message_id for receipt in receipts] == ["ID1", "ID2", "ID3"]


async def test_the_one_id_of_an_inner_batch_stands_for_all_its_messages(
    producer: Producer, first: FakeServer
) -> None:
    first.on(320, stored(offset=40, msgId="ID", batchUniqId="B"))
    receipts = await producer.send_batch([Message("single"), Message("single")])
    assert [receipt.offset_message_id for receipt in receipts] == ["ID", "ID"]
    assert [receipt.queue_offset for receipt in receipts] == [40, 41]


async def test_an_empty_batch_sends_nothing(producer: Producer, first: FakeServer) -> None:
    assert await producer.send_batch([]) == []
    assert first.requests == []


async def test_a_oneway_send_is_flagged_and_waits_for_nothing(
    producer: Producer, first: FakeServer
) -> None:
    first.on(310, lambda request: None)
    await producer.send_oneway("single", b"x")
    (request,) = await first.wait_for(310)
    assert request.flag & FLAG_ONEWAY


async def test_an_unknown_topic_goes_to_the_brokers_that_create_topics(
    producer: Producer, first: FakeServer
) -> None:
    receipt = await producer.send("brand-new", b"x")
    assert receipt.queue.topic == "brand-new"
    assert receipt.queue.broker_name == "a"


async def test_a_topic_deleted_meanwhile_is_looked_up_again(
    producer: Producer, name_service: FakeServer, first: FakeServer, second: FakeServer
) -> None:
    await producer.send("orders", b"x")
    first.on(310, lambda request: Command(17, remark="topic not exist"))
    looked_up = len(name_service.requests_of(105))
    receipts = [await producer.send("orders", b"x") for _ in range(8)]
    assert {receipt.queue.broker_name for receipt in receipts} == {"b"}
    assert len(name_service.requests_of(105)) > looked_up


async def test_a_topic_that_may_only_be_read_says_so(producer: Producer) -> None:
    with pytest.raises(RouteNotFoundError, match="no writable queue"):
        await producer.send("readonly", b"x")


async def test_a_rejected_message_asks_nobody(producer: Producer, name_service: FakeServer) -> None:
    with pytest.raises(MessageRejectedError):
        await producer.send("a/b", b"x")
    with pytest.raises(ValueError, match="belongs to RocketMQ"):
        await producer.send("orders", b"x", properties={"UNIQ_KEY": "mine"})
    with pytest.raises(MessageRejectedError, match="pass those to Message"):
        await producer.send(ORDERS, tags="twice")
    assert name_service.requests == []


async def test_the_group_is_announced_on_connecting_and_taken_back_on_closing(
    name_service: FakeServer, first: FakeServer
) -> None:
    first.on(34, lambda request: Command(0))
    first.on(35, lambda request: Command(0))
    async with Producer(name_service.address, group="billing") as producer:
        await producer.send("single", b"x")
    (heartbeat,) = first.requests_of(34)
    assert b'"producerDataSet":[{"groupName":"billing"}]' in heartbeat.body
    (farewell,) = first.requests_of(35)
    assert (farewell.ext or {})["producerGroup"] == "billing"
    assert (farewell.ext or {})["clientID"].encode() in heartbeat.body
    assert first.requests[0] is heartbeat


@pytest.mark.parametrize("group", ["", "my producers", "x" * 300])
def test_a_name_that_cannot_be_a_group_is_refused(group: str) -> None:
    with pytest.raises(ValueError, match="the group "):
        Producer(group=group)


async def test_a_producer_used_before_start_or_after_close_says_so(
    name_service: FakeServer,
) -> None:
    producer = Producer(name_service.address)
    with pytest.raises(ClientStateError, match="async with"):
        await producer.send("single", b"x")
    await producer.start()
    await producer.close()
    await producer.close()
    with pytest.raises(ClientStateError, match="closed"):
        await producer.send("single", b"x")


async def test_a_cancelled_send_leaves_the_producer_usable(
    producer: Producer, first: FakeServer
) -> None:
    first.on(310, lambda request: None)
    task = asyncio.create_task(producer.send("single", b"x"))
    await first.wait_for(310)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    first.on(310, stored())
    assert (await producer.send("single", b"x")).queue_offset == 7


async def test_gathered_sends_survive_a_broker_that_dies_in_between(
    producer: Producer, first: FakeServer, second: FakeServer
) -> None:
    answered = 0

    async def die() -> None:
        await first.stop_listening()
        first.drop_connections()

    def answer_a_few(request: Command) -> Command | Awaitable[None]:
        nonlocal answered
        answered += 1
        return stored()(request) if answered < 5 else die()

    first.on(310, answer_a_few)
    bodies = [b"%d" % number for number in range(100)]
    receipts = await asyncio.gather(*(producer.send("orders", body) for body in bodies))
    assert {receipt.queue.broker_name for receipt in receipts} == {"a", "b"}
    on_second = {request.body for request in second.requests_of(310)}
    lost = [
        body
        for body, receipt in zip(bodies, receipts, strict=True)
        if receipt.queue.broker_name == "b" and body not in on_second
    ]
    assert not lost
    assert len({receipt.message_id for receipt in receipts}) == 100


async def test_cancelling_one_of_gathered_sends_leaves_the_others_alone(
    producer: Producer, first: FakeServer
) -> None:
    gate = asyncio.Event()

    async def answer_later(request: Command) -> Command:
        await gate.wait()
        return stored()(request)

    first.on(310, answer_later)
    sends = [asyncio.create_task(producer.send("single", b"%d" % n)) for n in range(10)]
    await first.wait_for(310, 10)
    sends[3].cancel()
    gate.set()
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert isinstance(outcomes.pop(3), asyncio.CancelledError)
    assert all(isinstance(outcome, SendReceipt) for outcome in outcomes)


@pytest.mark.parametrize(
    "parts", [{}, {"tags": "new"}, {"keys": ["k"]}, {"properties": {"p": "1"}}]
)
async def test_a_message_in_parts_and_a_whole_one_go_out_alike(
    producer: Producer, first: FakeServer, parts: dict[str, Any]
) -> None:
    await producer.send("single", b"body", **parts)
    await producer.send(Message("single", b"body", **parts))
    one, other = (request.ext or {} for request in first.requests_of(310))
    for ext in (one, other):
        properties = decode_properties(ext.pop("i"))
        assert len(properties.pop("UNIQ_KEY")) == 32
        ext["properties"] = str(properties)
        del ext["g"], ext["e"]
    assert one == other
