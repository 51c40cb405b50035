"""One broker in a thread for the synchronous clients, as good as new for each test."""

from collections.abc import Iterator

import pytest

from rockhopper import ThreadedBroker
from tests.support.billing import AT_ONCE


@pytest.fixture(scope="package")
def _running() -> Iterator[ThreadedBroker]:
    with ThreadedBroker(AT_ONCE) as broker:
        yield broker


@pytest.fixture
def broker(_running: ThreadedBroker, monkeypatch: pytest.MonkeyPatch) -> ThreadedBroker:
    _running.purge()
    monkeypatch.setenv("NAMESRV_ADDR", _running.nameserver)
    return _running
