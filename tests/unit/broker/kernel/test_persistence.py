"""What the tables of a broker tell the store about queues."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.persistence import OffsetState, Tables
from rockhopper.broker.kernel.state_records import StateKind
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.name_server.values.kv_config import KeyValueTable
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.config_file import build_config
from rockhopper.protocol.names import SCHEDULE_TOPIC
from tests.support.noting_writer import NotingWriter
from tests.support.open_stores import Stores
from tests.support.peers import Clock


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    stores.close_all()


def test_topics_that_nobody_compacts_are_named_at_the_start(stores: Stores, tmp_path: Path) -> None:
    tables = Tables(build_config({"storePathRootDir": str(tmp_path)}), BrokerClock(Clock()))
    store = stores.open()
    with capture_logs() as logs:
        tables.agree_with(store)
    assert not [line for line in logs if "COMPACTION" in line["event"]]
    tables.topics.put(TopicConfig("last-values", attributes={"cleanup.policy": "COMPACTION"}))
    with capture_logs() as logs:
        tables.agree_with(store)
    (warning,) = [line for line in logs if "COMPACTION" in line["event"]]
    assert warning["topics"] == ["last-values"]


def test_topics_that_only_have_queues_are_restored_once_the_tables_are_read(
    tmp_path: Path,
) -> None:
    queue = tmp_path / "consumequeue" / "orders" / "5"
    queue.mkdir(parents=True)
    (queue / "00000000000000000000").touch()
    tables = Tables(build_config({"storePathRootDir": str(tmp_path)}), BrokerClock(Clock()))
    tables.load()
    assert tables.known_offsets() == {("orders", queue_id): 0 for queue_id in range(6)}


def test_queues_are_known_by_topics_groups_and_delay_levels(tmp_path: Path) -> None:
    tables = Tables(build_config({"storePathRootDir": str(tmp_path)}), BrokerClock(Clock()))
    tables.topics.put(TopicConfig("A", read_queue_nums=1, write_queue_nums=2))
    tables.offsets.commit("A", "one", 1, 7)
    tables.offsets.commit("A", "two", 1, 5)
    tables.offsets.commit("Gone from the list", "one", 0, 3)
    tables.delays.table.set_offset(3, 11)
    assert tables.known_offsets() == {
        ("A", 0): 0,
        ("A", 1): 7,
        ("Gone from the list", 0): 3,
        (SCHEDULE_TOPIC, 2): 11,
    }


def test_the_values_of_a_name_server_are_replicated_with_the_tables(tmp_path: Path) -> None:
    tables = Tables(build_config({"storePathRootDir": str(tmp_path)}), BrokerClock(Clock()))
    values = KeyValueTable(tmp_path / "kvConfig.json")
    before = list(tables.replicated)
    assert "kvConfig.json" not in before
    tables.include_names(values)
    assert [*tables.replicated] == [*before[:7], "kvConfig.json", *before[7:]]
    assert before[7:] == ["subscriptions.json", "consumerOffset.json", "delayOffset.json"]
    assert values in tables.every
    assert values not in tables.all
    assert not values.awaits_replicas
    tables.channels.writer = NotingWriter()
    assert values.awaits_replicas


async def test_the_last_commit_of_each_queue_is_gathered_for_followers(tmp_path: Path) -> None:
    tables = Tables(build_config({"storePathRootDir": str(tmp_path)}), BrokerClock(Clock()))
    (state,) = [each for each in tables.states if isinstance(each, OffsetState)]
    tables.offsets.start_saving()
    tables.offsets.commit("A", "one", 0, 1)
    assert state.gathered() == []
    tables.channels.writer = writer = NotingWriter()
    tables.offsets.commit("A", "one", 0, 2)
    tables.offsets.commit("A", "two", 0, 3)
    tables.offsets.commit("A", "one", 0, 4)
    assert writer.intervals_ms == [0, 0, 0]
    assert state.gathered() == [(StateKind.OFFSETS, b"set A@two 0 3\nset A@one 0 4\n")]
    tables.offsets.commit("A", "one", 0, 5)
    tables.offsets.delete_group("one")
    assert state.gathered() == [(StateKind.OFFSETS, b"drop A@one\n")]
    assert state.gathered() == []
    tables.offsets.close_journal()
