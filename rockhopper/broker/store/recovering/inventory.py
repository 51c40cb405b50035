"""The inventory: the contents of a store when it was last known to be complete.

If the directory of a consume queue is lost, only its records somewhere in the log show that it
existed; and a commit log that lost its end looks like one that never went further. So the end of
the log, and the ends of queues and index, are saved when the store has been opened and when it is
closed. The next start compares: it rebuilds missing entries, and treats damage before the saved end
as a hole in the log rather than a torn tail, so that no queue offset is used twice.

Example: queue 0 of topic ``a`` has offsets 0, 1 and 2, and the saved log end is 900. A disk error
destroys the log from 600 on, with message 2. Without the inventory that would look like a torn
tail, and the next message would get offset 2 again. With it, [600, 900) is a hole, offset 2 is
lost, and the next message gets offset 3.

``<root>/rockhopper/inventory.json``: one line of JSON and one with the CRC-32 of the first in hex.

    {"logEnd": 4711, "indexEnd": 4500, "holes": [[<start>, <end>], …], "sync": false,
     "fileSizes": [<commit log>, <consume queue>, <batch consume queue>],
     "queues": {"<topic>": {"<queue id>": <next queue offset>}},
     "queueStarts": {"<topic>": {"<queue id>": <position of the first file>}}}

"sync" is the mode of the run that wrote it: under SYNC_FLUSH no message is in a queue before it is
on disk. "queueStarts" lists the queues whose first files have expired. Builds before 0.2.0 wrote
neither of these, nor the sizes of the files.

Without an inventory, as in a store that comes from RocketMQ, recovery reads more of the log.

Tables and journals have sizes only. A missing or empty file looks like one that never held
anything, and one that was cut between two records looks complete. So their sizes at a clean stop
are saved, as the last step before ``abort`` is removed, and the next start logs missing ones.

``<root>/rockhopper/stopped-files.json``: two lines like those of the inventory.

    {"inventory": <CRC-32 of inventory.json>, "sizes": {"config/topics.json": 1234, …}}

If an older release ran since, the inventory has changed, and the saved sizes are ignored.

A clean stop also saves the state of all queues, so that the next start need not read each of them.

``<root>/rockhopper/stopped-queues.json``: one line of JSON and one with the CRC-32 of the first in
hex.

    {"lock": [<inode>, <mtime>, <ctime>], "digest": [<number>, <number>], "storeTime": <ms>,
     "fileSizes": [<consume queue>, <batch consume queue>],
     "queues": {"<topic>": {"<queue id>": [<min offset>, <next offset>, <commit log end>]}},
     "others": {"<topic>": [<queue id>, …]}, "batch": {"<topic>": [<queue id>, …]}}

"queues" are those with only their first file; "others" have more files, or their first has expired;
"batch" are of the other kind. These two are read as after a crash, but nobody lists directories.

The file counts only if nothing has changed since: if ``abort`` is absent and

- "lock" is the state of the file ``lock`` as the next start finds it. Each broker, Rockhopper of
  any release or RocketMQ, writes to that file when it opens a store. So none has opened it since.
- "digest" is that of inodes, sizes and times of the commit log's files, of the directories of
  topics and queues, and of the files of "queues". So nobody has deleted, added, restored or edited
  one by hand, and the store is not a copy.

Otherwise, or if the file is damaged, all queues are read. Example: an operator deletes a queue's
directory while the broker is stopped. The time of the topic's directory differs, so the digest does
too, and the start finds that the queue is missing and rebuilds it from the log.

It is written after everything is on disk and before ``abort`` is removed, and is never updated: as
soon as the next start has taken the lock, it is obsolete, whatever happens then.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from zlib import crc32

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout, file_name
from rockhopper.broker.store.files import checked_line, disk
from rockhopper.broker.store.files.lock_file import FileState
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.index.index import MessageIndex
from rockhopper.broker.store.queues.queue_table import ConsumeQueueTable, StoppedQueues
from rockhopper.protocol.store.store_paths import INVENTORY_FILE as INVENTORY_FILE

log = structlog.get_logger("broker.store")

SIZES_FILE = "stopped-files.json"
QUEUES_FILE = "stopped-queues.json"
_FIRST_FILE = f"/{file_name(0)}"
_OFFSET_BASIS, _PRIME, _MASK = 14_695_981_039_346_656_037, 1_099_511_628_211, (1 << 64) - 1
QueueKey = tuple[str, int]


class Inventory(NamedTuple):
    """The ends of log, index and queues.

    ``log_end`` had been fsynced. ``index_end`` is the newest message in the index, −1 if the index
    is empty, None without an index. ``queue_ends`` are next queue offsets by topic and queue id.
    ``holes`` are ranges of the log that are known to be damaged. ``is_sync`` means that the run
    that began with this inventory flushes each message before it is in a queue. ``file_sizes`` are
    those of the files of commit log, consume queues and batch consume queues, 0 if unknown.
    ``queue_starts`` are where the files of queues begin, except those that begin at 0.
    """

    log_end: int
    index_end: int | None
    queue_ends: dict[QueueKey, int]
    holes: tuple[tuple[int, int], ...] = ()
    is_sync: bool = False
    file_sizes: tuple[int, int, int] = (0, 0, 0)
    queue_starts: Mapping[QueueKey, int] = MappingProxyType({})

    def is_in_hole(self, commit_log_offset: int) -> bool:
        """Return whether an offset is in damage that is known already."""
        return any(start <= commit_log_offset < end for start, end in self.holes)


def take(
    log_end: int,
    queues: ConsumeQueueTable,
    index: MessageIndex | None,
    holes: Iterable[tuple[int, int]] = (),
) -> Inventory:
    """Return the current inventory; everything up to *log_end* must be dispatched and flushed."""
    found = list(queues.list_awake())
    ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in found if queue.max_offset}
    return Inventory(
        log_end,
        None if index is None else index.end_commit_log_offset,
        {**ends, **queues.list_asleep()},
        tuple(holes),
        queue_starts={
            (queue.topic, queue.queue_id): queue.first_position
            for queue in found
            if queue.has_files and queue.first_position
        },
    )


def save(layout: StoreLayout, inventory: Inventory) -> None:
    """Replace the inventory on disk. Blocks.

    Raises:
        OSError: the former one is still in place.
    """
    document = {
        "logEnd": inventory.log_end,
        "indexEnd": inventory.index_end,
        "holes": inventory.holes,
        "sync": inventory.is_sync,
        "fileSizes": inventory.file_sizes,
        "queues": _group_by_topic(inventory.queue_ends),
        "queueStarts": _group_by_topic(inventory.queue_starts),
    }
    disk.make_directories_durably(layout.own)
    disk.write_atomically(layout.own / INVENTORY_FILE, checked_line.encode(document))


def no_longer_sync(layout: StoreLayout) -> None:
    """Record that from now on queues may hold messages that are not on disk. Blocks.

    Raises:
        OSError: this is not recorded, so it must not happen.
    """
    known = load(layout)
    if known is not None and known.is_sync:
        save(layout, known._replace(is_sync=False))


def load(layout: StoreLayout) -> Inventory | None:
    """Return the inventory on disk; None if it is missing or damaged."""
    return checked_line.load(
        layout.own / INVENTORY_FILE,
        _inventory_of,
        "the store's inventory is damaged; recovery reads more of the log instead",
    )


def _inventory_of(document: Any) -> Inventory:
    log_bytes, queue_bytes, batch_bytes = document.get("fileSizes", (0, 0, 0))
    return Inventory(
        document["logEnd"],
        document["indexEnd"],
        _group_by_queue(document["queues"]),
        tuple((start, end) for start, end in document["holes"]),
        document.get("sync", False),
        (log_bytes, queue_bytes, batch_bytes),
        _group_by_queue(document.get("queueStarts", {})),
    )


def _group_by_topic(numbers: Mapping[QueueKey, int]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, queue_id), number in numbers.items():
        topics.setdefault(topic, {})[str(queue_id)] = number
    return topics


def _group_by_queue(topics: Mapping[str, Mapping[str, int]]) -> dict[QueueKey, int]:
    return {
        (topic, int(queue_id)): number
        for topic, numbers in topics.items()
        for queue_id, number in numbers.items()
    }


def save_at_stop(
    layout: StoreLayout,
    log_end: int,
    queues: ConsumeQueueTable,
    index: MessageIndex | None,
    is_deleted: Callable[[str, int], bool],
) -> None:
    """Save the inventory at the end of a clean stop; known holes stay known.

    The ends of queues without files stay too, unless *is_deleted* returns that their topic was
    deleted after the record at a commit log offset was written.

    Raises:
        OSError: the former inventory is still in place, which makes the next start slower.
    """
    present = take(log_end, queues, index)
    former = load(layout)
    if former is not None:
        kept = {
            key: end
            for key, end in former.queue_ends.items()
            if not is_deleted(key[0], former.log_end - 1)
        }
        present = present._replace(
            queue_ends={**kept, **present.queue_ends},
            holes=former.holes,
            is_sync=former.is_sync,
            file_sizes=former.file_sizes,
        )
    save(layout, present)


def save_table_sizes(layout: StoreLayout) -> None:
    """Save the sizes; on a full disk the former ones stay, which the next start ignores."""
    with contextlib.suppress(OSError):
        sizes = {
            _relative_name(path, layout): path.stat().st_size
            for path in _tables_and_journals(layout)
        }
        document = {"inventory": _inventory_checksum(layout), "sizes": sizes}
        disk.write_atomically(layout.own / SIZES_FILE, checked_line.encode(document))


def check_table_sizes(layout: StoreLayout) -> None:
    """Log files that are missing or shorter; call it only after a clean stop.

    RocketMQ may have written the tables since, and a start that leaves a replica set rewrites its
    small files: of these, only missing or empty ones are logged.
    """
    try:
        document = checked_line.decode((layout.own / SIZES_FILE).read_bytes())
        if document["inventory"] != _inventory_checksum(layout):
            return
        sizes: dict[str, int] = document["sizes"]
    except (OSError, ValueError, KeyError):
        return
    found = {_relative_name(path, layout): path for path in _tables_and_journals(layout)}
    replaced = tuple(
        f"{_relative_name(path, layout)}/" for path in (layout.config, layout.own / "ha")
    )
    lost = []
    for name, size_bytes in sizes.items():
        least_bytes = min(size_bytes, 1) if name.startswith(replaced) else size_bytes
        now_bytes = found[name].stat().st_size if name in found else None
        if now_bytes is None or now_bytes < least_bytes:
            now = "missing" if now_bytes is None else f"{now_bytes} bytes"
            lost.append(f"{name}: {now}, {size_bytes} bytes at the stop")
    if lost:
        log.warning(
            "files are missing or shorter than at the last stop, and their content is lost; "
            "unless you removed them on purpose, restore them and check the disk",
            directory=str(layout.root),
            files=lost,
        )


def _relative_name(path: Path, layout: StoreLayout) -> str:
    return path.relative_to(layout.root).as_posix()


def _inventory_checksum(layout: StoreLayout) -> int:
    return crc32((layout.own / INVENTORY_FILE).read_bytes())


def _tables_and_journals(layout: StoreLayout) -> Iterator[Path]:
    """Yield tables and journals, without the store's own notes, which have other checks."""
    passed_over = layout.quarantine, layout.deleted_queues
    directories = [path for path in layout.own.iterdir() if path not in passed_over]
    paths = [
        *layout.config.glob("*.json"),
        *layout.own.glob("*.records"),
        layout.topic_ids,
        layout.topic_ends,
        layout.log_history,
    ]
    for directory in directories:
        paths += directory.rglob("*") if directory.is_dir() else ()
    for path in sorted(paths):
        if path.is_file() and path.suffix not in (".bak", ".tmp"):
            yield path


