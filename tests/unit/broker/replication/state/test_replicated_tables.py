"""Replicated tables: each change is noted entry by entry, and a follower applies such an entry."""

from typing import Any

import pytest

from tests.support.features import NAMES
from tests.support.noting_writer import NotingWriter
from tests.support.state_rig import Pair

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
    "kvConfig.json": ("namespace", {"key": "value"}),
    "subscriptions.json": ("g", {"fingerprint": 1, "subscriptions": [["orders", "TAG", "*", 3]]}),
}
if "pop" in NAMES:
    ENTRIES |= {"messageRequestMode.json": ("orders@g", MODE)}
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


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_applied_noted_and_deleted(pair: Pair, name: str) -> None:
    entry, value = ENTRIES[name]
    table, _ = pair.master.tables.replicated[name]
    channels, noted = pair.master.tables.channels, NotingWriter()

    async def change() -> None:
        before = channels.writer
        channels.writer = noted
        table.take_entry(entry, value)
        assert table.entry(entry) == value
        assert noted.entries == [(table, entry)]
        table.take_entry(entry, None)
        assert table.entry(entry) is None
        assert noted.entries == [(table, entry)] * 2
        channels.writer = before

    pair.master.run(change())


def test_every_table_has_an_entry_above(pair: Pair) -> None:
    tables = pair.master.tables
    by_entries = {name for name, (table, _) in tables.replicated.items() if table.channel}
    assert by_entries == ENTRIES.keys()
    assert tables.replicated.keys() - by_entries == {"consumerOffset.json", "delayOffset.json"}
