"""Bodies of values and values of bodies; what goes wrong is named."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pydantic
import pytest

from rockhopper import (
    JSON,
    App,
    BodyError,
    Consumer,
    MessageRejectedError,
    MsgPack,
    Producer,
    PullConsumer,
    Pydantic,
    Serializer,
)
from rockhopper.client.serializers import decoded, encoded


@dataclass
class Order:
    number: int
    at: datetime


class Model(pydantic.BaseModel):
    number: int
    at: datetime


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
    ],
)
def test_a_value_comes_back(serializer: Serializer, value: Any) -> None:
    body = encoded(serializer, value)
    assert isinstance(body, bytes)
    assert decoded(serializer, body, "it") == value


@pytest.mark.parametrize(
    ("serializer", "body", "says"),
    [
        (JSON(), b"{", "it is no JSON"),
        (JSON(Order), b'{"number":"7"}', r"number"),
        (MsgPack(), b"\xc1", "MsgPack"),
        (Pydantic(Model), b'{"number":1}', "at"),
    ],
)
def test_a_bad_body_says_what_is_wrong(serializer: Serializer, body: bytes, says: str) -> None:
    with pytest.raises(BodyError, match=says):
        decoded(serializer, body, "it")


def test_what_cannot_be_encoded_is_not_sent() -> None:
    with pytest.raises(MessageRejectedError, match="object by JSON"):
        encoded(JSON(), object())
    with pytest.raises(TypeError, match="serializer"):
        encoded(None, {"a": 1})


def test_bytes_and_text_need_none() -> None:
    assert (encoded(None, b"x"), encoded(None, "x"), encoded(JSON(), b"x")) == (b"x", "x", b"x")
    assert encoded(JSON(), "x") == b'"x"'


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
