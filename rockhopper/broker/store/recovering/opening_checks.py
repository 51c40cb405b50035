"""The checks of a store directory before anything in it is changed.

- The file system can hold a store. Some network and user-space file systems accept files, but lack
  file locks, shared mappings or fsync of directories. They would fail at the first message or,
  worse, at the first crash.
- The store is there, if it must be, and it is finished.
- RocketMQ keeps nothing of it in RocksDB, which Rockhopper cannot read:

      consumequeue/CURRENT, consumequeue_rocksdb/   queues (storeType=defaultRocksDB, double writes)
      config/topics, subscriptionGroups,
          consumerOffsets, metadata, rdb            tables (the same, or configManagerVersion=v2)
      rocksdbstore/                                 timers and open transactions, each in a column
                                                    family; every broker of 5.5 has the directory
      kvStore/                                      popped messages (popConsumerKVServiceEnable)

  A directory with a file CURRENT is a database. An empty database has no other file but its
  manifest.
- The commit log is where it should be. An unmounted disk, a setting that names another directory
  and a deleted directory all look like a store that never held a message. A start would rebuild
  queues and index from nothing, which deletes them, and would assign their offsets again. So a log
  without a record is refused if one of these shows that it had records:

      units of consume queues         written by any broker
      rockhopper/inventory.json       the log's end when the store was last complete
      rockhopper/checkpoint           up to where the log was flushed

  Units alone prove nothing about a log of zeros that was ours under ASYNC_FLUSH: after a power cut
  in the first moments of a store, the units may be on disk and the records not. The first file of a
  log is durable before the first message is accepted, so this never excuses a log without files.

If the log is not below the root, ``<root>/rockhopper/commit-log-directory`` holds its absolute
path, in one line, for tools that know only the root.
"""

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.checkpoint import StoreCheckpoint
from rockhopper.broker.store.files.errors import CorruptFileError, StoreError, UnfitFileSystemError
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.log.log_scan import record_at
from rockhopper.broker.store.log.log_start import has_log
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.broker.store.recovering.inventory import Inventory
from rockhopper.broker.store.recovering.log_walk import is_all_zeros
from rockhopper.protocol.store.store_paths import (
    COMMIT_LOG_DIRECTORY,
    COMMIT_LOG_DIRECTORY_FILE,
)

