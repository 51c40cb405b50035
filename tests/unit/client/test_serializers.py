"""Bodies of values and values of bodies; what goes wrong is named."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal

import pydantic
import pytest

from rockhopper import (
    JSON,
    App,
    BodyError,
    Broker,
    Consumer,
    MessageRejectedError,
    MsgPack,
    Producer,
    PullConsumer,
    Pydantic,
    ReceivedMessage,
    Serializer,
    TransactionProducer,
    TransactionState,
)
from rockhopper.client.serializers import decode_body, encode_value
from tests.support.features import NAMES
from tests.support.hang import HANG_S


@dataclass
class Order:
    number: int
    at: datetime


class Model(pydantic.BaseModel):
    number: int
    at: datetime


class Named(pydantic.BaseModel):
    number: int = pydantic.Field(alias="orderNumber")


class Color(Enum):
    RED = "red"


AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (JSON(), {"a": [1, None, "ü"]}),
        (JSON(Order), Order(7, AT)),
        (MsgPack(), {"a": b"\x00"}),
        (MsgPack(Order), Order(7, AT)),
        (Pydantic(Model), Model(number=7, at=AT)),
        (Pydantic(list[Model]), [Model(number=7, at=AT)]),
        (Pydantic(Named), Named(orderNumber=7)),
    ],
)
def test_a_value_comes_back(serializer: Serializer, value: Any) -> None:
    body = encode_value(serializer, value)
    assert isinstance(body, bytes)
    assert decode_body(serializer, body, "it") == value


@pytest.mark.parametrize(
    ("serializer", "body", "says"),
    [
        (JSON(), b"{", "it is not JSON"),
        (JSON(Order), b'{"number":"7"}', r"number"),
        (MsgPack(), b"\xc1", "it is not MsgPack"),
        (JSON(Literal["a"]), b'"secret"', r"Literal\['a'\]: Invalid enum value$"),
        (JSON(Color), b'"secret"', "does not fit Color: Invalid enum value$"),
        (Pydantic(Model), b'{"number":"secret"}', r"fit Model: number: Inp[^\n]*; at: [^\n]*$"),
    ],
)
def test_a_bad_body_says_what_is_wrong(serializer: Serializer, body: bytes, says: str) -> None:
    with pytest.raises(BodyError, match=says) as raised:
        decode_body(serializer, body, "it")
    assert "secret" not in str(raised.value)  # it is logged, and the customer's


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class ListError(Exception):
    """As some validators raise it: `errors` is no method."""

    errors = ("the number is too small",)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (SpeechlessError(), r": <exception str\(\) failed>$"),
        (StopIteration(), "StopIteration$"),
        (ListError("too small"), "too small$"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_any_error_of_a_serializer_makes_a_bad_body(error: Exception, says: str) -> None:
    class Failing:
        def encode(self, value: Any) -> bytes:
            raise error

        def decode(self, body: bytes) -> Any:
            raise error

    with pytest.raises(BodyError, match=says):
        decode_body(Failing(), b"", "it")
    with pytest.raises(MessageRejectedError, match=says):
        encode_value(Failing(), {})


def test_what_cannot_be_encoded_is_not_sent() -> None:
    with pytest.raises(MessageRejectedError, match=r"a body of object is not JSON: .*of object"):
        encode_value(JSON(), object())
    with pytest.raises(TypeError, match="serializer"):
        encode_value(None, {"a": 1})


class Other(pydantic.BaseModel):
    amount: int = 1


@pytest.mark.parametrize(
    ("serializer", "value", "says"),
    [
        (JSON(Order), {"a": 1}, "of dict does not fit Order: .*number"),
        (JSON(Order), Order("7", AT), "of Order does not fit Order: .*number"),  # type: ignore[arg-type]
        (MsgPack(Order), {"a": 1}, "of dict does not fit Order: .*number"),
        (Pydantic(Model), {"a": 1}, "of dict does not fit Model: number: .*; at: "),
        (Pydantic(Other), Model(number=7, at=AT), "of Model does not fit Other: "),
        (Pydantic(Model), Model.model_construct(number="7", at=AT), "number"),
        (Pydantic(list[float]), [float("nan")], "JSON has no nan"),
        (JSON(), {"a": [float("inf")]}, "JSON has no inf"),
    ],
)
def test_a_value_of_another_type_is_not_sent(
    serializer: Serializer, value: object, says: str
) -> None:
    with pytest.raises(MessageRejectedError, match=says):
        encode_value(serializer, value)


def test_json_takes_models_too() -> None:
    value = {"one": Other(), "none": None}
    assert encode_value(JSON(), value) == b'{"one":{"amount":1},"none":null}'
    assert (
        encode_value(JSON(), Model(number=7, at=AT))
        == Model(number=7, at=AT).model_dump_json().encode()
    )


def test_bytes_and_text_need_none() -> None:
    assert (encode_value(None, b"x"), encode_value(None, "x"), encode_value(JSON(), b"x")) == (
        b"x",
        "x",
        b"x",
    )
    assert encode_value(JSON(), "x") == b'"x"'


@pytest.mark.parametrize("wrong", [JSON, object(), 5])
def test_what_is_no_serializer_is_refused_when_a_client_is_made(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"serializer is .*encode.* serializer=JSON\(\)"):
        Producer(serializer=wrong)
    with pytest.raises(TypeError, match=r"deserializer is .*decode"):
        Consumer("billing", "orders", deserializer=wrong)
    with pytest.raises(TypeError, match=r"deserializer is .*decode"):
        PullConsumer("orders", deserializer=wrong)
    with pytest.raises(TypeError, match=r"serializer is .*encode"):
        App(serializer=wrong)


async def test_batches_delays_requests_and_transactions_carry_values() -> None:
    async def nothing_recorded(_message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async with Broker.temporary() as broker:
        asking = TransactionProducer(
            "asking",
            check=nothing_recorded,
            nameserver=broker.nameserver,
            serializer=JSON(Order),
            deserializer=JSON(),
            timeout_s=HANG_S,
        )

        async def reply(message: ReceivedMessage) -> None:
            await asking.reply(message, b'{"seen": 1}')

        answering = Consumer("answering", "questions", nameserver=broker.nameserver, handler=reply)
        billing = Consumer(
            "billing", "orders", nameserver=broker.nameserver, deserializer=JSON(Order)
        )
        async with asking, answering, billing:
            await asking.send(asking.message("orders", Order(1, AT), delay_s=0.1))
            await asking.send_batch([asking.message("orders", Order(2, AT), tags="new")])
            numbers = {1, 2}
            if "transactions" in NAMES:
                async with asking.transaction(asking.message("orders", Order(3, AT))):
                    numbers.add(3)
            if "request_reply" in NAMES:
                replied = await asking.request(asking.message("questions", Order(4, AT)))
                assert replied.value == {"seen": 1}
            async with asyncio.timeout(HANG_S):
                messages = aiter(billing)
                assert {(await anext(messages)).value.number for _ in numbers} == numbers
            with pytest.raises(MessageRejectedError, match="does not fit Order"):
                asking.message("orders", {"number": "x"})
