"""Stores of RocketMQ's that keep something in RocksDB: none is opened as if it were not there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.recovering.opening_checks import check_no_rocksdb
from tests.support.open_stores import Stores, flush, put

TABLE_FILE = b"\0" * 100_000 + b"column.family.id\1name%bcomparator\0" + b"\0" * 500
TIMER_PROGRESS = b"\5\1\x20sys_topic_scan_offset_checkpoint\x08"
TRANSACTION_PROGRESS = b"\5\2\x0clastOffsetPy\x08"


def make_database(directory: Path, **files: bytes) -> None:
    """As RocketMQ makes one when it starts; and *files*, by what they are called."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "CURRENT").write_bytes(b"MANIFEST-000005\n")
    (directory / "000008.log").write_bytes(b"")
    for name, data in files.items():
        (directory / f"000010.{name}").write_bytes(data)


@pytest.mark.parametrize(
    ("name", "files", "what", "way_out"),
    [
        ("consumequeue", {}, "the queues", "ha follow"),
        ("consumequeue_rocksdb", {}, "the queues", "ha follow"),
        ("config/topics", {}, "topics, groups and offsets", "ha follow"),
        ("config/subscriptionGroups", {}, "topics, groups and offsets", "ha follow"),
        ("config/consumerOffsets", {}, "topics, groups and offsets", "ha follow"),
        ("config/metadata", {}, "topics, groups and offsets", "ha follow"),
        ("config/rdb", {}, "topics, groups and offsets", "ha follow"),
        ("rocksdbstore", {"sst": TABLE_FILE % b"timer"}, "timed messages", "switchTimerEngine"),
        ("rocksdbstore", {"log": TIMER_PROGRESS}, "timed messages", "switchTimerEngine"),
        ("rocksdbstore", {"sst": TABLE_FILE % b"trans"}, "open transactions", "have ended"),
        ("rocksdbstore", {"log": TRANSACTION_PROGRESS}, "open transactions", "have ended"),
        ("kvStore", {"sst": b"table"}, "popped and not acknowledged", "200056"),
        ("kvStore", {"log": b"batch"}, "popped and not acknowledged", "200056"),
    ],
)
def test_a_store_with_a_part_in_rocksdb_is_refused_with_the_way_out(
    stores: Stores, name: str, files: dict[str, bytes], what: str, way_out: str
) -> None:
    root = stores.root
    make_database(root / name, **files)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(StoreError) as refusal:
        stores.open()
    for words in (what, way_out, str(root / name), f"move {root / name} away"):
        assert words in str(refusal.value)
    assert all(path.read_bytes() == data for path, data in before.items())
    assert not (root / "commitlog").exists()


@pytest.mark.parametrize(
    "make",
    [
        lambda root: make_database(root / "rocksdbstore"),
        lambda root: make_database(root / "rocksdbstore", sst=TABLE_FILE % b"default"),
        lambda root: make_database(root / "kvStore"),
        lambda root: (root / "consumequeue" / "CURRENT" / "0").mkdir(parents=True),
    ],
    ids=["empty", "index", "no pops", "a topic CURRENT"],
)
def test_what_is_whole_without_rocksdb_is_opened(
    stores: Stores, make: Callable[[Path], object]
) -> None:
    root = stores.root
    make(root)
    check_no_rocksdb(StoreLayout(root))
    store = stores.open()
    put(store, b"taken")
    flush(store)
