"""A broker with a gateway for 5.x clients, and one of them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables.topics import TopicConfig
from tests.support.grpc_client import GrpcBroker, GrpcClient
from tests.support.peers import Clock


@pytest.fixture
async def served(tmp_path: Path, clock: Clock) -> AsyncIterator[GrpcBroker]:
    made = GrpcBroker(tmp_path, clock, {})
    made.open_gateway()
    for name, kind in (
        ("t", "NORMAL"),
        ("fifo", "FIFO"),
        ("later", "DELAY"),
        ("tx", "TRANSACTION"),
    ):
        made.tables.topics.put(
            TopicConfig(
                name,
                read_queue_nums=4,
                write_queue_nums=4,
                attributes={"message.type": kind},
            )
        )
    yield made
    await made.close()


@pytest.fixture
async def client(served: GrpcBroker) -> GrpcClient:
    return GrpcClient(served.gateway)
