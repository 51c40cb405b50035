"""Callbacks: what cannot be called as it is needed is refused, and never taken for an answer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from rockhopper.client.callbacks import (
    check_coroutine_function,
    check_has_run,
    check_no_generator,
    make_plain_function,
)


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
    assert make_plain_function("handler", divmod)(7, 2) == (3, 1)


@pytest.mark.parametrize("given", [handler, Handler().method, Handler(), None])
def test_a_coroutine_function_is_no_plain_one(given: Any) -> None:
    with pytest.raises(TypeError, match=r"the handler .* is a coroutine function"):
        make_plain_function("handler", given)


def test_a_coroutine_behind_a_decorator_is_no_answer() -> None:
    coroutine: Any = handler(1)
    with pytest.raises(TypeError, match=r"the handler .* which is never awaited"):
        make_plain_function("handler", lambda: coroutine)()


def steps() -> Iterator[int]:
    yield 1


class Steps:
    async def __call__(self, message: object) -> AsyncIterator[int]:
        yield 1


@pytest.mark.parametrize("given", [steps, Steps(), partial(steps)])
def test_a_generator_is_no_handler(given: object) -> None:
    with pytest.raises(TypeError, match=r"the handler .* has a `yield`"):
        check_no_generator("handler", given)


@pytest.mark.parametrize("make", [lambda: handler(1), steps, lambda: Steps()(1)])
def test_what_a_call_left_to_be_run_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"returned <.*>, which is never awaited"):
        check_has_run("handler", handler, make())


async def test_values_and_what_runs_by_itself_have_run() -> None:
    check_has_run("handler", handler, [1])
    running = asyncio.create_task(handler(1))
    check_has_run("handler", handler, running)
    await running
