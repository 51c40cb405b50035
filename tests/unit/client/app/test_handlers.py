"""What a function gets, by its annotations."""

import functools
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from rockhopper import JSON, BodyError, MessageQueue, ReceivedMessage
from rockhopper.client.app.handlers import HandlerCall, TextAsItIs
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


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timing(*arguments: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()  # it may block
        return function(*arguments)

    return timing


class Shop:
    async def __call__(self, body: bytes) -> Any:
        return body

    async def bill(self, body: bytes) -> Any:
        return body

    def wrong(self, body: bytes) -> None: ...


class Wrapping:
    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        return self.__wrapped__(*arguments)  # type: ignore[attr-defined]


async def keyed(database: str, one: Order) -> Any:
    return database, one


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
        (timed(raw), b"x", b"x"),
        (Wrapping(raw), b"x", b"x"),
        (Shop(), b"x", b"x"),
        (Shop().bill, b"x", b"x"),
        (functools.partial(timed(raw)), b"x", b"x"),
        (functools.partial(Shop()), b"x", b"x"),
        (functools.partial(keyed, "given"), b'{"number":7}', ("given", Order(7))),
        (functools.partial(keyed, database="given"), b'{"number":7}', ("given", Order(7))),
    ],
)
async def test_it_gets_what_it_names(function: Any, body: bytes, result: Any) -> None:
    call = HandlerCall(function, 1)
    received = message(body)
    received.deserializer = call.deserializer
    assert await call(received) == result
    call.threads.stop()


class Colour(StrEnum):
    RED = "red"


def test_text_is_its_own_body_and_all_else_the_serializers() -> None:
    bodies = TextAsItIs(JSON())
    assert bodies.encode("ü") == "ü".encode()
    assert bodies.encode(Colour.RED) == b'"red"'
    assert bodies.encode(["ü"]) == '["ü"]'.encode()


async def test_a_body_that_is_no_text_is_told_by_its_type() -> None:
    received = message(b"\xff")
    received.deserializer = HandlerCall(text, 1).deserializer
    with pytest.raises(BodyError, match="does not fit str: "):
        _ = received.value


def none() -> None: ...
def filled(one: Order | None = None) -> None: ...
def twice(one: Order, other: dict[str, int]) -> None: ...


async def steps(body: bytes) -> AsyncIterator[bytes]:
    yield body


@pytest.mark.parametrize("function", [timed(steps), lambda _: (each for each in "x")])
async def test_what_has_not_run_is_a_failure(function: Any) -> None:
    call = HandlerCall(function, 1)
    with pytest.raises(TypeError, match="which is never awaited"):
        await call(message(b"x"))
    call.threads.stop()


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (none, "subscriber none must take"),
        (filled, "subscriber filled must take .*'one' has a default"),
        (twice, "subscriber twice .*'other'"),
        (steps, "subscriber .*steps.* has a `yield`"),
        (Shop.wrong, r"subscriber Shop\.wrong is a method"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(function: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        HandlerCall(function, 1)


def never(order: object) -> object:
    raise ValueError("never good")


def above(number: Annotated[int, pydantic.Field(gt=5)]) -> None: ...
def met(number: Annotated[int, msgspec.Meta(gt=5)]) -> None: ...
def listed(numbers: list[Annotated[int, msgspec.Meta(gt=5)]]) -> None: ...
def judged(order: Annotated[dict[str, int], pydantic.AfterValidator(never)]) -> None: ...
def long(text: Annotated[str, pydantic.Field(min_length=3)]) -> None: ...
def long_met(text: Annotated[str, msgspec.Meta(min_length=3)]) -> None: ...


@pytest.mark.parametrize(
    ("function", "bad", "good"),
    [
        (above, b"3", b"6"),
        (met, b"3", b"6"),
        (listed, b"[6,3]", b"[6]"),
        (judged, b"{}", None),
        (long, b"no", "größe".encode()),
        (long_met, b"no", b"yes"),
    ],
)
def test_constraints_of_annotations_are_enforced(
    function: Any, bad: bytes, good: bytes | None
) -> None:
    deserializer = HandlerCall(function, 1).deserializer
    assert deserializer is not None
    with pytest.raises(ValueError):  # noqa: PT011
        deserializer.decode(bad)
    if good is not None:
        deserializer.decode(good)


def test_annotations_without_constraints_are_those_of_the_type() -> None:
    def both(body: Annotated[bytes, "the order"], message: Annotated[ReceivedMessage, 7]) -> None:
        """Take both."""

    assert HandlerCall(both, 1).deserializer is None
