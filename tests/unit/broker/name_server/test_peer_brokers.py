"""Other brokers by name: found through the name servers, asked, and named when they are away."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.name_server.peer_brokers import PeerBrokers, UnreachableError
from rockhopper.broker.settings.config_file import build_config
from rockhopper.protocol.command import Command
from tests.support.fake_server import FakeServer


@pytest.fixture
async def broker() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        server.on(30, lambda request: Command(0, ext={"offset": (request.ext or {})["queueId"]}))
        server.on(31, lambda request: Command(17, remark="no"))
        yield server


@pytest.fixture
async def name_service(broker: FakeServer) -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        cluster = (
            '{"brokerAddrTable":{"a":{"brokerAddrs":{0:"ADDRESS"},"brokerName":"a","cluster":"C"},'
            '"slaves":{"brokerAddrs":{1:"x:1"},"brokerName":"slaves","cluster":"C"}},'
            '"clusterAddrTable":{"C":["a"]}}'
        ).replace("ADDRESS", broker.address)
        server.on(106, lambda request: Command(0, body=cluster.encode()))
        yield server


@pytest.fixture
async def peers(tmp_path: Path, name_service: FakeServer) -> AsyncIterator[PeerBrokers]:
    settings = {"storePathRootDir": str(tmp_path), "namesrvAddr": name_service.address}
    made = PeerBrokers(build_config(settings))
    yield made
    made.close()


async def test_the_master_of_a_broker_is_asked(peers: PeerBrokers, broker: FakeServer) -> None:
    for number in range(3):
        answer = await peers.ask("a", 30, {"queueId": str(number)})
        assert answer.ext == {"offset": str(number)}
    assert len(broker.connections) == 1


async def test_another_code_is_an_answer(peers: PeerBrokers) -> None:
    assert (await peers.ask("a", 31, {})).code == 17


@pytest.mark.parametrize("name", ["z", "slaves"])
async def test_a_broker_without_a_master_is_not_known(peers: PeerBrokers, name: str) -> None:
    with pytest.raises(UnreachableError, match=f"no name server knows the broker {name}"):
        await peers.ask(name, 30, {})


async def test_a_broker_or_name_service_that_is_away_is_named(
    tmp_path: Path, peers: PeerBrokers, broker: FakeServer
) -> None:
    await broker.stop_listening()
    broker.drop_connections()
    with pytest.raises(UnreachableError, match="broker a does not answer"):
        await peers.ask("a", 30, {"queueId": "0"})
    config = build_config({"storePathRootDir": str(tmp_path), "namesrvAddr": "127.0.0.1:1"})
    with pytest.raises(UnreachableError, match="broker a does not answer"):
        await PeerBrokers(config).ask("a", 30, {})
