"""A broker whose console is asked."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.broker import Broker
from rockhopper.client import Producer
from rockhopper.client.admin.admin import Admin
from tests.support.console import Browser


@pytest.fixture
async def served() -> AsyncIterator[Broker]:
    async with Broker.temporary({"autoCreateTopic": "on-send"}) as broker:
        yield broker


@pytest.fixture
def browser(served: Broker) -> Browser:
    return Browser(served.http_address)


@pytest.fixture
async def producer(served: Broker) -> AsyncIterator[Producer]:
    async with Producer(served.nameserver) as producer:
        yield producer


@pytest.fixture
async def admin(served: Broker) -> AsyncIterator[Admin]:
    async with Admin(served.nameserver) as admin:
        yield admin
