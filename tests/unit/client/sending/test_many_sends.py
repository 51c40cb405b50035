"""send_many: what shares a batch, the order, and the outcome of each message."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockhopper.client import (
    ClientStateError,
    EarlierSendFailedError,
    Message,
    MessageRejectedError,
    Middleware,
    NotAllSentError,
    Producer,
    RequestRefusedError,
    RouteNotFoundError,
    Sending,
)
from rockhopper.client.middleware.hooks import SendNext
from rockhopper.client.receipts import SendReceipt
from rockhopper.client.sending import many_sends
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import decode_batch
from tests.support.fake_server import FakeServer, route
from tests.support.turns import until
from tests.unit.client.sending.test_lingering import batches
from tests.unit.client.test_producer import stored

TOPICS = ("orders", "bills", "%RETRY%readers")


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with made_server() as server:
        yield server


def made_server() -> FakeServer:
    server = FakeServer()
    for code in (34, 35):
        server.on(code, lambda request: Command(0))
    server.on(310, stored(1))
    server.on(320, stored(100))
    return server


@pytest.fixture
async def producer(server: FakeServer) -> AsyncIterator[Producer]:
    async with opened(server) as producer:
        yield producer


def opened(server: FakeServer, **more: Any) -> Producer:
    server.serve_routes({name: route({"a": server.address}) for name in TOPICS})
    return Producer(server.address, timeout_s=30, **more)


def numbered(count: int, **more: Any) -> list[Message]:
    return [Message("orders", b"%d" % number, **more) for number in range(count)]


def list_bodies(server: FakeServer) -> list[bytes]:
    return [body for batch in batches(server) for body in batch]


async def test_each_message_has_its_own_receipt_in_their_order(
    producer: Producer, server: FakeServer
) -> None:
    messages = numbered(4)
    messages[1].topic = messages[3].topic = "bills"
    receipts = await producer.send_many(messages)
    assert [each.queue.topic for each in receipts] == ["orders", "bills"] * 2
    assert [each.queue_offset for each in receipts] == [100, 100, 101, 101]
    assert sorted(batches(server)) == [[b"0", b"2"], [b"1", b"3"]]
    sent = {
        body: properties.decode()
        for request in server.requests_of(320)
        for _, body, properties in decode_batch(request.body)
    }
    for number, receipt in enumerate(receipts):
        assert receipt.message_id in sent[b"%d" % number]
    assert len({each.message_id for each in receipts}) == 4


async def test_nothing_is_sent_for_no_message(producer: Producer, server: FakeServer) -> None:
    assert await producer.send_many([]) == []
    assert await producer.send_many(iter(numbered(1)))
    assert batches(server) == [[b"0"]]


async def test_a_batch_has_a_thousand_messages_at_most(
    producer: Producer, server: FakeServer
) -> None:
    receipts = await producer.send_many(numbered(2001))
    assert sorted(map(len, batches(server))) == [1, 1000, 1000]
    assert len(receipts) == 2001


async def test_a_batch_is_no_larger_than_linger_s_or_than_a_message_may_be(
    server: FakeServer,
) -> None:
    async with opened(server, compress_above_bytes=None) as producer:
        await producer.send_many([Message("orders", bytes(100_000)) for _ in range(5)])
        assert sorted(map(len, batches(server))) == [1, 2, 2]
    async with opened(server, message_size_bytes_max=1000) as producer:
        del server.requests[:]
        keys = ["k" * 100] * 6
        await producer.send_many([Message("orders", b"x", keys=[key]) for key in keys])
        assert len(batches(server)) > 1
        assert all(len(request.body) <= 1000 for request in server.requests_of(320))


@pytest.mark.parametrize(
    "odd",
    [
        {"delay_level": 3},
        {"delay_s": 5},
        {"deliver_at_ms": 1},
        {"priority": 1},
        {"body": bytes(5000)},
        {"topic": "%RETRY%readers"},
    ],
    ids=lambda odd: next(iter(odd)),
)
async def test_what_no_batch_may_contain_is_sent_alone(
    producer: Producer, server: FakeServer, odd: dict[str, Any]
) -> None:
    messages = [*numbered(2), Message(**{"topic": "orders", "body": b"odd"} | odd), *numbered(2)]
    receipts = await producer.send_many(messages)
    assert sorted(map(len, batches(server))) in ([1, 2, 2], [1, 4])
    assert [each.queue_offset for each in receipts] == [
        *(100, 101, 1),
        *((100, 101) if len(batches(server)) == 3 else (102, 103)),
    ]


async def test_messages_of_a_key_stay_in_order_whatever_they_need(
    producer: Producer, server: FakeServer
) -> None:
    def keyed(number: int, **more: Any) -> Message:
        return Message("orders", b"%d" % number, **{"sharding_key": "k"} | more)

    messages = [
        keyed(0),
        keyed(1, sharding_key="other"),
        keyed(2),
        keyed(3, wait_stored=False),
        keyed(4),
        keyed(5),
        keyed(6, delay_s=1),
        keyed(7),
    ]
    await producer.send_many(messages)
    found = [each for each in batches(server) if each != [b"1"]]
    assert found == [[b"0", b"2"], [b"3"], [b"4", b"5"], [b"6"], [b"7"]]


async def test_a_message_that_breaks_a_rule_fails_alone(
    producer: Producer, server: FakeServer
) -> None:
    messages = numbered(3)
    messages[1].tags = "a||b"
    with pytest.raises(NotAllSentError, match=r"1 of 3 messages failed; .* number 1: ") as caught:
        await producer.send_many(messages)
    first, error, last = caught.value.outcomes
    assert isinstance(first, SendReceipt)
    assert isinstance(error, MessageRejectedError)
    assert isinstance(last, SendReceipt)
    assert caught.value.failures == {1: error}
    assert sorted(batches(server)) == [[b"0"], [b"2"]]


@pytest.mark.parametrize(("flag", "error"), [(2**31, MessageRejectedError), ("1", TypeError)])
@pytest.mark.parametrize("more", [{}, {"tags": "a"}])
async def test_a_message_whose_flag_cannot_be_encoded_fails_alone(
    producer: Producer, server: FakeServer, flag: Any, error: type[Exception], more: dict[str, Any]
) -> None:
    messages = numbered(3, **more)
    messages[1].flag = flag
    with pytest.raises(NotAllSentError) as caught:
        await producer.send_many(messages)
    assert list(caught.value.failures) == [1]
    assert isinstance(caught.value.failures[1], error)
    with pytest.raises(error, match=r"^flag is .*(32 bits, -2147483648 to 2147483647|number)"):
        await producer.send_batch(messages)


@pytest.mark.parametrize("code", [3, 13])
async def test_of_a_batch_refused_as_invalid_only_the_invalid_messages_fail(
    producer: Producer, server: FakeServer, code: int
) -> None:
    server.on(320, lambda request: Command(code, remark="a message is bad"))
    server.on(310, lambda request: Command(13) if request.body == b"1" else stored(1)(request))
    with pytest.raises(NotAllSentError) as caught:
        await producer.send_many(numbered(3))
    assert list(caught.value.failures) == [1]
    (batch,) = server.requests_of(320)
    ids = [properties for _, _, properties in decode_batch(batch.body)]
    for outcome, properties in zip(caught.value.outcomes, ids, strict=True):
        if isinstance(outcome, SendReceipt):
            assert outcome.message_id.encode() in properties


async def test_a_batch_that_fails_has_an_error_for_each_of_its_messages(
    producer: Producer, server: FakeServer
) -> None:
    def refuse_bills(request: Command) -> Command:
        assert request.ext is not None
        return Command(16) if request.ext["b"] == "bills" else stored(100)(request)

    server.on(320, refuse_bills)
    messages = numbered(5)
    for each in messages[1:3]:
        each.topic = "bills"
    messages.append(Message("unknown"))
    with pytest.raises(NotAllSentError) as caught:
        await producer.send_many(messages)
    failures = caught.value.failures
    assert list(failures) == [1, 2, 5]
    assert isinstance(failures[1], RequestRefusedError)
    assert failures[1] is not failures[2]
    assert isinstance(failures[5], RouteNotFoundError)
    stored_at = [each.queue_offset for each in caught.value.outcomes if type(each) is SendReceipt]
    assert stored_at == [100, 101, 102]


async def test_nothing_overtakes_a_message_of_its_key_that_failed(
    producer: Producer, server: FakeServer
) -> None:
    server.on(320, lambda request: Command(16))
    messages = [
        *numbered(2, sharding_key="k"),
        Message("orders", b"later", sharding_key="k", delay_s=1),
    ]
    with pytest.raises(NotAllSentError) as caught:
        await producer.send_many(messages)
    kinds = [type(each) for each in caught.value.outcomes]
    assert kinds == [RequestRefusedError, RequestRefusedError, EarlierSendFailedError]
    assert server.requests_of(310) == []


@pytest.mark.parametrize("count", [1, 3, 2500])
async def test_later_sends_do_not_overtake_its_keys(
    producer: Producer, server: FakeServer, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(many_sends, "_SLICE_COUNT", 1000)
    late = Message("orders", b"late", sharding_key="k")
    await asyncio.gather(
        producer.send_many(numbered(count, sharding_key="k")),
        producer.send(late),
        producer.send_many([late, late]),
        producer.send_batch([late]),
        producer.send_oneway(late),
    )
    await until(lambda: len(list_bodies(server)) == count + 5)
    bodies = list_bodies(server)
    assert bodies[:count] == [b"%d" % number for number in range(count)]
    assert set(bodies[count:]) == {b"late"}


async def test_a_batch_refused_as_invalid_refuses_nobody_of_its_key(
    producer: Producer, server: FakeServer
) -> None:
    server.on(320, lambda request: Command(13, remark="too large"))
    await asyncio.gather(
        producer.send_many(numbered(2500, sharding_key="k")),
        producer.send(Message("orders", b"2500", sharding_key="k")),
    )
    bodies = [request.body for request in server.requests_of(310)]
    assert bodies == [b"%d" % number for number in range(2501)]


async def test_messages_behind_one_that_a_refused_batch_contained_fail_with_it(
    producer: Producer, server: FakeServer
) -> None:
    server.on(320, lambda request: Command(13))
    server.on(310, lambda request: Command(13) if request.body == b"1" else stored(1)(request))
    messages = [*numbered(3, sharding_key="k"), Message("orders", b"x" * 5000, sharding_key="k")]
    many, after = await asyncio.gather(
        producer.send_many(messages),
        producer.send(messages[0]),
        return_exceptions=True,
    )
    assert isinstance(many, NotAllSentError)
    assert [type(each) for each in many.outcomes] == [
        SendReceipt,
        RequestRefusedError,
        EarlierSendFailedError,
        EarlierSendFailedError,
    ]
    assert isinstance(after, EarlierSendFailedError)


async def test_what_is_no_message_is_refused_before_any_is_sent(
    producer: Producer, server: FakeServer
) -> None:
    with pytest.raises(TypeError, match="consists of Messages, not bytes"):
        await producer.send_many([*numbered(1), b"x"])  # type: ignore[list-item]
    assert batches(server) == []


async def test_a_producer_that_is_not_open_says_so_at_once(server: FakeServer) -> None:
    with pytest.raises(ClientStateError, match="not started"):
        await opened(server).send_many(numbered(1))


async def test_a_cancelled_call_leaves_the_producer_usable(
    producer: Producer, server: FakeServer
) -> None:
    def never(_request: Command) -> Awaitable[Command]:
        return asyncio.get_running_loop().create_future()

    server.on(320, never)
    sending = asyncio.ensure_future(producer.send_many(numbered(2)))
    await server.wait_for(320)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    server.on(320, stored(100))
    assert len(await producer.send_many(numbered(2))) == 2


async def test_the_chosen_queue_and_middleware_see_the_call_as_one(server: FakeServer) -> None:
    seen: list[tuple[str, int]] = []

    class Watch(Middleware):
        async def on_send(self, sending: Sending, call_next: SendNext) -> Sequence[SendReceipt]:
            seen.append((sending.operation, len(sending.messages)))
            return await call_next(sending)

    async with opened(server, middleware=[Watch()]) as producer:
        receipts = await producer.send_many(numbered(3), queue=1)
    assert seen == [("send_many", 3)]
    assert {each.queue.queue_id for each in receipts} == {1}


async def test_a_trace_has_every_message(server: FakeServer) -> None:
    async with opened(server, trace="bills") as producer:
        receipts = await producer.send_many(numbered(3))
    (trace,) = [each for each in server.requests if b"Pub\x01" in each.body]
    assert [receipt.message_id.encode() in trace.body for receipt in receipts] == [True] * 3


MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["orders", "bills", "unknown"]),
    body=st.sampled_from([b"good", b"good", b"bad", bytes(5000)]),
    tags=st.sampled_from([None, None, "t", "a||b"]),
    sharding_key=st.sampled_from([None, None, "k"]),
    delay_s=st.sampled_from([None, None, None, 1.0]),
)


@settings(max_examples=30, deadline=None)
@given(messages=st.lists(MESSAGES, max_size=8))
def test_messages_succeed_and_fail_as_they_would_alone(messages: list[Message]) -> None:
    async def outcomes() -> tuple[list[Any], list[Any]]:
        async with made_server() as server:

            def judge(request: Command) -> Command:
                return Command(13) if b"bad" in request.body else stored(1)(request)

            server.on(310, judge)
            server.on(320, judge)
            async with opened(server) as producer:
                try:
                    together: list[Any] = list(await producer.send_many(messages))
                except NotAllSentError as error:
                    together = error.outcomes
                alone = await asyncio.gather(*map(producer.send, messages), return_exceptions=True)
                return together, alone

    together, alone = asyncio.run(outcomes())
    for message, one, other in zip(messages, together, alone, strict=True):
        if message.sharding_key is None:
            assert type(one) is type(other)
        else:  # behind a failure of its key it is not sent
            assert isinstance(one, type(other) | EarlierSendFailedError) or isinstance(
                other, EarlierSendFailedError
            )
