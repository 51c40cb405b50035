"""Apache's mqadmin looks at a replica set of ours: haStatus and getBrokerEpoch."""

import asyncio
import contextlib
from typing import Any

import pytest

from rockhopper.client import Producer
from rockhopper.client.admin.admin import Admin
from rockhopper.client.commands.replication.set_status import read_set_status
from rockhopper.client.errors import ClientError
from tests.interop.apache import SMALL_FILES
from tests.interop.conftest import Launcher
from tests.interop.etcd import EtcdCluster
from tests.interop.java_client import JavaClient
from tests.interop.rockhopper import RockhopperServer
from tests.support.free_ports import free_port

pytestmark = pytest.mark.interop


def replica(launch: Launcher, etcd: EtcdCluster, number: int) -> RockhopperServer:
    return launch.rockhopper(
        {
            **SMALL_FILES,
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "haEngine": f"etcd://{etcd.endpoints[0]}",
            "haReplicaId": str(number),
            "haReplicas": "2",
            "minInSyncReplicas": "2",
            "haListenPort": str(free_port()),
        }
    )


async def whole(address: str) -> dict[str, Any]:
    """Return the set's status once both replicas are in sync and hold the same."""
    async with Admin() as admin, asyncio.timeout(60):
        while True:
            # Its port is closed for a moment while it takes its role.
            with contextlib.suppress(ClientError):
                status = await read_set_status(admin, address)
                replicas = status["replicas"]
                ends = {each.get("logEnd") for each in replicas}
                if sum(each["isInSync"] for each in replicas) == 2 and len(ends) == 1:
                    return status
            await asyncio.sleep(0.1)


async def test_mqadmin_sees_who_leads_who_follows_and_the_epochs(
    java: JavaClient, launch: Launcher, single_etcd: EtcdCluster
) -> None:
    await single_etcd.start()
    servers = {number: replica(launch, single_etcd, number) for number in (1, 2)}
    names = ";".join(server.nameserver for server in servers.values())
    await whole(servers[1].broker_address)
    async with Producer(nameserver=names) as producer:
        await producer.send("TBW102", b"one")
    status = await whole(servers[1].broker_address)
    end, master = status["logEnd"], status["masterId"]
    follower = 3 - master
    ha_addresses = {
        number: f"127.0.0.1:{server.settings['haListenPort']}" for number, server in servers.items()
    }

    def asked(command: str, number: int) -> dict[str, Any]:
        address = servers[number].broker_address
        return dict(java.call(command, nameserver=names, broker=address))

    seen = asked("haStatus", master)
    assert (seen["master"], seen["inSyncSlaveNums"]) == (True, 1)
    assert seen["masterCommitLogMaxOffset"] >= end
    (connection,) = seen["haConnectionInfo"]
    assert (connection["addr"], connection["inSync"]) == (ha_addresses[follower], True)
    assert connection["slaveAckOffset"] >= end

    seen = asked("haStatus", follower)
    assert seen["master"] is False
    client = seen["haClientRuntimeInfo"]
    assert client["masterAddr"] == ha_addresses[master]
    assert client["maxOffset"] >= end

    for number, broker_id in ((master, 0), (follower, follower)):
        seen = asked("epochs", number)
        assert (seen["brokerName"], seen["brokerId"]) == ("broker-a", broker_id)
        (epoch,) = seen["epochList"]
        assert (epoch["epoch"], epoch["startOffset"]) == (status["epoch"], 0)
        assert epoch["endOffset"] == seen["maxOffset"] >= end
