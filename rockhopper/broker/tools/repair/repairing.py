"""``store repair``: create a new store with every sound record of a damaged one.

In the new log each record keeps its offset, so ids of messages, timers and transactions stay valid.
Damaged ranges are replaced by fillers: rolled back records, which are in no queue and no index,
also for RocketMQ. Queues and index are created from the new log.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.settings.store_layout import StoreLayout, file_name
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.recovering import inventory
from rockhopper.broker.store.recovering.inventory import Inventory
from rockhopper.broker.store.recovering.log_walk import Hole
from rockhopper.broker.tools.repair import recovered
from rockhopper.broker.tools.repair.copying import (
    LogFileCopy,
    check_empty,
    companions,
    copy_range,
    making,
)
from rockhopper.broker.tools.repair.room import get_allocated_bytes
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.broker.tools.table_checking import unreadable_tables
from rockhopper.protocol.store.message_codec import (
    SYS_FLAG_TRANSACTION_ROLLBACK,
    encode_message,
)
from rockhopper.protocol.store.record_head import (
    BLANK_RECORD,
    MAGIC_BLANK,
    RECORD_SIZE_BYTES_MIN,
    RecordHead,
)
from rockhopper.protocol.store.walking import Found

FILLER_TOPIC = "ROCKHOPPER_LOST"
_FILLER_BYTES_MAX = 1 << 20
_NAMED_MAX = 5
# The search in all queues is slow; for a badly damaged log it must not dominate the run.
_HOLES_ASKED_MAX = 1000
_HOST = bytes.fromhex("7f00000100002a9f")

Message: TypeAlias = tuple[str, int, int]
"""Topic, queue id and queue offset."""


class Lost(NamedTuple):
    """A range of the log without sound records."""

    log_offset: int
    size: int
    reason: str
    store_time_ms: int
    """The store time of the sound record before it."""
    messages: list[Message]
    """The messages in the range, as far as the queues show them."""

    def line(self) -> str:
        """Return one line for people."""
        named = ", ".join(
            f"{topic} queue {queue_id} offset {offset}"
            for topic, queue_id, offset in self.messages[:_NAMED_MAX]
        )
        if len(self.messages) > _NAMED_MAX:
            named += f" and {len(self.messages) - _NAMED_MAX:,} more"
        held = f" ({named})" if named else ""
        return f"log_offset={self.log_offset} size={self.size}{held}: {self.reason}"


class Repair(NamedTuple):
    """The sound and the lost parts of a log."""

    record_count: int
    log_start: int
    log_end: int
    lost: list[Lost]
    left_out: list[str]
    """Tables that cannot be read, and whose copies cannot be read either."""

    def json(self) -> dict[str, Any]:
        """Return the result for programs."""
        return {
            "records": self.record_count,
            "logStart": self.log_start,
            "logEnd": self.log_end,
            "tablesLeftOut": self.left_out,
            "lost": [
                {
                    "logOffset": lost.log_offset,
                    "size": lost.size,
                    "reason": lost.reason,
                    "storeTimeBefore": lost.store_time_ms,
                    "messages": [
                        {"topic": topic, "queue": queue_id, "queueOffset": offset}
                        for topic, queue_id, offset in lost.messages
                    ],
                }
                for lost in self.lost
            ],
        }


def survey(view: StoreView, progress: Callable[[int], None]) -> Repair:
    """Find the sound and lost records; write nothing. Raises OSError."""
    times: dict[int, int] = {}
    count = last_ms = 0

    def take(stretch: Found) -> bool:
        nonlocal count, last_ms
        count += stretch[1]
        last_ms = stretch[2]
        progress(max(run[6] for run in stretch[3]))
        return True

    for record, is_damaged in view.records(take=take):
        if len(times) < len(view.holes):
            times |= {hole.start: last_ms for hole in view.holes[len(times) :]}
        if not is_damaged:
            count += 1
            last_ms = record.store_time_ms
    holes = [
        hole._replace(end=min(hole.end, view.end)) for hole in view.holes if hole.start < view.end
    ]
    messages = _messages_in(view, holes)
    lost = [
        Lost(
            hole.start,
            hole.end - hole.start,
            hole.reason,
            times.get(hole.start, last_ms) or 1,
            messages.get(hole.start, []),
        )
        for hole in holes
    ]
    left_out = [name for name, copy in _unreadable(view).items() if copy is None]
    return Repair(count, view.log.min_offset, view.end, lost, left_out)


def _messages_in(view: StoreView, holes: list[Hole]) -> dict[int, list[Message]]:
    """Return the messages whose units point into holes, by the start of the hole."""
    found: dict[int, list[Message]] = {}
    for topic, queue_id, is_batch in view.queues if holes else ():
        queue = view.queues.open(topic, queue_id, is_batch=is_batch)
        end = queue.find_end()
        for hole in holes[:_HOLES_ASKED_MAX]:
            position = queue.first_behind(hole.start)
            while position < end and (unit := queue.unit_at(position))[0] < hole.end:
                offset = unit[4] if is_batch else position // queue.unit.size
                found.setdefault(hole.start, []).append((topic, queue_id, offset))
                position += queue.unit.size
    return found


def repair(view: StoreView, found: Repair, target: Path, progress: Callable[[int], None]) -> None:
    """Create the new store in *target*, which must be empty.

    Raises:
        StoreError: the target is not suitable, or has no room.
        OSError: the disk is failing; *target* does not contain a valid store.
    """
    check_target(view.layout.root, target)
    if not view.log.files:
        raise StoreError(
            f"there is no commit log in {view.layout.commit_log}: name the directory of a store"
        )
    with making(target, compute_needed_bytes(view)):
        _make(view, found, target, progress)


def compute_needed_bytes(view: StoreView) -> int:
    """Return the minimum size of log and tables, without queues and index. Raises OSError."""
    return sum(
        get_allocated_bytes(path)
        for path in (*(Path(file.path) for file in view.log.files), *companions(view.layout))
    )


def _make(view: StoreView, found: Repair, target: Path, progress: Callable[[int], None]) -> None:
    layout = StoreLayout.from_config(StoreConfig(root=target))
    disk.make_directories_durably(target / "commitlog.new")
    unreadable = _unreadable(view)
    for path in companions(view.layout):
        name = path.relative_to(view.layout.root).as_posix()
        if name.removesuffix(".bak") in found.left_out:
            continue
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for name, content in unreadable.items():
        if content is not None:
            disk.write_atomically(target / name, content)
    _copy_log(view, found, target / "commitlog.new", progress)
    ends = recovered.ends_to_keep(view)
    sizes = recovered.file_sizes(view)
    inventory.save(layout, Inventory(found.log_end, None, ends, file_sizes=sizes))
    disk.move(target / "commitlog.new", layout.commit_log)
    config = recovered.copy_sizes(recovered.place_store(view.config, target), sizes, view.geometry)
    recovered.recover(config)


def _unreadable(view: StoreView) -> dict[str, bytes | None]:
    root = view.layout.root
    tables = [path for path in companions(view.layout) if path.suffix in (".json", ".bak")]
    return unreadable_tables(
        {path.relative_to(root).as_posix(): path.read_bytes() for path in tables}
    )


def check_target(source: Path, target: Path) -> None:
    """Refuse a directory with files, or one inside the store itself. Raises StoreError."""
    if target.resolve().is_relative_to(source.resolve()):
        raise StoreError(f"{target} is inside the store: name a directory outside it")
    check_empty(target)


def _copy_log(
    view: StoreView, found: Repair, directory: Path, progress: Callable[[int], None]
) -> None:
    size_bytes = view.log.file_size_bytes
    bases = range(found.log_start, max(found.log_end, found.log_start + 1), size_bytes)
    for base in bases:
        end = min(base + size_bytes, found.log_end)
        copy = LogFileCopy(directory / file_name(base), size_bytes, is_last=base == bases[-1])
        source = view.log.file_at(base)
        if source is not None:
            stop = min(end, source.end_offset)
            for at in copy_range(source.path, 0, stop - base, copy.write):
                progress(base + at)
        for lost in found.lost:
            start, stop = max(lost.log_offset, base), min(lost.log_offset + lost.size, end)
            if start < stop:
                copy.overwrite(start - base, filling(start, stop, base + size_bytes, lost))
        copy.close()
    disk.sync_directory(directory)


def filling(start: int, end: int, file_end: int, lost: Lost) -> bytes:
    """Return the bytes for [*start*, *end*): fillers, or a blank record up to *file_end*."""
    if end == file_end:
        return BLANK_RECORD.pack(end - start, MAGIC_BLANK).ljust(end - start, b"\0")
    pieces = []
    while start < end:
        size = end - start
        if size > 2 * _FILLER_BYTES_MAX:
            size = _FILLER_BYTES_MAX
        pieces.append(_filler(start, size, lost.store_time_ms))
        start += size
    return b"".join(pieces)


def _filler(offset: int, size_bytes: int, store_time_ms: int) -> bytes:
    topic = FILLER_TOPIC[: max(size_bytes - RECORD_SIZE_BYTES_MIN, 0)]
    head = RecordHead(
        size_bytes=0,
        magic=0,
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=0,
        log_offset=offset,
        sys_flag=SYS_FLAG_TRANSACTION_ROLLBACK,
        born_time_ms=store_time_ms,
        born_host=_HOST,
        store_time_ms=store_time_ms,
        store_host=_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_size_bytes=0,
    )
    body = bytes(size_bytes - RECORD_SIZE_BYTES_MIN - len(topic))
    return encode_message(head, topic, body, b"")
