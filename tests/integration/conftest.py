"""Tests with real sockets run on the event loop that the broker runs on, where there is uvloop."""

import asyncio
from collections.abc import Callable, Mapping

import pytest


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop of every test here."""
    return {"broker-loop": _new_event_loop}
