"""Tests with real sockets run on the event loop that the broker runs on, where there is uvloop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import pytest_asyncio

from tests.support.unharmed import Unharmed


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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unharmed_by_all(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Unharmed]:
    with pytest.MonkeyPatch.context() as patch:
        async with Unharmed(tmp_path_factory.mktemp("unharmed"), patch) as made:
            yield made


@pytest_asyncio.fixture(loop_scope="module")
async def unharmed(unharmed_by_all: Unharmed) -> Unharmed:
    """A broker that the tests of a module mistreat in turn, in the module's event loop."""
    return await unharmed_by_all.afresh()
