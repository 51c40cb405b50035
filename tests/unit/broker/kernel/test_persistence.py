"""What the tables of a broker tell the store about queues."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.settings.config_file import build_config
from rockhopper.protocol.names import SCHEDULE_TOPIC
from tests.support.open_stores import Stores
from tests.support.peers import Clock


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    stores.close_all()


def test_topics_that_nobody_compacts_are_named_at_the_start(stores: Stores, tmp_path: Path) -> None:
    tables = Tables(build_config({"storePathRootDir": str(tmp_path)}), now_ms=Clock())
    store = stores.open()
    with capture_logs() as logs:
        tables.agree_with(store)
    assert not [line for line in logs if "COMPACTION" in line["event"]]
    tables.topics.put(TopicConfig("last-values", attributes={"cleanup.policy": "COMPACTION"}))
    with capture_logs() as logs:
        tables.agree_with(store)
    (warning,) = [line for line in logs if "COMPACTION" in line["event"]]
    assert warning["topics"] == ["last-values"]


def test_queues_are_known_by_topics_groups_and_delay_levels(tmp_path: Path) -> None:
    tables = Tables(build_config({"storePathRootDir": str(tmp_path)}), now_ms=Clock())
    tables.topics.put(TopicConfig("A", read_queue_nums=1, write_queue_nums=2))
    tables.offsets.commit("A", "one", 1, 7)
    tables.offsets.commit("A", "two", 1, 5)
    tables.offsets.commit("Gone from the list", "one", 0, 3)
    tables.delay_offsets.put(3, 11)
    assert tables.known_offsets() == {
        ("A", 0): 0,
        ("A", 1): 7,
        ("Gone from the list", 0): 3,
        (SCHEDULE_TOPIC, 2): 11,
    }
