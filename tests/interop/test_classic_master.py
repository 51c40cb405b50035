"""Apache's broker follows ours as its slave, and takes over: the way back to RocketMQ."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from rockhopper.client.admin.admin import Admin
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode
from tests.interop.apache import ApacheServer
from tests.interop.bodies import hashes
from tests.interop.conftest import Launcher
from tests.interop.java_client import JavaClient
from tests.interop.reading import read_topic
from tests.interop.rockhopper import RockhopperServer
from tests.interop.test_following import FILES, GROUP, consume, files_of, until
from tests.support.direct import ask, send_fields
from tests.support.free_ports import free_port

pytestmark = pytest.mark.interop

NAME = {**FILES, "brokerName": "shared"}
TOPIC = "Plain"


class WayBack:
    """Our master, and Apache's slave once it is started."""

    def __init__(self, launch: Launcher, java: JavaClient, settings: dict[str, str]) -> None:
        self._launch = launch
        self._java = java
        self.ha_port = free_port()
        own = {"haMode": "classic", "haListenPort": str(self.ha_port), **settings}
        self.ours: RockhopperServer = launch.rockhopper({**NAME, **own})
        self._hashes: list[str] = []
        self._sends = 0

    def follow(self) -> ApacheServer:
        """Start a slave with an empty directory."""
        slave = {"brokerRole": "SLAVE", "brokerId": "1", "namesrvAddr": self.ours.nameserver}
        return self._launch.apache({**NAME, **slave}, namesrv_port=None)

    def lead(self, slave: ApacheServer) -> ApacheServer:
        """Start the store of a slave as a master's."""
        kept = {
            "storePathRootDir": str(slave.store),
            "storePathCommitLog": str(slave.store / "commitlog"),
        }
        return self._launch.apache({**NAME, **kept, "brokerRole": "ASYNC_MASTER"})

    def send(self, count: int) -> None:
        """Send through Apache's own client, so that files roll."""
        self._sends += 1
        prefix = f"s{self._sends}"
        self._java.call(
            "send",
            nameserver=self.ours.nameserver,
            topic=TOPIC,
            prefix=prefix,
            count=count,
            keys=True,
            bodySize=1000,
        )
        self._hashes += hashes(prefix, range(count), 1000)

    async def status(self) -> dict[str, Any]:
        """What 907 says."""
        answer = await ask(self.ours.broker_address, RequestCode.GET_BROKER_HA_STATUS, {})
        found: dict[str, Any] = fastjson.loads(answer.body)
        return found

    async def caught_up(self) -> None:
        """Return when the slave has said that it has all of our log."""

        def is_equal(status: dict[str, Any]) -> bool:
            end, slaves = status["masterCommitLogMaxOffset"], status["haConnectionInfo"]
            return bool(slaves) and all(slave["slaveAckOffset"] == end for slave in slaves)

        await until(self.status, is_equal)

    async def has_tables(self, slave: ApacheServer, offsets: dict[str, int] | None) -> None:
        """Return when the slave has the topic and the group's offsets, as each minute."""

        async def tables() -> tuple[bool, object]:
            topics = await ask(slave.broker_address, RequestCode.GET_ALL_TOPIC_CONFIG, {})
            kept = await ask(slave.broker_address, RequestCode.GET_ALL_CONSUMER_OFFSET, {})
            has_topic = f'"{TOPIC}"'.encode() in topics.body
            return has_topic, fastjson.loads(kept.body)["offsetTable"].get(f"{TOPIC}@{GROUP}")

        await until(tables, lambda found: found == (True, offsets))

    def assert_all_readable(self, server: ApacheServer) -> None:
        """What Apache's client reads from the slave that leads is what it sent to ours."""
        reading = read_topic(self._java, server.nameserver, TOPIC)
        reading.assert_whole()
        assert reading.hashes == sorted(self._hashes)


async def offsets_of(address: str) -> dict[str, int]:
    answer = await ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET, {})
    found: dict[str, int] = fastjson.loads(answer.body)["offsetTable"][f"{TOPIC}@{GROUP}"]
    return found


def assert_same_log(ours: Path, theirs: Path) -> None:
    mine, copied = files_of(ours / "commitlog"), files_of(theirs / "commitlog")
    assert len(mine) > 2
    for name, data in mine.items():
        assert copied[name] == data, name
    assert not any(any(data) for name, data in copied.items() if name not in mine)


@pytest.mark.long
def test_a_slave_copies_all_and_serves_it_as_the_master(launch: Launcher, java: JavaClient) -> None:
    way = WayBack(launch, java, {"syncFromLastFile": "false"})

    async def create() -> None:
        async with Admin(way.ours.nameserver) as admin:
            await admin.create_topic(TOPIC, queues=3)

    async def follow() -> ApacheServer:
        await consume(way.ours.nameserver, 100)
        slave = await asyncio.to_thread(way.follow)
        await asyncio.to_thread(way.send, 300)
        await way.caught_up()
        await way.has_tables(slave, await offsets_of(way.ours.broker_address))
        status = await way.status()
        assert status["inSyncSlaveNums"] == 1
        assert [each["inSync"] for each in status["haConnectionInfo"]] == [True]
        return slave

    asyncio.run(create())
    way.send(600)
    slave = asyncio.run(follow())
    way.ours.stop()
    slave.stop()
    assert_same_log(way.ours.store, slave.store)
    way.assert_all_readable(way.lead(slave))


def test_a_send_waits_for_the_slave(launch: Launcher, java: JavaClient) -> None:
    settings = {
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": "2",
        "minInSyncReplicas": "2",
        "slaveTimeout": "500",
    }
    way = WayBack(launch, java, settings)

    async def send() -> int:
        answer = await ask(way.ours.broker_address, RequestCode.SEND_MESSAGE, send_fields(TOPIC))
        return answer.code

    async def scenario() -> None:
        async with Admin(way.ours.nameserver) as admin:
            await admin.create_topic(TOPIC, queues=3)
        assert await send() == 1
        slave = await asyncio.to_thread(way.follow)
        await until(send, lambda code: code == 0)
        await asyncio.to_thread(slave.kill)
        await until(send, lambda code: code == 1)

    asyncio.run(scenario())
    way.ours.stop()


@pytest.mark.long
def test_what_waits_is_delivered_by_the_slave_that_leads(
    launch: Launcher, java: JavaClient
) -> None:
    way = WayBack(launch, java, {})

    async def scenario() -> ApacheServer:
        async with Admin(way.ours.nameserver) as admin:
            await admin.create_topic(TOPIC, queues=3)
        slave = await asyncio.to_thread(way.follow)
        due_ms = int(time.time() * 1000) + 45_000
        waits = {"delayed": "DELAY\x015\x02", "timed": f"TIMER_DELIVER_MS\x01{due_ms}\x02"}
        for body, wish in waits.items():
            fields = send_fields(TOPIC) | {"properties": f"UNIQ_KEY\x01{body}\x02{wish}"}
            address = way.ours.broker_address
            answer = await ask(address, RequestCode.SEND_MESSAGE, fields, body.encode())
            assert answer.code == 0, answer.remark
        await way.caught_up()
        await way.has_tables(slave, None)
        return slave

    slave = asyncio.run(scenario())
    way.ours.stop()
    slave.stop()
    apache = way.lead(slave)
    assert sorted(asyncio.run(consume(apache.nameserver, 2))) == [b"delayed", b"timed"]
