"""Clients of both generations meet on the same topics and in the same groups."""

import asyncio
from collections.abc import Iterator

import pytest

from rockhopper.client import Consumer, Message, Producer
from tests.interop.grpc import topics
from tests.interop.grpc.conftest import Programs, require
from tests.interop.grpc.programs import ANSWER_TIMEOUT_S, CLIENTS
from tests.interop.grpc.servers import Endpoint

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

CLIENT = "python"
"""Any would do; this one needs no compiler."""


@pytest.fixture(scope="module", autouse=True)
def _tools() -> Iterator[None]:
    require(CLIENTS[CLIENT].missing_tools(), f"the {CLIENT} client")
    return iter([None])


def _begin(programs: Programs, op: str, scenario: str, count: int) -> list[dict[str, object]]:
    done = programs.begin(CLIENT, op, scenario, count=count)
    assert done is not None
    found: list[dict[str, object]] = done.result(ANSWER_TIMEOUT_S)
    return found


async def test_what_remoting_sends_is_received_over_grpc(
    endpoint: Endpoint, programs: Programs
) -> None:
    topic = topics.topic_of(CLIENT, "normal")
    async with Producer(endpoint.nameserver) as producer:
        await producer.send(Message(topic, b"by remoting", tags="a", keys=["k1", "k2"]))
    [message] = await asyncio.to_thread(_begin, programs, "receive", "normal", 1)
    assert message["body"] == "by remoting"
    assert message["tag"] == "a"
    assert message["keys"] == ["k1", "k2"]


async def test_what_grpc_sends_is_received_by_remoting(
    endpoint: Endpoint, programs: Programs
) -> None:
    await asyncio.to_thread(_begin, programs, "send", "invisible", 1)
    topic, group = topics.topic_of(CLIENT, "invisible"), topics.group_of(CLIENT, "invisible")
    async with Consumer(group, topic, nameserver=endpoint.nameserver) as consumer:
        async for message in consumer:
            assert message.body == b"normal-0"
            assert message.tags == "a"
            assert message.properties["colour"] == "red"
            break


async def test_what_grpc_gives_up_is_a_dead_letter_of_remoting(
    endpoint: Endpoint, programs: Programs
) -> None:
    await asyncio.to_thread(_begin, programs, "push", "push", 2)
    group = topics.group_of(CLIENT, "push")
    while await asyncio.to_thread(topics.dead_letters, endpoint.nameserver, group) != 1:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.1)
