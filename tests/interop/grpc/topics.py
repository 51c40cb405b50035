"""The topics and groups of the scenarios, made on either broker through remoting."""

import asyncio
import json
from collections.abc import Iterable

from rockhopper.client import Admin
from rockhopper.client.errors import ClientError
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.codes import RequestCode
from tests.support.hang import HANG_S

TYPES = {
    "normal": "NORMAL",
    "tls": "NORMAL",
    "fifo": "FIFO",
    "delay": "DELAY",
    "transaction": "TRANSACTION",
    "push": "NORMAL",
    "invisible": "NORMAL",
    "hold": "NORMAL",
}
"""Message type by scenario."""

REGISTER_TIMEOUT_S = HANG_S

RETRY_SOON = {
    "type": "CUSTOMIZED",
    "customizedRetryPolicy": {"next": [1000, 1000, 1000]},
}
"""A retry policy of RocketMQ 5 that leaves a second between deliveries."""


def topic_of(client: str, scenario: str) -> str:
    """The name of the topic."""
    return f"{client}-{scenario}"


def group_of(client: str, scenario: str) -> str:
    """The name of the group."""
    return f"{client}-{scenario}-group"


def make(nameserver: str, clients: Iterable[str], scenarios: Iterable[str] = TYPES) -> None:
    """Make the topics and groups of these clients; every group begins at the beginning."""
    asyncio.run(_make(nameserver, list(clients), list(scenarios)))


async def _make(nameserver: str, clients: list[str], scenarios: list[str]) -> None:
    await until_registered(nameserver)
    async with Admin(nameserver) as admin:
        for client in clients:
            for scenario in scenarios:
                await make_topic(admin, topic_of(client, scenario), TYPES[scenario])
                await make_group(
                    admin,
                    group_of(client, scenario),
                    topic_of(client, scenario),
                    is_ordered=scenario == "fifo",
                )


async def until_registered(nameserver: str) -> None:
    """Wait for the broker at its name server; Apache's gets there some time after it is ready."""
    async with Admin(nameserver) as admin, asyncio.timeout(REGISTER_TIMEOUT_S):
        while not await _has_masters(admin):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.1)


def until_routed(nameserver: str, topic: str) -> None:
    """Wait until the name server knows *topic*, which a broker started again registers later."""

    async def wait() -> None:
        async with Admin(nameserver) as admin, asyncio.timeout(REGISTER_TIMEOUT_S):
            while topic not in await admin.topics():  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.1)

    asyncio.run(wait())


async def _has_masters(admin: Admin) -> bool:
    try:
        return bool(await admin.masters())
    except ClientError:
        return False


async def make_topic(admin: Admin, topic: str, message_type: str) -> None:
    """Make a topic of one queue, where simple consumers need not look at one after another."""
    await admin.create_topic(topic, queues=1, attributes={"message.type": message_type})


async def make_group(admin: Admin, group: str, topic: str, *, is_ordered: bool = False) -> None:
    """Make a group that gives up after two deliveries and begins where the topic begins."""
    body = {
        "groupName": group,
        "retryMaxTimes": 1,
        "consumeMessageOrderly": is_ordered,
        "groupRetryPolicy": RETRY_SOON,
    }
    for master in await admin.masters():
        await admin.request(
            master.address,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body=json.dumps(body).encode(),
        )
        await admin.offsets.commit(group, MessageQueue(topic, master.name, 0), 0)


def dead_letters(nameserver: str, group: str) -> int:
    """Count what the group gave up."""

    async def count() -> int:
        async with Admin(nameserver) as admin:
            return (await admin.dead_letters.count(group)).waiting

    return asyncio.run(count())
