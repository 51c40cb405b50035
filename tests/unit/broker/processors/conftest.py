"""A broker to ask, for tests of single request codes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def broker(tmp_path: Path, clock: Clock) -> AsyncIterator[ServedBroker]:
    served = ServedBroker(tmp_path, clock, {})
    yield served
    await served.close()
