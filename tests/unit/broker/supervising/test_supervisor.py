"""Brokers under one parent are one cluster with one name server and one operator's port."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.server.remoting.startup import StartError
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.supervising.supervisor import PORTS_APART, Supervisor
from rockhopper.client.admin.admin import Admin
from rockhopper.protocol.bodies.route import ClusterInfo
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.signing import Credentials
from tests.support.console import Browser
from tests.support.daemon import SMALL
from tests.support.direct import ask, send
from tests.support.free_ports import free_port
from tests.support.turns import until

SETTINGS = {"namesrvPort": "0", "httpPort": "0", "brokers": "2"}


def supervisor(root: Path, listen_port: int = 0, **settings: str) -> Supervisor:
    texts = SETTINGS | {"listenPort": str(listen_port), "storePathRootDir": str(root)} | settings
    return Supervisor(build_config(texts), 2, SMALL)


async def get(supervised: Supervisor, path: str) -> str:
    host, _, port = supervised.facts()["http"].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Supervisor]:
    """Two brokers, 20 ports apart."""
    supervised = supervisor(tmp_path, free_port(below=[-PORTS_APART]))
    await supervised.start()
    yield supervised
    await supervised.stop()


@pytest.mark.costly
async def test_each_has_its_name_its_port_and_its_directory(running: Supervisor) -> None:
    first, second = running.facts()["brokers"].split()
    ports = [int(address.rpartition(":")[2]) for address in (first, second)]
    assert ports[1] == ports[0] + PORTS_APART
    answer = await ask(running.facts()["nameserver"], RequestCode.GET_BROKER_CLUSTER_INFO)
    cluster = ClusterInfo.decode(answer.body)
    assert cluster.broker_addr_table["broker-a-0"].broker_addrs == {0: first}
    assert cluster.broker_addr_table["broker-a-1"].broker_addrs == {0: second}
    assert sorted(os.listdir(running.config.store.root)) == ["broker-a-0", "broker-a-1", "lock"]

    # One port speaks for all.
    assert " 200 " in await get(running, "/healthz")
    assert (await get(running, "/readyz")).endswith("\r\n\r\nok\n")
    metrics = await get(running, "/metrics")
    for name in ("broker-a-0", "broker-a-1"):
        assert f'rockhopper_ready{{cluster="DefaultCluster",node_id="{name}"' in metrics
        assert f'process_resident_memory_bytes{{node_id="{name}"}}' in metrics


async def test_one_that_is_killed_comes_back_where_it_was(running: Supervisor) -> None:
    address = running.facts()["brokers"].split()[1]
    await send(address, "orders", b"kept")
    broker = running.brokers[1]
    assert broker.process_id is not None
    os.kill(broker.process_id, signal.SIGKILL)
    await until(lambda: broker.start_count == 2 and broker.is_serving)
    assert running.facts()["brokers"].split()[1] == address
    answer = await send(address, "orders", b"next")
    assert (answer.ext or {})["queueOffset"] == "1"


@pytest.mark.costly
async def test_the_directory_belongs_to_one_parent(running: Supervisor) -> None:
    with pytest.raises(StartError, match="stop that broker"):
        await supervisor(running.config.store.root).start()


@pytest.mark.costly
async def test_a_broker_that_does_not_start_ends_them_all(tmp_path: Path) -> None:
    (tmp_path / "broker-a-1").write_text("no directory")
    supervised = supervisor(tmp_path)
    with pytest.raises(StartError, match=r"broker-a-1 did not start \(exit code 2\), see above"):
        await supervised.start()
    assert not supervised.brokers
    # Everything was let go.
    (tmp_path / "broker-a-1").unlink()
    again = supervisor(tmp_path)
    await again.start()
    await again.stop()


async def test_elsewhere_is_the_only_name_service_when_the_role_says_so(tmp_path: Path) -> None:
    supervised = supervisor(tmp_path, role="broker", namesrvAddr="192.0.2.1:9876")
    assert supervised.facts()["nameserver"] == "none"


@pytest.mark.costly
async def test_one_console_is_for_all(running: Supervisor) -> None:
    browser = Browser(running.facts()["http"])
    text = (await browser.get()).text
    assert "2 brokers" in text
    for address in running.facts()["brokers"].split():
        assert address in text
    sent = await browser.post("send", topic="orders", body="x", new="1")
    assert "was stored" in (await browser.follow(sent)).text
    await browser.post("settings", key="brokerPermission", value="4", everywhere="1")
    for name in ("broker-a-0", "broker-a-1"):
        page = await browser.get("settings", broker=name, changed=1)
        assert "brokerPermission" in page.text


@pytest.mark.costly
async def test_its_brokers_hold_rules_for_where_its_visitors_are(tmp_path: Path) -> None:
    texts = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "proxyProtocol": "true",
        "proxyProtocolFrom": "127.0.0.0/8",
        "initAuthenticationUser": '{"username":"root","password":"the secret of root"}',
    }
    config = build_config(SETTINGS | texts | {"listenPort": "0", "storePathRootDir": str(tmp_path)})
    supervised = Supervisor(config, 2, [*SMALL, *(f"--set={key}={texts[key]}" for key in texts)])
    await supervised.start()
    try:
        name_service = supervised.facts()["nameserver"]
        root = Credentials("root", "the secret of root")
        async with Admin(name_service, credentials=root) as admin:
            await admin.create_topic("orders", queues=1)
            await admin.accounts.add_user("al", "the secret of al")
            for what in ("Cluster:*", "Topic:*"):
                await admin.accounts.add_rule(
                    "al", what, ["Get"], is_allowed=True, sources=["192.0.2.7"]
                )
        browser = Browser(supervised.facts()["http"], ("al", "the secret of al"))
        assert (await browser.get("topics")).status == 403
        browser.first = "PROXY TCP4 192.0.2.7 198.51.100.1 56324 9464\r\n"
        topic = await browser.get("topic", name="orders")
        assert (topic.status, "0 messages kept" in topic.text) == (200, True), topic.text
    finally:
        await supervised.stop()