log = structlog.get_logger("broker.store")
_UNSUPPORTED_ERRNOS = {
    errno.EINVAL,
    errno.ENODEV,
    errno.ENOLCK,
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.ENOTTY,
}
_ROCKSDB_TABLES = ("topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb")
_ROCKSDB_FAMILIES = {b"timer": 1, b"trans": 2}
_PROGRESS_KEYS = (b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint", b"lastOffsetPy")
# The properties of a table file are at its end.
_PROPERTIES_SIZE_BYTES = 64 << 10
_FOLLOW = (
    "start RocketMQ with it again and copy the running broker with `rockhopper ha follow`, which "
    "needs no files of RocksDB"
)


def check_store_finished(layout: StoreLayout) -> None:
    """Check that the tool that makes the store has finished.

    Raises:
        StoreError: it has not finished; its files would look like a store that lost the others.
    """
    if layout.unfinished.exists():
        raise StoreError(
            f"the store in {layout.root} is incomplete: a 'store restore' or 'store repair' is "
            "creating it, or was interrupted. Run that again to its end, or remove the directory"
        )


def check_store_exists(layout: StoreLayout, *, must_exist: bool) -> None:
    """Warn if there is no store, so that a new one will be made.

    Raises:
        StoreError: there is none and *must_exist* is set; nothing was changed.
    """
    if layout.lock.exists() or layout.checkpoint.exists() or has_log(layout.commit_log):
        return
    if must_exist:
        raise StoreError(
            f"there is no store in {layout.root}, and storeMustExist=true: mount its disk, or "
            "check storePathRootDir. To create a new store there, start once without "
            "storeMustExist"
        )
    log.warning(
        "creating a new, empty store: if a store should be here, stop the broker and mount its "
        "disk",
        path=str(layout.root),
    )


def check_log_directory(layout: StoreLayout) -> None:
    """Check that storePathCommitLog names the only log, in a directory that can hold it.

    Raises:
        StoreError: it does not.
    """
    log_directory, root = layout.commit_log.resolve(), layout.root.resolve()
    usual = root / COMMIT_LOG_DIRECTORY
    if log_directory == usual.resolve():
        return
    for taken in (
        layout.consume_queues,
        layout.batch_consume_queues,
        layout.consume_queue_exts,
        layout.index,
        layout.timer_log,
        layout.config,
        layout.own,
    ):
        if log_directory == root or log_directory.is_relative_to(taken.resolve()):
            raise StoreError(
                f"storePathCommitLog names {layout.commit_log}, where the store keeps other "
                "files: give the commit log its own directory"
            )
    if has_log(usual):
        raise StoreError(
            f"there are commit log files in {usual}, but storePathCommitLog names "
            f"{layout.commit_log}: Rockhopper before 0.2.0 ignored the setting and wrote to the "
            "former. Remove the setting, or move those files to its directory; if they do not "
            "belong to this store, move them away"
        )


def check_log_exists(
    layout: StoreLayout,
    files: MappedFileQueue,
    queues: Iterable[UnitQueue],
    noted: Inventory | None,
    checkpoint: StoreCheckpoint,
) -> None:
    """Check that the loaded log is not empty although it once held messages.

    Raises:
        CorruptFileError: it is; nothing was changed.
    """
    log_min = files.min_offset
    if record_at(files, log_min) is not None or not all(map(is_all_zeros, files.files)):
        return
    reached = max(checkpoint.flushed_offset, noted.log_end if noted is not None else 0)
    if reached > log_min:
        evidence = f"it was on disk up to offset {reached}"
    else:
        proves_nothing = noted is not None and not noted.is_sync
        if files.files and proves_nothing:
            return
        queue = next((queue for queue in queues if queue.reaches_beyond(log_min)), None)
        if queue is None:
            return
        evidence = f"the consume queue in {queue.directory} contains messages"
    what = "contain nothing but zeros" if files.files else "are not there"
    raise CorruptFileError(
        layout.commit_log,
        f"the files of the commit log {what}, but {evidence}. Check that its disk is mounted and "
        f"that storePathCommitLog is right{_former_directory(layout)}, and restore the files. To "
        f"start with an empty store, move {layout.root} away",
    )


def _former_directory(layout: StoreLayout) -> str:
    try:
        known = (layout.own / COMMIT_LOG_DIRECTORY_FILE).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return f" (the log was in {known} before)" if known != str(layout.commit_log.resolve()) else ""


def save_log_directory(layout: StoreLayout) -> None:
    """Record where the log is, for tools, if it is not below the root.

    Raises:
        OSError: the former record is unchanged.
    """
    path = layout.own / COMMIT_LOG_DIRECTORY_FILE
    place = layout.commit_log.resolve()
    if place == (layout.root / COMMIT_LOG_DIRECTORY).resolve():
        disk.remove_files([path])
        return
    line = f"{place}\n".encode()
    if not path.is_file() or path.read_bytes() != line:
        disk.make_directories_durably(layout.own)
        disk.write_atomically(path, line)


def check_file_system(directory: Path) -> None:
    """Check that files in *directory* can be locked and mapped, and that it can be synced itself.

    Raises:
        UnfitFileSystemError: the file system does not support one of these.
        OSError: something else is wrong.
    """
    with open(_make_unnamed(directory), "r+b") as file:
        with _explain_lack(directory, "no file locks"):
            fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        file.truncate(mmap.PAGESIZE)
        has_room = _has_room(file.fileno())
        with (
            _explain_lack(directory, "no shared writable mappings"),
            mmap.mmap(file.fileno(), mmap.PAGESIZE) as mapped,
        ):
            if has_room:
                mapped[0] = 1
                mapped.flush()
    with _explain_lack(directory, "no fsync of directories"):
        disk.sync_directory(directory)


def _make_unnamed(directory: Path) -> int:
    """Return the descriptor of a new file without a name in *directory*."""
    with contextlib.suppress(OSError):
        return os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
    # The file system has no files without a name, or the error comes again.
    path = directory / f".tried-{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    path.unlink()
    return descriptor


def _has_room(descriptor: int) -> bool:
    """Reserve the page to write: on a full disk a signal would kill the process."""
    try:
        disk.reserve(descriptor, 0, mmap.PAGESIZE)
    except OSError as error:
        if error.errno not in disk.DISK_FULL_ERRNOS:
            raise
        return False
    return True


@contextlib.contextmanager
def _explain_lack(directory: Path, lack: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _UNSUPPORTED_ERRNOS:
            raise UnfitFileSystemError(directory, lack, error) from error
        raise


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
    for name in _ROCKSDB_TABLES:
        if (layout.config / name / "CURRENT").is_file():
            yield layout.config / name, "topics, groups and offsets", _FOLLOW
    families = _read_rocksdb_families(layout.root / "rocksdbstore")
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
    if _has_rocksdb_records(layout.root / "kvStore"):
        way_out = (
            "start RocketMQ with it again with popConsumerKVServiceEnable=false, and let it move "
            "them to its log by request code 200056 (POP_ROLLBACK)"
        )
        yield layout.root / "kvStore", "messages popped and not acknowledged", way_out


def _has_rocksdb_records(directory: Path) -> bool:
    return any(path.stat().st_size for path in _list_rocksdb_files(directory))


def _list_rocksdb_files(directory: Path) -> list[Path]:
    return [*directory.glob("*.sst"), *directory.glob("*.log")]


def _read_rocksdb_families(directory: Path) -> set[bytes]:
    """Return the column families that have records."""
    found = set()
    for path in _list_rocksdb_files(directory):
        size = path.stat().st_size
        start = max(0, size - _PROPERTIES_SIZE_BYTES) if path.suffix == ".sst" else 0
        if not size:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for name, number in _ROCKSDB_FAMILIES.items():
                # A table file names its family; a write-ahead log has a put of its progress.
                puts = [b"\5%c%c%b" % (number, len(key), key) for key in _PROGRESS_KEYS]
                if any(data.find(each, start) >= 0 for each in (b"name" + name, *puts)):
                    found.add(name)
    return found
