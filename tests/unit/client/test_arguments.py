"""An error names the wrong argument, before anything is sent."""

from collections.abc import Callable
from typing import Any

import pytest

from rockhopper.client import (
    Admin,
    Consumer,
    Linger,
    Message,
    MessageRejectedError,
    Producer,
    PullConsumer,
    TransactionProducer,
)
from rockhopper.client.arguments import check_count, check_seconds
from rockhopper.client.queues import MessageQueue

ORDER = Message("orders")
QUEUE = MessageQueue("orders", "a", 0)
NO_QUEUE = "it must be a queue's number or a MessageQueue"
NO_LIST = "it must be a list of Messages; send takes a single one"
NO_HANDLE = "it must be a SendReceipt, or a topic and a recall handle"

SENDS: dict[str, Callable[..., Any]] = {
    "send": lambda producer, **more: producer.send(ORDER, **more),
    "send of a topic": lambda producer, **more: producer.send("orders", b"", **more),
    "send_batch": lambda producer, **more: producer.send_batch([ORDER], **more),
    "send_many": lambda producer, **more: producer.send_many([ORDER], **more),
    "request": lambda producer, **more: producer.request(ORDER, **more),
}
WRONG_TIMEOUTS = [
    ("3", TypeError, "timeout_s is '3': it must be a number of seconds"),
    (-1, ValueError, "timeout_s is -1 s: it must be 0 or above"),
    (float("nan"), ValueError, "timeout_s is nan s: it must be 0 or above"),
]


@pytest.mark.parametrize("wrong", ["1", None, True, 1.5])
def test_a_count_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"n is {wrong!r}: it must be a whole number"):
        check_count("n", wrong)
    check_count("n", 1)


@pytest.mark.parametrize("wrong", [-1, -0.5, float("nan")])
def test_a_time_is_not_below_zero(wrong: float) -> None:
    with pytest.raises(ValueError, match=f"t is {wrong} s: it must be 0 or above"):
        check_seconds("t", wrong, may_be_zero=True)
    check_seconds("t", 0, may_be_zero=True)
    with pytest.raises(ValueError, match="above 0"):
        check_seconds("t", 0)


@pytest.mark.parametrize(
    ("kind", "options", "wrong"),
    [
        (Producer, {"timeout_s": "3"}, TypeError),
        (Producer, {"retries": "2"}, TypeError),
        (Admin, {"request_timeout_s": "3"}, TypeError),
        (PullConsumer, {"poll_s": "3"}, TypeError),
        (PullConsumer, {"batch_size": "3"}, TypeError),
        (
            lambda **options: Consumer("billing", "orders", **options),
            {"concurrency": "4"},
            TypeError,
        ),
        (
            lambda **options: Consumer("billing", "orders", **options),
            {"concurrency": 0},
            ValueError,
        ),
        (lambda **options: Consumer("billing", "orders", **options), {"poll_s": "1"}, TypeError),
    ],
)
def test_clients_tell_when_they_are_made(
    kind: Any, options: dict[str, Any], wrong: type[Exception]
) -> None:
    with pytest.raises(wrong, match=f"^{next(iter(options))} is "):
        kind(**options)


def test_batches_tell_when_they_are_asked_for() -> None:
    count: Any = "a"
    with pytest.raises(TypeError, match="count_max is 'a'"):
        Consumer("billing", "orders").batches(count, 1.0)


async def test_a_batch_is_of_messages() -> None:
    bodies: Any = [b"x"]
    async with Producer() as producer:
        with pytest.raises(TypeError, match=r"Message\(topic, body\)"):
            await producer.send_batch(bodies)


