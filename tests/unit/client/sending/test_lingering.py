"""Sends that linger: what shares a batch, what does not, and what each caller learns."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rockhopper.client import (
    ClientError,
    ClientStateError,
    Linger,
    Message,
    MessageRejectedError,
    Producer,
    RequestRefusedError,
    RequestTimeoutError,
)
from rockhopper.client.queues import MessageQueue
from rockhopper.client.receipts import SendReceipt
from rockhopper.client.sending import outgoing
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import decode_batch
from tests.support.fake_server import FakeServer, route
from tests.support.held_call import HeldCall
from tests.support.held_clock import HeldClock
from tests.support.turns import until
from tests.unit.client.test_producer import stored

ONE_TURN = Linger(wait_s=0)
FOR_EVER = Linger(wait_s=3600)
WRONG_FIELDS: list[tuple[str, Any, type[Exception]]] = [
    ("flag", 2**31, MessageRejectedError),
    ("flag", -(2**31) - 1, MessageRejectedError),
    ("flag", "1", TypeError),
    ("flag", 0.0, TypeError),
    ("flag", None, TypeError),
    ("body", "text", TypeError),
]
"""Fields set after the message was made, which no batch can contain."""


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        for code in (34, 35):
            server.on(code, lambda request: Command(0))
        server.on(310, stored(1))
        server.on(320, stored(100))
        names = ("orders", "bills", "%RETRY%readers")
        server.serve_routes({name: route({"a": server.address}) for name in names})
        yield server


def opened(server: FakeServer, linger: Linger = ONE_TURN, **more: Any) -> Producer:
    return Producer(server.address, linger=linger, timeout_s=more.pop("timeout_s", 30), **more)


def batches(server: FakeServer) -> list[list[bytes]]:
    """The bodies that came, batch by batch; of single messages as a batch of one."""
    return [
        [body for _, body, _ in decode_batch(request.body)]
        if request.code == 320
        else [request.body]
        for request in server.requests
        if request.code in (310, 320)
    ]


def several(producer: Producer, count: int = 3, **more: Any) -> "asyncio.Future[list[Any]]":
    sends = (producer.send("orders", b"%d" % number, **more) for number in range(count))
    return asyncio.gather(*sends, return_exceptions=True)


async def test_sends_of_one_turn_share_a_batch_and_each_gets_its_own_receipt(
    server: FakeServer,
) -> None:
    async with opened(server) as producer:
        receipts = await several(producer)
    assert batches(server) == [[b"0", b"1", b"2"]]
    assert [receipt.queue_offset for receipt in receipts] == [100, 101, 102]
    (request,) = server.requests_of(320)
    sent = [properties.decode() for _, _, properties in decode_batch(request.body)]
    for receipt, properties in zip(receipts, sent, strict=True):
        assert receipt.message_id in properties


async def test_tags_keys_and_properties_go_with_their_message(server: FakeServer) -> None:
    async with opened(server) as producer:
        await asyncio.gather(
            producer.send("orders", b"0", tags="new"),
            producer.send("orders", b"1", keys="o-1", properties={"region": "eu"}),
        )
    (request,) = server.requests_of(320)
    first, second = (properties for _, _, properties in decode_batch(request.body))
    assert b"TAGS\x01new" in first
    assert b"TAGS" not in second
    assert b"KEYS\x01o-1" in second
    assert b"region\x01eu" in second


async def test_one_that_waited_in_vain_goes_as_a_single_message(server: FakeServer) -> None:
    async with opened(server) as producer:
        assert (await producer.send("orders", b"x")).queue_offset == 1


async def test_without_linger_each_is_sent_by_itself(server: FakeServer) -> None:
    async with Producer(server.address) as producer:
        await several(producer)
    assert len(server.requests_of(310)) == 3


async def test_a_batch_leaves_when_its_time_is_up(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server, Linger(wait_s=0.5)) as producer:
        await producer.queues("orders")
        clock = HeldClock(monkeypatch)
        first = asyncio.ensure_future(producer.send("orders", b"0"))
        await asyncio.sleep(0)
        clock.advance(0.4)
        second = asyncio.ensure_future(producer.send("orders", b"1"))
        await asyncio.sleep(0)
        assert batches(server) == []
        clock.advance(0.1)
        await asyncio.gather(first, second)
        assert batches(server) == [[b"0", b"1"]]


async def test_a_short_timeout_is_not_spent_on_lingering(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server, FOR_EVER) as producer:
        await producer.queues("orders")
        clock = HeldClock(monkeypatch)
        sends = several(producer, timeout_s=2)
        await asyncio.sleep(0)
        clock.advance(1)
        assert all(isinstance(each, SendReceipt) for each in await sends)
        server.on(320, lambda request: None)
        sends = several(producer, timeout_s=2)
        await asyncio.sleep(0)
        clock.advance(1)
        await server.wait_for(320, 2)
        clock.advance(1)  # the time of lingering counts
        assert all(isinstance(each, RequestTimeoutError) for each in await sends)


@pytest.mark.parametrize("wait_s", [0, 0.5])
async def test_a_timeout_is_not_spent_by_a_busy_event_loop(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, wait_s: float
) -> None:
    async with opened(server, Linger(wait_s)) as producer:
        await producer.queues("orders")
        clock = HeldClock(monkeypatch)
        sends = several(producer, timeout_s=2)
        await asyncio.sleep(0)
        clock.advance(60)
        assert all(isinstance(each, SendReceipt) for each in await sends)


@pytest.mark.parametrize(
    "linger", [Linger(0, count_max=2), Linger(3600, count_max=2), Linger(0, size_bytes_max=220)]
)
async def test_a_full_batch_leaves_at_once(server: FakeServer, linger: Linger) -> None:
    async with opened(server, linger) as producer:
        await several(producer, 4)
    assert batches(server) == [[b"0", b"1"], [b"2", b"3"]]


async def test_a_full_batch_takes_its_timer_along(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server, Linger(0.5, count_max=2)) as producer:
        await producer.queues("orders")
        clock = HeldClock(monkeypatch)
        await several(producer, 2)
        clock.advance(0.4)
        later = asyncio.ensure_future(producer.send("orders", b"late"))
        await asyncio.sleep(0)
        clock.advance(0.4)
        await producer.queues("bills")  # turns enough for a timer
        assert batches(server) == [[b"0", b"1"]]
        clock.advance(0.1)
        await later
    assert batches(server) == [[b"0", b"1"], [b"late"]]


async def test_a_batch_is_no_larger_than_a_message_may_be(server: FakeServer) -> None:
    async with opened(server, message_size_bytes_max=500) as producer:
        texts = ["é" * 20, "é" * 100, "e" * 20]
        sends = (producer.send("orders", b"x" * 20, tags=text) for text in texts)
        assert all(isinstance(receipt, SendReceipt) for receipt in await asyncio.gather(*sends))
    assert [len(batch) for batch in batches(server)] == [2, 1]
    assert all(len(request.body) <= 500 for request in server.requests_of(320))


async def test_a_message_with_its_own_order_time_or_safety_does_not_linger(
    server: FakeServer,
) -> None:
    ahead: list[dict[str, Any]] = [
        {"sharding_key": "k"},
        {"delay_level": 3},
        {"deliver_at_ms": 1},
        {"priority": 1},
        {"wait_stored": False},
    ]
    async with opened(server, FOR_EVER) as producer:
        lingering = asyncio.ensure_future(producer.send("orders", b"lingers"))
        for more in ahead:
            await producer.send(Message("orders", b"ahead", **more))
        await producer.send_oneway("orders", b"ahead")
        await producer.send_batch([Message("orders", b"ahead")])
        assert not lingering.done()
    await lingering
    assert batches(server) == [[b"ahead"]] * 7 + [[b"lingers"]]


@pytest.mark.parametrize(
    ("topic", "body"),
    [("orders", bytes(9000)), ("orders", bytes(4000)), ("%RETRY%readers", b"again")],
    ids=["compressed", "larger than a batch", "retry topic"],
)
async def test_what_cannot_be_in_a_batch_leaves_by_itself_behind_those_before_it(
    server: FakeServer, topic: str, body: bytes
) -> None:
    async with opened(server, Linger(3600, size_bytes_max=4000)) as producer:
        await producer.send(topic, bytes(9000), queue=0)  # the route is known
        del server.requests[:]
        sends = [
            asyncio.ensure_future(producer.send(topic, each, queue=0))
            for each in (b"0", b"1", body)
        ]
        await sends[2]
        server.requests = [each for each in server.requests if each.code in (310, 320)]
        assert [request.code for request in server.requests] == (
            [320, 310] if topic == "orders" else [310] * 3
        )
        await asyncio.gather(*sends)


async def test_topics_queues_and_timeouts_do_not_mix(server: FakeServer) -> None:
    async with opened(server) as producer:
        queue = (await producer.queues("orders"))[1]
        sends: list[tuple[str, dict[str, Any]]] = [
            ("orders", {}),
            ("bills", {}),
            ("orders", {"queue": queue}),
            ("bills", {}),
        ]
        sends += [("orders", {"timeout_s": 9}), ("orders", {"timeout_s": 9}), ("orders", {})]
        receipts = await asyncio.gather(
            *(producer.send(topic, b"%d" % n, **more) for n, (topic, more) in enumerate(sends))
        )
    assert sorted(batches(server)) == [[b"0"], [b"1", b"3"], [b"2"], [b"4", b"5"], [b"6"]]
    assert receipts[2].queue == queue
    assert receipts[1].queue.topic == "bills"


async def test_batches_for_one_queue_keep_the_order_of_the_calls(server: FakeServer) -> None:
    async with opened(server, Linger(0, count_max=7)) as producer:
        await several(producer, 100, queue=1)
    assert [body for batch in batches(server) for body in batch] == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize("linger", [None, Linger(0)])
async def test_messages_to_one_queue_do_not_overtake_one_that_is_compressed(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, linger: Linger | None
) -> None:
    compress = HeldCall(result=b"smaller")
    monkeypatch.setattr(outgoing, "compress_zlib", compress)
    async with Producer(server.address, linger=linger, timeout_s=30) as producer:
        large = asyncio.ensure_future(producer.send("orders", bytes(100_000), queue=0))
        await compress.has_begun.wait()
        small = [
            asyncio.ensure_future(producer.send("orders", b"1", queue=0)),
            asyncio.ensure_future(producer.send(Message("orders", b"2"), queue=0)),
        ]
        await producer.send("orders", b"elsewhere", queue=1)
        assert not any(each.done() for each in [large, *small])
        compress.release()
        await asyncio.gather(large, *small)
    bodies = [body for batch in batches(server) for body in batch]
    assert bodies == [b"elsewhere", b"smaller", b"1", b"2"]


async def test_who_is_cancelled_while_lingering_is_not_in_the_batch(server: FakeServer) -> None:
    async with opened(server, FOR_EVER) as producer:
        sends = [asyncio.ensure_future(producer.send("orders", b"%d" % n)) for n in range(3)]
        lonely = asyncio.ensure_future(producer.send("bills", b"never"))
        await asyncio.sleep(0)
        sends[1].cancel()
        lonely.cancel()
    assert [receipt.queue_offset for receipt in await asyncio.gather(sends[0], sends[2])] == [
        100,
        101,
    ]
    assert batches(server) == [[b"0", b"2"]]


async def test_who_is_cancelled_under_way_leaves_the_others_alone(server: FakeServer) -> None:
    gate = asyncio.Event()

    async def answer_later(request: Command) -> Command:
        await gate.wait()
        return stored(100)(request)

    server.on(320, answer_later)
    async with opened(server) as producer:
        sends = [asyncio.ensure_future(producer.send("orders", b"%d" % n)) for n in range(3)]
        await server.wait_for(320)
        sends[1].cancel()
        gate.set()
        assert [each.queue_offset for each in await asyncio.gather(sends[0], sends[2])] == [
            100,
            102,
        ]


async def test_closing_sends_what_lingers_and_waits_for_its_receipts(server: FakeServer) -> None:
    producer = await opened(server, FOR_EVER).start()
    sends = several(producer)
    await asyncio.sleep(0)
    await producer.close()
    assert all(isinstance(receipt, SendReceipt) for receipt in sends.result())
    with pytest.raises(ClientStateError):
        await producer.send("orders", b"late")


async def test_closing_that_is_cancelled_leaves_nobody_waiting(server: FakeServer) -> None:
    server.on(320, lambda request: None)
    producer = await opened(server, FOR_EVER).start()
    sends = several(producer)
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(producer.close())
    await server.wait_for(320)
    closing.cancel()
    assert all(isinstance(outcome, ClientError) for outcome in await sends)
    with pytest.raises(asyncio.CancelledError):
        await closing


async def test_a_producer_that_is_not_open_says_so_at_once(server: FakeServer) -> None:
    with pytest.raises(ClientStateError, match="not started"):
        await opened(server, FOR_EVER).send("orders", b"x")


async def test_every_caller_gets_an_error_of_its_own(server: FakeServer) -> None:
    server.on(320, lambda request: Command(16, remark="no permission"))
    async with opened(server) as producer:
        errors = await several(producer)
    assert len({id(error) for error in errors}) == 3
    for error in errors:
        assert isinstance(error, RequestRefusedError)
        assert error.code == 16
        assert f"({server.address} refused SEND_BATCH_MESSAGE: code 16, NO_PERMISSION)" in str(
            error
        )


async def test_a_refused_batch_is_tried_on_another_broker(server: FakeServer) -> None:
    async with FakeServer() as other:
        other.on(320, lambda request: Command(2, remark="busy"))
        server.on(320, lambda request: Command(2, remark="busy"))
        server.serve_routes({"orders": route({"a": server.address, "b": other.address})})
        async with opened(server) as producer:
            errors = await several(producer)
            assert len(server.requests_of(320)) == len(other.requests_of(320)) == 1
            assert all(len(error.__notes__) == 1 for error in errors)
            assert len({id(error.__notes__) for error in errors}) == 3
            other.on(320, stored(50))
            receipts = await several(producer)
            assert [receipt.queue_offset for receipt in receipts] == [50, 51, 52]
            assert {receipt.queue.broker_name for receipt in receipts} == {"b"}


@pytest.mark.parametrize("code", [3, 13])
async def test_only_the_message_at_fault_fails(server: FakeServer, code: int) -> None:
    def pick(request: Command) -> Command:
        return Command(code, remark="not that") if request.body == b"1" else stored(1)(request)

    server.on(320, lambda request: Command(code, remark="something in it"))
    server.on(310, pick)
    async with opened(server) as producer:
        first, second, third = await several(producer, queue=0)
    assert batches(server) == [[b"0", b"1", b"2"], [b"0"], [b"1"], [b"2"]]
    assert isinstance(first, SendReceipt)
    assert isinstance(third, SendReceipt)
    assert isinstance(second, RequestRefusedError)
    assert second.remark == "not that"


async def test_a_rejected_message_or_queue_stops_no_other(server: FakeServer) -> None:
    async with opened(server) as producer:
        outcomes = await asyncio.gather(
            producer.send("orders", b"0"),
            producer.send("orders", b"1", queue=MessageQueue("orders", "nowhere", 0)),
            producer.send("orders", b"2", properties={"p": "1" * 40_000}),
            producer.send("orders", b"3"),
            return_exceptions=True,
        )
    assert [isinstance(outcome, MessageRejectedError) for outcome in outcomes] == [
        False,
        True,
        True,
        False,
    ]
    assert batches(server) == [[b"0", b"3"]]


def with_field(name: str, value: Any) -> Message:
    message = Message("orders", b"1")
    setattr(message, name, value)
    return message


@pytest.mark.parametrize(("name", "value", "error"), WRONG_FIELDS)
async def test_a_message_that_cannot_be_encoded_stops_no_other(
    server: FakeServer, name: str, value: Any, error: type[Exception]
) -> None:
    async with opened(server) as producer:
        first, wrong, last = await asyncio.gather(
            producer.send("orders", b"0"),
            producer.send(with_field(name, value)),
            producer.send("orders", b"2"),
            return_exceptions=True,
        )
    assert isinstance(first, SendReceipt)
    assert isinstance(wrong, error)
    assert name in str(wrong)
    assert isinstance(last, SendReceipt)
    assert batches(server) == [[b"0", b"2"]]


async def test_nobody_waits_for_a_batch_whose_task_was_cancelled(server: FakeServer) -> None:
    server.on(320, lambda request: None)
    async with opened(server) as producer:
        own = asyncio.all_tasks()
        sends = [asyncio.ensure_future(producer.send("orders", b"%d" % n)) for n in range(2)]
        await server.wait_for(320)
        for task in asyncio.all_tasks() - own - set(sends) - server.answering:
            task.cancel()
        await until(lambda: all(each.done() for each in sends))
        assert all(each.cancelled() for each in sends)


@pytest.mark.parametrize(
    "wrong", [{"wait_s": -1}, {"count_max": 0}, {"count_max": 40_000}, {"size_bytes_max": 0}]
)
def test_a_setting_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is {next(iter(wrong.values()))}"):
        Linger(**wrong)
