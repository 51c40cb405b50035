"""A name server with a broker of its own, and one without."""

from pathlib import Path

import pytest

from rockhopper.broker.settings.broker_config import BrokerConfig
from tests.support.name_server import NameServer
from tests.support.peers import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(tmp_path: Path, clock: Clock) -> NameServer:
    return NameServer(tmp_path, BrokerConfig(), with_broker=True, clock=clock)


@pytest.fixture
def alone(tmp_path: Path, clock: Clock) -> NameServer:
    return NameServer(tmp_path, BrokerConfig(), with_broker=False, clock=clock)
