"""RocketMQ's data in RocksDB: not supported, so a store with it is refused before any change.

    consumequeue/CURRENT, consumequeue_rocksdb/   queues (storeType=defaultRocksDB, double writes)
    config/topics, subscriptionGroups,
        consumerOffsets, metadata, rdb            tables (the same, or configManagerVersion=v2)
    rocksdbstore/                                 timers and open transactions, each in a column
                                                  family; every broker of 5.5 has the directory
    kvStore/                                      popped messages (popConsumerKVServiceEnable)

A directory with a file CURRENT is a database. An empty database has no other file but its manifest.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.errors import StoreError

_TABLES = ("topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb")
_FAMILIES = {b"timer": 1, b"trans": 2}
_PROGRESS_KEYS = (b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint", b"lastOffsetPy")
# The properties of a table file are at its end.
_PROPERTIES_SIZE_BYTES = 64 << 10
_FOLLOW = (
    "start RocketMQ with it again and copy the running broker with `rockhopper ha follow`, which "
    "needs no files of RocksDB"
)


def check_no_rocksdb(layout: StoreLayout) -> None:
    """Check that RocketMQ stored nothing in RocksDB that would be missing here.

    Raises:
        StoreError: it did; the message says what to do.
        OSError: a file cannot be read.
    """
    for directory, what, way_out in list_rocksdb_data(layout):
        raise StoreError(
            f"RocketMQ keeps {what} of this store in RocksDB ({directory}), which Rockhopper "
            f"cannot read: {way_out}. If RocketMQ has switched back to files since, move "
            f"{directory} away"
        )


def list_rocksdb_data(layout: StoreLayout) -> Iterator[tuple[Path, str, str]]:
    """Yield the path, content and remedy of each database that has data. Raises OSError."""
    for directory in layout.consume_queues, layout.root / "consumequeue_rocksdb":
        if (directory / "CURRENT").is_file():
            yield directory, "the queues", _FOLLOW
    for name in _TABLES:
        if (layout.config / name / "CURRENT").is_file():
            yield layout.config / name, "topics, groups and offsets", _FOLLOW
    families = _families(layout.root / "rocksdbstore")
    if b"timer" in families:
        way_out = (
            "start RocketMQ with it again, move the timers back to files with `mqadmin "
            "switchTimerEngine -e F`, and set timerRocksDBEnable=false"
        )
        yield layout.root / "rocksdbstore", "timed messages", way_out
    if b"trans" in families:
        way_out = (
            "start RocketMQ with it again with transWriteOriginTransHalfEnable=true, and stop it "
            "when its transactions have ended"
        )
        yield layout.root / "rocksdbstore", "open transactions", way_out
    if _has_records(layout.root / "kvStore"):
        way_out = (
            "start RocketMQ with it again with popConsumerKVServiceEnable=false, and let it move "
            "them to its log by request code 200056 (POP_ROLLBACK)"
        )
        yield layout.root / "kvStore", "messages popped and not acknowledged", way_out


def _has_records(directory: Path) -> bool:
    return any(path.stat().st_size for path in _data_files(directory))


def _data_files(directory: Path) -> list[Path]:
    return [*directory.glob("*.sst"), *directory.glob("*.log")]


def _families(directory: Path) -> set[bytes]:
    """Return the column families that have records."""
    found = set()
    for path in _data_files(directory):
        size = path.stat().st_size
        start = max(0, size - _PROPERTIES_SIZE_BYTES) if path.suffix == ".sst" else 0
        if not size:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for name, number in _FAMILIES.items():
                # A table file names its family; a write-ahead log has a put of its progress.
                puts = [b"\5%c%c%b" % (number, len(key), key) for key in _PROGRESS_KEYS]
                if any(data.find(each, start) >= 0 for each in (b"name" + name, *puts)):
                    found.add(name)
    return found
