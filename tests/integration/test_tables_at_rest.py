"""A broker that nobody wants anything of writes no table, however long its members stay."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rockhopper.broker
from rockhopper.broker import Broker
from rockhopper.broker.kernel.tables.json_table import JsonTable
from rockhopper.protocol.codes import RequestCode as Code
from tests.support.wire import WireClient

ROUNDS = 6
ONLY_WITH_SINKS = {"_IntentTable", "_PublishedTable"}
"""Made for each sink that has a batch under way."""


def beat(member: int, version: int) -> bytes:
    """A heartbeat as two processes of one service send it: alike but for when they started."""
    groups = [
        {
            "groupName": name,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [
                {"topic": topic, "subString": "paid || sent", "subVersion": version}
                for topic in topics
            ],
        }
        for name, topics in (("billing", ["orders", "parcels"]), ("audit", ["orders"]))
    ]
    producers = [{"groupName": "makers"}]
    client = {"clientID": f"c{member}", "producerDataSet": producers, "consumerDataSet": groups}
    return json.dumps(client).encode()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[JsonTable]:
    """Every table that is created during the test."""
    tables: list[JsonTable] = []
    begin = JsonTable.__init__

    def noting(self: JsonTable, *args: Any, **kwargs: Any) -> None:
        tables.append(self)
        begin(self, *args, **kwargs)

    monkeypatch.setattr(JsonTable, "__init__", noting)
    return tables


def kinds_of(kind: type[JsonTable] = JsonTable) -> Iterator[type[JsonTable]]:
    """The kinds of tables that a broker has, all of its modules loaded."""
    for each in kind.__subclasses__():
        yield from kinds_of(each)
        if not each.__subclasses__() and each.__module__.startswith("rockhopper.broker."):
            yield each


def files_of(broker: Broker) -> dict[Path, tuple[int, int, int]]:
    """The files of tables and of their journals, each as it was written last."""
    root = broker.config.store.root
    found = {}
    for directory in (root / "config", root / "rockhopper"):
        for path in directory.rglob("*"):
            if path.suffix in (".json", ".bak", ".records"):
                status = path.stat()
                found[path] = status.st_ino, status.st_size, status.st_mtime_ns
    return found


async def fill(client: WireClient, broker: Broker) -> None:
    """Have something in the tables."""
    for topic in ("orders", "parcels"):
        ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "2", "perm": "6"}
        ext |= {"writeQueueNums": "2", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
        await client.ask(Code.UPDATE_AND_CREATE_TOPIC, ext | {"order": "false"})
    mode = {"topic": "orders", "consumerGroup": "pickers", "mode": "POP"}
    body = json.dumps(mode | {"popShareQueueNum": 0}).encode()
    await client.ask(Code.SET_MESSAGE_REQUEST_MODE, body=body)
    value = {"namespace": "ours", "key": "k", "value": "v"}
    await client.ask(Code.PUT_KV_CONFIG, value)
    user = {"username": "ann", "password": "a long secret", "userType": "Normal"}
    await client.ask(Code.AUTH_CREATE_USER, {"username": "ann"}, json.dumps(user).encode())
    broker.tables.catalog.topic_ids.get("orders", 0)


async def live(members: list[WireClient], number: int) -> None:
    """What members do all day: heartbeats in turn, the same offsets, routes."""
    for member, client in enumerate(members):
        await client.ask(Code.HEART_BEAT, body=beat(member, 1000 * (number % 2) + member))
        commit = {"consumerGroup": "billing", "topic": "orders", "queueId": "0"}
        await client.ask(Code.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": "0"})
        await client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        await client.ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"})


async def saved(broker: Broker, made: list[JsonTable]) -> None:
    """Have the broker do what it does every few seconds, and wait until it has saved that."""
    broker.parts.expire()
    broker.tables.offsets.save_soon()
    broker.tables.subscriptions.save_soon()
    for table in made:
        await table.on_disk()
    assert broker.tables.offsets.journal is not None
    broker.tables.offsets.journal.flush()


async def test_at_rest_no_table_is_written(made: list[JsonTable]) -> None:
    async with (
        Broker.temporary() as broker,
        WireClient(broker.address) as one,
        WireClient(broker.address) as two,
    ):
        members = [one, two]
        await fill(one, broker)
        for number in range(ROUNDS):
            await live(members, number)
            await saved(broker, made)
        before = files_of(broker)
        versions = {table.path: table.version.to_json() for table in made}
        assert len(before) > 10
        for number in range(ROUNDS):
            await live(members, number)
            await saved(broker, made)
        assert files_of(broker) == before
        assert {table.path: table.version.to_json() for table in made} == versions


async def test_every_kind_of_table_is_seen(made: list[JsonTable]) -> None:
    """A kind that is added is looked at as well, or this says that no broker here has one."""
    for module in pkgutil.walk_packages(rockhopper.broker.__path__, "rockhopper.broker."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    async with Broker.temporary():
        seen = {type(table).__name__ for table in made}
    kinds = {kind.__name__ for kind in kinds_of()}
    assert seen | (ONLY_WITH_SINKS & kinds) == kinds
