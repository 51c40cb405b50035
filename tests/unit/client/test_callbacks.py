"""Callbacks: what cannot be called as it is needed is refused, and never taken for an answer."""

import asyncio
from functools import partial
from typing import Any

import pytest

from rockhopper.client.callbacks import check_coroutine_function, plain_function


async def handler(message: object) -> None: ...


class Handler:
    async def method(self, message: object) -> None: ...

    async def __call__(self, message: object) -> None: ...


@pytest.mark.parametrize("given", [handler, Handler().method, Handler(), partial(handler, 1)])
def test_whatever_gives_a_coroutine_is_taken(given: object) -> None:
    check_coroutine_function("listener", given)


@pytest.mark.parametrize("given", [lambda message: None, print, None, 7, Handler, asyncio.Event()])
def test_everything_else_is_refused_by_its_kind(given: object) -> None:
    with pytest.raises(TypeError, match=r"the listener .* is not a coroutine function: write it"):
        check_coroutine_function("listener", given)


def test_a_plain_function_is_called() -> None:
    assert plain_function("handler", divmod)(7, 2) == (3, 1)


@pytest.mark.parametrize("given", [handler, Handler().method, None])
def test_a_coroutine_function_is_no_plain_one(given: Any) -> None:
    with pytest.raises(TypeError, match=r"the handler .* is no plain function"):
        plain_function("handler", given)


async def test_a_coroutine_behind_a_decorator_is_no_answer() -> None:
    coroutine: Any = handler(1)
    with pytest.raises(TypeError, match=r"the handler .* which nobody awaits"):
        plain_function("handler", lambda: coroutine)()
    await coroutine
