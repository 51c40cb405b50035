"""``store restore``: restore a store to a point of a backup, or to a time.

The log is copied under a temporary name, checked against its checksums, truncated, and renamed when
it is complete. Then the store is opened like by a broker, which creates queues and index. Until the
end there is a file UNFINISHED; a new restore replaces the files of an interrupted one.
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.settings.store_layout import StoreLayout, file_name
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import CorruptFileError
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.recovering import inventory
from rockhopper.broker.store.recovering.inventory import Inventory, QueueKey
from rockhopper.broker.store.recovering.log_walk import LogWalk
from rockhopper.broker.tools.repair import recovered
from rockhopper.broker.tools.repair.backing_up import Backup, decode_ends
from rockhopper.broker.tools.repair.choosing import RestorePoints, segments_of
from rockhopper.broker.tools.repair.copying import LogFileCopy, copy_range, making
from rockhopper.broker.tools.repair.manifest import Point
from rockhopper.broker.tools.repair.room import get_allocated_bytes
from rockhopper.broker.tools.table_checking import unreadable_tables
from rockhopper.protocol.store.expected import find_places
from rockhopper.protocol.store.queue_layout import IndexGeometry
from rockhopper.protocol.store.store_paths import (
    DELETED_TOPICS_FILE,
    OWN_DIRECTORY,
    PURGED_TOPICS_FILE,
)
from rockhopper.protocol.store.topic_ends import decode_ends as decode_ends_of
from rockhopper.protocol.store.topic_ends import encode_ends

_LOG_IN_THE_MAKING = "commitlog.restoring"
# Delivered messages may be cut off: without these files the broker derives the state from the log.
_TOLD_BY_THE_LOG = (
    "config/delayOffset.json",
    "config/timercheck",
    f"{OWN_DIRECTORY}/delay/",
    f"{OWN_DIRECTORY}/timers/",
    "timerlog",
    "timerwheel",
)
_ENDS = tuple(f"{OWN_DIRECTORY}/{name}" for name in (DELETED_TOPICS_FILE, PURGED_TOPICS_FILE))


class Restored(NamedTuple):
    """The result of a restore."""

    point: Point
    log_start: int
    log_end: int
    record_count: int
    hole_count: int
    """The damaged places in the log at the time of the copy."""
    left_out: list[str]
    """Tables that cannot be read, and whose copies cannot be read either."""


def restore(
    backup: Backup,
    choice: RestorePoints,
    target: Path,
    config: BrokerConfig,
    progress: Callable[[int], None],
) -> Restored:
    """Create the store in *target*.

    Raises:
        StoreError: the target is not empty or has no room, or the backup is damaged; the message
            names the place.
        OSError: the disk is failing; the next try starts from the beginning.
    """
    with making(target, compute_needed_bytes(backup, choice)):
        return _restore(backup, choice, target, config, progress)


def compute_needed_bytes(backup: Backup, choice: RestorePoints) -> int:
    """Return the minimum size of log and tables, without queues and index. Raises OSError."""
    segments = segments_of(backup, choice.log)
    need_bytes: int = sum(size for _, size in choice.tables.tables.values())
    if segments:
        need_bytes += choice.log.sizes[0]
    return need_bytes + sum(
        min(segment.size, get_allocated_bytes(backup.log / segment.name))
        for segment in segments[:-1]
    )


def _restore(
    backup: Backup,
    choice: RestorePoints,
    target: Path,
    config: BrokerConfig,
    progress: Callable[[int], None],
) -> Restored:
    layout = StoreLayout.from_config(StoreConfig(root=target))
    disk.make_directories_durably(target / _LOG_IN_THE_MAKING)
    point = choice.log
    log_bytes, queue_bytes, batch_bytes, slots, entries = point.sizes
    files = _copy_log(backup, point, target / _LOG_IN_THE_MAKING, log_bytes, progress)
    ends = decode_ends(backup.objects.get(point.ends))
    end = point.log_end
    if choice.before_ms is not None:
        end, ends = _cut(files, point.log_end, choice.before_ms, ends)
    left_out = _write_tables(backup, choice.tables, target, end)
    sizes = log_bytes, queue_bytes, batch_bytes
    inventory.save(layout, Inventory(end, None, ends, file_sizes=sizes))
    disk.sync_paths([path for path in target.rglob("*") if path.is_file()])
    disk.move(target / _LOG_IN_THE_MAKING, layout.commit_log)
    shape = IndexGeometry(slots, entries) if slots else None
    report = recovered.recover(
        recovered.copy_sizes(recovered.place_store(config, target), sizes, shape)
    )
    hole_count = len(report.holes)
    return Restored(
        point, files.min_offset, report.log_end, report.record_count, hole_count, left_out
    )


def _write_tables(backup: Backup, point: Point, target: Path, log_end: int) -> list[str]:
    """Write tables and notes, without notes of deliveries and deletions after *log_end*.

    Unreadable tables are left out too, because no broker starts with them; return their names.
    """
    is_later = point.log_end > log_end
    files = {name: backup.objects.get(kept) for name, (kept, _) in point.tables.items()}
    left_out = [name for name, copy in unreadable_tables(files).items() if copy is None]
    for name, data in files.items():
        if is_later and name.startswith(_TOLD_BY_THE_LOG):
            continue
        if name.removesuffix(".bak") in left_out:
            continue
        if is_later and name in _ENDS:
            data = _ends_before(data, log_end)
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return left_out


def _ends_before(data: bytes, log_end: int) -> bytes:
    ends = {topic: end for topic, end in decode_ends_of(data).items() if end < log_end}
    return b"".join(encode_ends({topic: end}) for topic, end in ends.items())


def _copy_log(
    backup: Backup,
    point: Point,
    directory: Path,
    file_size_bytes: int,
    progress: Callable[[int], None],
) -> MappedFileQueue:
    segments = segments_of(backup, point)
    files = MappedFileQueue(directory, file_size_bytes)
    for segment in segments:
        path = directory / file_name(segment.base)
        copy = LogFileCopy(path, file_size_bytes, is_last=segment is segments[-1])
        source = backup.log / segment.name
        stop = min(segment.size, point.log_end - segment.base)
        crc = 0

        def write(position: int, data: bytes, copy: LogFileCopy = copy, stop: int = stop) -> None:
            nonlocal crc
            crc = zlib.crc32(data, crc)
            if position < stop:
                copy.write(position, data[: stop - position])

        try:
            for at in copy_range(source, 0, segment.size, write):
                progress(segment.base + at)
        finally:
            copy.close()
        if crc != segment.crc:
            raise CorruptFileError(
                source,
                "this file of the backup differs from what was copied: 'store backup --verify' "
                "lists everything that is wrong. Restore an older point, or the file",
            )
        files.files.append(MappedFile(path, segment.base, file_size_bytes))
    return files


def _cut(
    files: MappedFileQueue,
    log_end: int,
    before_ms: int,
    ends: dict[QueueKey, int],
) -> tuple[int, dict[QueueKey, int]]:
    """Truncate the log before the first message stored at *before_ms* or later.

    Return the new end, and the queue ends there, for queues that may have no messages left.
    """
    walk = LogWalk(files.files, files.min_offset, proven_end=log_end)
    end = log_end
    firsts: dict[QueueKey, int] = {}
    for record in walk.records():
        if end == log_end and record.store_time_ms >= before_ms and record.offset < log_end:
            end = record.offset
        if record.offset >= end:
            for topic, queue_id, first_offset, _ in find_places(record, is_batch=False):
                firsts.setdefault((topic, queue_id), first_offset)
    if end < log_end:
        files.truncate_to(end)
    kept = {key: min(queue_end, firsts.get(key, queue_end)) for key, queue_end in ends.items()}
    return end, {key: queue_end for key, queue_end in kept.items() if queue_end}
