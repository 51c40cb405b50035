"""NameServer: a name server without a broker begins whole or not at all."""

import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.app import Broker
from rockhopper.broker.name_server.alone import NameServer
from rockhopper.broker.server.remoting.startup import StartError
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import build_config
from rockhopper.client import Producer
from rockhopper.protocol.codes import RequestCode
from tests.support.console import Browser
from tests.support.wire import WireClient

VALUES = {"configTable": {"N": {"k": "1"}}}


def config(root: Path, **settings: str) -> BrokerConfig:
    ports = {"role": "nameserver", "namesrvPort": "0", "httpPort": "0"}
    return build_config(ports | {"storePathRootDir": str(root)} | settings)


def values_file(root: Path) -> Path:
    path = root / "config" / "kvConfig.json"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NameServer]:
    values_file(tmp_path).write_text(json.dumps(VALUES))
    made = NameServer(config(tmp_path))
    await made.start()
    yield made
    await made.stop()


async def test_it_knows_what_operators_have_put(server: NameServer) -> None:
    async with WireClient(server.address) as client:
        answer = await client.ask(RequestCode.GET_KV_CONFIG, {"namespace": "N", "key": "k"})
    assert (answer.ext or {})["value"] == "1"
    assert server.routes.route("orders", "") is None


async def test_its_first_log_line_names_both_ports(server: NameServer) -> None:
    facts = server.facts()
    assert facts["nameserver"] == server.address
    assert facts["http"] != "none"


async def test_its_console_shows_who_registers(server: NameServer, tmp_path: Path) -> None:
    browser = Browser(server.facts()["http"])
    for page in ("", "brokers", "topics", "groups", "dead-letters", "later", "send", "settings"):
        answer = await browser.get(page)
        assert answer.status == 404, page
        assert "knows no broker at all; start one that registers there" in answer.text, page
    assert (await browser.get("rates.json")).status == 200
    assert "This page does not exist." in (await browser.get("nothing")).text
    settings = {"role": "broker", "brokerName": "broker-b", "namesrvAddr": server.address}
    async with Broker.temporary(settings) as broker, Producer(server.address) as producer:
        await broker.announce()
        await producer.send("orders", b"hello", queue=0)
        await broker.announce()  # the topic that it has made
        assert "orders 1 " in (await browser.get("topics")).text
        assert "hello" in (await browser.get("messages", topic="orders")).text
        sent = await browser.post("send", topic="orders", body="there", queue="broker-b:0")
        assert "The message was stored." in (await browser.follow(sent)).text
    without = NameServer(config(tmp_path / "without", consoleEnable="false"))
    await without.start()
    assert (await Browser(without.facts()["http"]).get()).status == 404
    await without.stop()


async def test_values_that_cannot_be_read_are_named_and_nothing_is_left_open(
    tmp_path: Path,
) -> None:
    values_file(tmp_path).write_text("no JSON")
    server = NameServer(config(tmp_path))
    with pytest.raises(StartError, match="kvConfig"):
        await server.start()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2])))


async def test_a_port_in_use_is_named_and_the_other_is_free_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        http = probe.getsockname()[1]
        probe.close()
        settings = {"bindAddress": "127.0.0.1", "namesrvPort": str(taken.getsockname()[1])}
        server = NameServer(config(tmp_path, httpPort=str(http), **settings))
        with pytest.raises(StartError, match="in use"):
            await server.start()
        socket.create_server(("127.0.0.1", http)).close()