def digest_files_in_python(paths: list[str], suffix: str) -> int | None:
    """Return a number that changes with any of the files *paths*, and with *suffix* after each.

    It is of inodes, sizes and times. Returns None if a file is missing.
    """
    digest = _OFFSET_BASIS
    try:
        for path in paths:
            for name in (path, path + suffix) if suffix else (path,):
                state = os.stat(name)
                times = state.st_mtime_ns, state.st_ctime_ns
                for field in (state.st_ino, state.st_size, *times):
                    digest = (digest ^ field & _MASK) * _PRIME & _MASK
    except (OSError, ValueError):
        return None
    return digest


digest_files: Callable[[list[str], str], int | None] = digest_files_in_python
if disk.COMPILED is not None:
    digest_files = disk.COMPILED.digest_files


def save_queues(
    layout: StoreLayout,
    lock: FileState,
    log_files: MappedFileQueue,
    queues: ConsumeQueueTable,
    store_time_ms: int,
) -> None:
    """Save the state of all queues, of which nothing may change before ``abort`` is removed.

    Blocks. Without space for it, the next start reads all queues.
    """
    stopped = queues.list_stopped(store_time_ms)
    document = {
        "lock": lock,
        "digest": _digest(layout, log_files, stopped),
        "storeTime": store_time_ms,
        "fileSizes": stopped.file_sizes_bytes,
        "queues": stopped.short,
        "others": stopped.others,
        "batch": stopped.batch,
    }
    with contextlib.suppress(OSError):
        disk.write_atomically(layout.own / QUEUES_FILE, checked_line.encode(document))


