"""The tables that replicas tell each other of: entry by entry, and what each takes of another."""

from typing import Any

import pytest

from rockhopper.broker.kernel.tables.json_table import JsonTable
from rockhopper.broker.replication.state.kept_tables import KeptTables
from tests.support.features import NAMES
from tests.support.state_rig import Member, Pair

MODE = {"topic": "orders", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 1}
STATIC = {
    "topic": "static",
    "bname": "broker-a",
    "totalQueues": 1,
    "epoch": 1,
    "hostedQueues": {},
    "scope": "__global__",
    "dirty": False,
    "currIdMap": {},
}
TOPIC = {
    "attributes": {"+a": "b"},
    "order": True,
    "perm": 4,
    "readQueueNums": 3,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "orders",
    "topicSysFlag": 1,
    "writeQueueNums": 2,
}
USER = {
    "password": "a secret of root",
    "userStatus": "enable",
    "userType": "Super",
    "username": "root",
}
RULE = {"actions": ["Pub"], "decision": "Allow", "resource": "Topic:*", "sourceIps": []}
ACL = [{"policyType": "Custom", "entries": [RULE]}]
ENTRIES: dict[str, tuple[str, Any]] = {
    "topics.json": ("orders", TOPIC),
    "subscriptionGroup.json": ("g", {"settings": None, "forbidden": {"orders": 4}}),
    "topic-ids.json": ("orders", ["0123456789abcdef", 7]),
    "topic-ends.json": ("orders", {"0": 40}),
    "log-history.json": ("0123456789abcdef", [1, 1200, 1700000000000]),
    "users.json": ("root", USER),
    "acls.json": ("root", ACL),
    "messageRequestMode.json": ("orders@g", MODE),
    "kvConfig.json": ("namespace", {"key": "value"}),
    "subscriptions.json": ("g", {"fingerprint": 1, "subscriptions": [["orders", "TAG", "*", 3]]}),
}
if "transactions" in NAMES:
    ENTRIES |= {"transactions.json": ("17", 4)}
if "static_topics" in NAMES:
    ENTRIES |= {"topicQueueMapping.json": ("static", STATIC)}
if "sinks" in NAMES:
    ENTRIES |= {
        "owners.json": ("sink", "somebody"),
        "homes.json": ("sink", "broker-b"),
        "prepared.json": ("sink", {"batchId": 3, "parts": ["0.1.ab"]}),
        "decisions.json": ("sink", {"batchId": 3, "brokers": {"broker-b": [["0.1.ab", 9]]}}),
        "contents.json": ("sink", [3, "9:5be0cd19"]),
    }


def tables_of(member: Member) -> KeptTables:
    return KeptTables(member.tables, member.values)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_taken_told_of_and_forgotten(pair: Pair, name: str) -> None:
    entry, value = ENTRIES[name]
    kept = tables_of(pair.master)
    table: JsonTable = {**kept.confirmed, **kept.gathered}[name]
    told: list[str] = []

    async def change() -> None:
        before = table.on_entry
        table.on_entry = told.append
        table.take_entry(entry, value)
        assert table.entry(entry) == value
        assert told == [entry]
        table.take_entry(entry, None)
        assert table.entry(entry) is None
        assert told == [entry, entry]
        table.on_entry = before

    pair.master.run(change())


def test_every_table_has_an_entry_above(pair: Pair) -> None:
    kept = tables_of(pair.master)
    assert {*kept.confirmed, *kept.gathered} == ENTRIES.keys()
    assert kept.every.keys() - ENTRIES.keys() == {"consumerOffset.json", "delayOffset.json"}
