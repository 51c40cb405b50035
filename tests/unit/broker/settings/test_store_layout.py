"""StoreLayout: RocketMQ's names, and no name that leads out of the directory."""

import re
from pathlib import Path

import pytest

from rockhopper import broker
from rockhopper.broker.settings.broker_config import StoreConfig
from rockhopper.broker.settings.store_layout import StoreLayout, file_name


def test_files_are_named_by_twenty_digits() -> None:
    assert file_name(1_073_741_824) == "00000000001073741824"


def test_queues_are_where_rocketmq_looks_for_them() -> None:
    layout = StoreLayout(Path("store"))
    assert layout.consume_queue("%RETRY%g", 3) == Path("store/consumequeue/%RETRY%g/3")
    assert layout.batch_consume_queue("T", 0) == Path("store/batchconsumequeue/T/0")
    assert layout.consume_queue_ext("T", 0) == Path("store/consumequeue_ext/T/0")
    assert [path.name for path in (layout.lock, layout.abort, layout.checkpoint)] == [
        "lock",
        "abort",
        "checkpoint",
    ]


def test_commit_log_may_live_elsewhere() -> None:
    assert StoreLayout(Path("store")).commit_log == Path("store/commitlog")
    assert StoreLayout(Path("store"), Path("/ssd/log")).commit_log == Path("/ssd/log")


def test_settings_alone_say_where_it_is() -> None:
    config = StoreConfig(root=Path("store"), commit_log_directory=Path("/ssd/log"))
    assert StoreLayout.from_config(config) == StoreLayout(Path("store"), Path("/ssd/log"))
    made_by_hand = [
        path
        for path in Path(broker.__file__).parent.rglob("*.py")
        if re.search(r"\bStoreLayout\(", path.read_text())
    ]
    assert made_by_hand == []


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../a", "a\\b", "a\0b"])
def test_topic_that_is_no_directory_name_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="no directory can be named"):
        StoreLayout(Path("store")).consume_queue(topic, 0)


def test_negative_queue_id_is_refused() -> None:
    with pytest.raises(ValueError, match="queue -1"):
        StoreLayout(Path("store")).consume_queue("T", -1)
