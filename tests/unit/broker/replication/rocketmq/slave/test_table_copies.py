"""A master's tables in ours."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.scheduled.timers.java_files import load_timer_check
from rockhopper.broker.name_server.followed_master import FollowError, MasterTables
from rockhopper.broker.replication.rocketmq.slave.table_copies import TableCopies
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.store.message_store import MessageStore
from tests.support.classic_master import TIMER_CHECK

TOPICS = {"orders": {"readQueueNums": 3}, "batches": {"attributes": {"queue.type": "BatchCQ"}}}


class Copied:
    """Tables that nothing is saved of."""

    def __init__(self, root: Path) -> None:
        config = build_config({"storePathRootDir": str(root)})
        self.tables = Tables(config, BrokerClock(lambda: 5))
        self.timer_check = root / "config" / "timercheck"
        self.copies = TableCopies(self.tables, self.timer_check)
        self.deleted: list[list[str]] = []
        self.visibility = self
        self.copies.store = cast(MessageStore, self)

    def delete_topics(self, topics: list[str]) -> "Copied":
        self.deleted.append(topics)
        return self

    def remove(self) -> None: ...


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    return Copied(tmp_path)


def answers(topics: dict[str, Any] = TOPICS, **others: bytes | None) -> MasterTables:
    given: dict[str, Any] = {
        "topics": json.dumps({"topicConfigTable": topics}).encode(),
        "groups": b'{"subscriptionGroupTable":{"billing":{"retryMaxTimes":5}},"dataVersion":{}}',
        # Java writes numbers as keys.
        "consumer_offsets": b'{"offsetTable":{"orders@billing":{0:7,1:8}}}',
        "delay_offsets": b'{"offsetTable":{3:4}}',
        "timer_check": TIMER_CHECK,
        **others,
    }
    return MasterTables(**given)


def test_everything_is_taken_over(copied: Copied) -> None:
    copied.copies.copy(answers())
    tables = copied.tables
    orders = tables.topics.get("orders")
    assert orders is not None
    assert orders.read_queue_nums == 3
    assert tables.topics.is_batch("batches")
    group = tables.groups.get("billing")
    assert group is not None
    assert group.retry_max_times == 5
    assert "CID_RMQ_SYS_TRANS" in tables.groups
    assert tables.offsets.queues("orders", "billing") == {0: 7, 1: 8}
    assert tables.delays.table.offsets == {3: 4}
    check, _ = load_timer_check(copied.timer_check)
    assert check is not None
    assert check.queue_offset == 2


def test_topics_alone_come_first(copied: Copied) -> None:
    copied.copies.take_topics(answers())
    assert copied.tables.topics.is_batch("batches")
    assert not copied.timer_check.exists()


def test_what_the_master_deleted_goes_and_system_topics_stay(copied: Copied) -> None:
    copied.tables.topics.seed_system_topics()
    copied.copies.copy(answers())
    copied.copies.copy(answers({"orders": {"readQueueNums": 4}}))
    assert copied.deleted == [["batches"]]
    assert "batches" not in copied.tables.topics
    assert "SCHEDULE_TOPIC_XXXX" in copied.tables.topics
    orders = copied.tables.topics.get("orders")
    assert orders is not None
    assert orders.read_queue_nums == 4


def test_system_topics_are_not_changed(copied: Copied) -> None:
    copied.tables.topics.seed_system_topics()
    before = copied.tables.topics.get("SCHEDULE_TOPIC_XXXX")
    copied.copies.copy(answers({"SCHEDULE_TOPIC_XXXX": {"readQueueNums": 1}}))
    assert copied.tables.topics.get("SCHEDULE_TOPIC_XXXX") == before


def test_old_masters_leave_out_what_they_do_not_know(copied: Copied) -> None:
    copied.copies.copy(answers(timer_check=None, delay_offsets=b""))
    assert not copied.timer_check.exists()


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("topics", b"no JSON"),
        ("topics", b"[]"),
        ("topics", b'{"topicConfigTable":{"a":3}}'),
        ("groups", b'{"subscriptionGroupTable":[]}'),
        ("consumer_offsets", b'{"offsetTable":{"a@b":{"0":"x"}}}'),
        ("delay_offsets", b"{}"),
        ("timer_check", b"short"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(table: str, text: bytes, copied: Copied) -> None:
    with pytest.raises(FollowError, match=r"the master's .* cannot be read"):
        copied.copies.copy(answers()._replace(**{table: text}))
