"""What a function gets, by its annotations."""

from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from rockhopper import MessageQueue, ReceivedMessage
from rockhopper.client.app.handlers import HandlerCall
from rockhopper.protocol.message import StoredMessage


@dataclass
class Order:
    number: int


class Model(pydantic.BaseModel):
    number: int


def message(body: bytes) -> ReceivedMessage:
    return ReceivedMessage(MessageQueue("orders", "a", 0), StoredMessage("orders", 0, 0, 0, body))


async def whole(one: ReceivedMessage) -> Any:
    return one.body


async def bare(one) -> Any:  # type: ignore[no-untyped-def]
    return one.body


async def raw(body: bytes) -> Any:
    return body


async def text(body: str) -> Any:
    return body


async def order(one: Order, *, database: str = "given") -> Any:
    return one


async def several(some: list[Model]) -> Any:
    return some


def plain(one: Model, of: ReceivedMessage) -> Any:
    return one, of.topic


@pytest.mark.parametrize(
    ("function", "body", "result"),
    [
        (whole, b"x", b"x"),
        (bare, b"x", b"x"),
        (raw, b"x", b"x"),
        (text, "ü".encode(), "ü"),
        (order, b'{"number":7}', Order(7)),
        (several, b'[{"number":7}]', [Model(number=7)]),
        (plain, b'{"number":7}', (Model(number=7), "orders")),
    ],
)
async def test_it_gets_what_it_names(function: Any, body: bytes, result: Any) -> None:
    call = HandlerCall(function)
    received = message(body)
    received.deserializer = call.deserializer
    assert await call(received) == result


def none() -> None: ...
def filled(one: Order | None = None) -> None: ...
def twice(one: Order, other: dict[str, int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (none, "subscriber none must take"),
        (filled, "subscriber filled must take .*'one' has a default"),
        (twice, "subscriber twice .*'other'"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(function: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        HandlerCall(function)
