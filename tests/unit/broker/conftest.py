"""A broker to ask, for tests of single request codes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def broker(tmp_path: Path, clock: Clock) -> AsyncIterator[ServedBroker]:
    """A broker that may answer anything, but must not call a client's mistake its own."""
    served = ServedBroker(tmp_path, clock, {})
    with capture_logs() as logs:
        yield served
    await served.close()
    assert [entry for entry in logs if entry["event"] == "request failed"] == []
