"""A broker whose console is asked."""

from collections.abc import AsyncIterator

import pytest

from rockhopper.broker.app import Broker
from rockhopper.client import Producer
from rockhopper.client.admin.admin import Admin
from rockhopper.protocol.signing import Credentials
from tests.support.console import USERS, Browser


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


@pytest.fixture
async def guarded() -> AsyncIterator[Broker]:
    async with Broker.temporary(USERS) as broker:
        yield broker


@pytest.fixture
async def root(guarded: Broker) -> AsyncIterator[Admin]:
    async with Admin(guarded.nameserver, credentials=Credentials("root", "the secret")) as admin:
        yield admin


@pytest.fixture
async def reader(guarded: Broker, root: Admin) -> Browser:
    """Of a user who may read orders, and not the other topic of the group billing."""
    await root.groups.create("billing")
    for topic in ("orders", "hidden"):
        await root.create_topic(topic, queues=1)
        (queue,) = (await root.route(topic)).read_queues
        await root.offsets.commit("billing", queue, 0)
    await root.create_topic("%DLQ%billing", queues=1)
    await root.accounts.add_user("al", "al's secret")
    for what, actions in (
        ("Cluster:*", ["Get"]),
        ("Topic:orders", ["Pub", "Sub", "Get"]),
        ("Group:*", ["Sub", "Get", "Update"]),
    ):
        await root.accounts.add_rule("al", what, actions, is_allowed=True)
    return Browser(guarded.http_address, ("al", "al's secret"))


@pytest.fixture
async def alice(guarded: Broker, root: Admin) -> Browser:
    """Of a user with every right to a topic and a group, where there are others of both."""
    for topic in ("orders", "secret", "%DLQ%payroll"):
        await root.create_topic(topic, queues=1)
    for group in ("billing", "payroll"):
        await root.groups.create(group)
        (queue,) = (await root.route("orders")).read_queues
        await root.offsets.commit(group, queue, 0)
    await root.accounts.add_user("alice", "alice's secret")
    for what, actions in (
        ("Cluster:*", ["Get"]),
        ("Topic:orders", ["Pub", "Sub", "Get"]),
        ("Group:billing", ["Sub", "Get"]),
    ):
        await root.accounts.add_rule("alice", what, actions, is_allowed=True)
    return Browser(guarded.http_address, ("alice", "alice's secret"))
