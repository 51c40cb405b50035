"""Callbacks: what is no coroutine function is refused when it is given, not when it is called."""

import asyncio
from functools import partial

import pytest

from rockhopper.client.callbacks import check_coroutine_function


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