@pytest.mark.parametrize("linger", [None, Linger()])
@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
@pytest.mark.parametrize(
    ("more", "error", "told"),
    [({"timeout_s": wrong}, error, told) for wrong, error, told in WRONG_TIMEOUTS]
    + [
        ({"queue": wrong}, TypeError, f"queue is {wrong!r}: {NO_QUEUE}")
        for wrong in ("0", b"", True, 0.0, ["a"], ("orders", "a", 0))
    ]
    + [
        (
            {"queue": MessageQueue("orders", "a", [])},  # type: ignore[arg-type]
            TypeError,
            "queue is MessageQueue(topic='orders', broker_name='a', queue_id=[]): ",
        )
    ],
)
async def test_wrong_options_of_a_send(
    linger: Linger | None,
    send: Callable[..., Any],
    more: dict[str, Any],
    error: type[Exception],
    told: str,
) -> None:
    async with Producer(linger=linger) as producer:
        with pytest.raises(error) as caught:
            await send(producer, **more)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda p: p.send(None), TypeError, "pass a Message or the name of a topic, not NoneType"),
        (lambda p: p.send(b"t"), TypeError, "pass a Message or the name of a topic, not bytes"),
        (lambda p: p.send(""), MessageRejectedError, "the topic is blank: give it a name"),
        (lambda p: p.send("t", None), TypeError, "a body is bytes or text, not NoneType"),
        (lambda p: p.send("t", tags=5), TypeError, "tags is int: it must be a string"),
        (lambda p: p.send("t", keys=b"k"), TypeError, "keys must be a string or a sequence"),
        (lambda p: p.send("t", properties=5), TypeError, "properties is int: it must be a mapping"),
        (
            lambda p: p.send("t", tags="\n"),
            MessageRejectedError,
            "the tag '\\n' is blank, so no consumer could subscribe to it: leave it out",
        ),
        (lambda p: p.send_oneway(5), TypeError, "pass a Message or the name of a topic, not int"),
        (lambda p: p.send_oneway("t", queue="0"), TypeError, f"queue is '0': {NO_QUEUE}"),
        (lambda p: p.send_many(ORDER), TypeError, f"messages is {ORDER!r}: {NO_LIST}"),
        (lambda p: p.send_many(None), TypeError, f"messages is None: {NO_LIST}"),
        (lambda p: p.send_batch(ORDER), TypeError, f"messages is {ORDER!r}: {NO_LIST}"),
        (lambda p: p.send_batch("abc"), TypeError, "a batch consists of Messages, not str"),
        (lambda p: p.request("t"), TypeError, "pass a Message, not str: Message(topic, body)"),
        (
            lambda p: p.request(ORDER, timeout_s=float("inf")),
            ValueError,
            "timeout_s is inf s: it must be finite",
        ),
        (
            lambda p: p.reply(None),
            TypeError,
            "request is None: it must be the ReceivedMessage that asks for a reply",
        ),
        (lambda p: p.reply(None, timeout_s=-1), ValueError, "timeout_s is -1 s: it must be 0 or"),
        (lambda p: p.recall(None), TypeError, f"recalled is None: {NO_HANDLE}"),
        (lambda p: p.recall(("t", None)), TypeError, f"recalled is ('t', None): {NO_HANDLE}"),
        (lambda p: p.recall(("", "h")), MessageRejectedError, "the topic is blank: give it a name"),
        (lambda p: p.recall(("t", "")), MessageRejectedError, "'' is not a recall handle"),
    ],
)
async def test_wrong_arguments_of_a_producer(
    call: Callable[[Any], Any], error: type[Exception], told: str
) -> None:
    async with Producer() as producer:
        with pytest.raises(error) as caught:
            await call(producer)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(("wrong", "error", "told"), WRONG_TIMEOUTS)
async def test_wrong_arguments_of_a_transaction(
    wrong: Any, error: type[Exception], told: str
) -> None:
    async def check(_message: object) -> None: ...

    async with TransactionProducer("billing", check=check) as producer:
        with pytest.raises(error) as caught:
            await producer.transaction(ORDER, timeout_s=wrong).__aenter__()
        assert str(caught.value) == told
        none: Any = None
        with pytest.raises(TypeError, match="pass a Message, not NoneType"):
            await producer.transaction(none).__aenter__()


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda c: c.pull("5"), TypeError, "max_count is '5': it must be a whole number"),
        (lambda c: c.pull(0), ValueError, "max_count is 0: it must be at least 1"),
        *(
            (lambda c, wrong=wrong: c.pull(timeout_s=wrong), error, told)
            for wrong, error, told in WRONG_TIMEOUTS
        ),
        (lambda c: c.seek("orders", 0), TypeError, "queue is 'orders': it must be a MessageQueue"),
        (lambda c: c.seek([], 0), TypeError, "queue is []: it must be a MessageQueue"),
        (lambda c: c.begin_offset(0), TypeError, "queue is 0: it must be a MessageQueue"),
        (lambda c: c.end_offset(None), TypeError, "queue is None: it must be a MessageQueue"),
        (lambda c: c.committed(None), TypeError, "queue is None: it must be a MessageQueue"),
        (lambda c: c.pull_from(None, 0), TypeError, "queue is None: it must be a MessageQueue"),
        (lambda c: c.pull_from(QUEUE, "0"), TypeError, "offset is '0': it must be a whole number"),
        (lambda c: c.pull_from(QUEUE, 0, None), TypeError, "max_count is None: it must be a whole"),
        (
            lambda c: c.pull_from(QUEUE, 0, wait_s=float("inf")),
            ValueError,
            "wait_s is inf s: it must be finite",
        ),
    ],
)
async def test_wrong_arguments_of_a_pull_consumer(
    call: Callable[[Any], Any], error: type[Exception], told: str
) -> None:
    async with PullConsumer(group="billing") as consumer:
        with pytest.raises(error) as caught:
            await call(consumer)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("wrong", [-1, 1 << 63, True, None, b"latest", "first", 1.5])
def test_what_is_no_position(wrong: Any) -> None:
    with pytest.raises(ValueError, match=f'^{wrong!r} is not .* "earliest" or "latest"'):
        PullConsumer("orders", start_from=wrong)