def load_queues(
    layout: StoreLayout, lock: FileState, log_files: MappedFileQueue
) -> StoppedQueues | None:
    """Return the state of all queues if nothing changed since; call it only after a clean stop.

    *lock* is the state of the lock file before this process wrote to it.
    """
    found = checked_line.load(
        layout.own / QUEUES_FILE,
        _stopped_of,
        "the note of all queues is damaged; each queue is read instead",
    )
    if found is None:
        return None
    stopped, noted_lock, digest = found
    if None in digest or noted_lock != lock or digest != _digest(layout, log_files, stopped):
        log.info("the files of the store have changed since the last stop; each queue is read")
        return None
    return stopped


def _stopped_of(document: dict[str, Any]) -> tuple[StoppedQueues, FileState, list[int | None]]:
    plain_bytes, batch_bytes = document["fileSizes"]
    inode, modified_ns, changed_ns = document["lock"]
    stopped = StoppedQueues(
        document["storeTime"],
        (plain_bytes, batch_bytes),
        document["queues"],
        document["others"],
        document["batch"],
    )
    return stopped, (inode, modified_ns, changed_ns), document["digest"]


def _digest(
    layout: StoreLayout, log_files: MappedFileQueue, stopped: StoppedQueues
) -> list[int | None]:
    plain, batch = str(layout.consume_queues), str(layout.batch_consume_queues)
    paths = [str(file.path) for file in log_files.files]
    short: list[str] = []
    topics = dict.fromkeys([*stopped.short, *stopped.others])
    for parent, names in ((plain, topics), (batch, stopped.batch)):
        paths += [parent] if names else []
        paths += [f"{parent}/{topic}" for topic in names]
    for topic, rows in stopped.short.items():
        short += [f"{plain}/{topic}/{queue_id}" for queue_id in rows]
    for parent, others in ((plain, stopped.others), (batch, stopped.batch)):
        paths += [f"{parent}/{topic}/{each}" for topic, ids in others.items() for each in ids]
    return [digest_files(paths, ""), digest_files(short, _FIRST_FILE)]
