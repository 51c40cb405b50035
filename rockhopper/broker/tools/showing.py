"""``store show``: the contents of a store, from file names, a few records and the tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.log.log_scan import last_store_time_ms
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC

Value = TypeVar("Value")


class QueueRow(NamedTuple):
    """The messages of one queue, from *first* up to *next*."""

    topic: str
    queue_id: int
    first: int
    next: int
    is_batch: bool


class StoreSummary(NamedTuple):
    """The contents of a store."""

    state: str
    version: str
    log: dict[str, Any]
    files: dict[str, dict[str, int]]
    queues: list[QueueRow]
    groups: list[dict[str, Any]]
    waiting: dict[str, int]

    def json(self) -> dict[str, Any]:
        """Return the contents for programs."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for row in self.queues:
            found = {"queue": row.queue_id, "min": row.first, "max": row.next}
            topics.setdefault(row.topic, []).append(found)
        rest = {name: value for name, value in self._asdict().items() if name != "queues"}
        return {**rest, "topics": topics}


def show(view: StoreView) -> StoreSummary:
    """Read everything but the messages. Raises OSError, StoreError."""
    queues = [QueueRow(*key[:2], *_range(view, *key), key.is_batch) for key in view.queues]
    return StoreSummary(
        state=view.state(),
        version=_version(view),
        log=_log(view),
        files=_files(view),
        queues=queues,
        groups=_groups(view, {(row.topic, row.queue_id): row.next for row in queues}),
        waiting=_waiting(view, queues),
    )


def _range(view: StoreView, topic: str, queue_id: int, is_batch: bool) -> tuple[int, int]:
    return view.queues.open(topic, queue_id, is_batch=is_batch).range_from(view.log.min_offset)


def _version(view: StoreView) -> str:
    if not view.layout.own.is_dir():
        return "written by RocketMQ"
    early = " before 0.2.0" if view.noted is None else ""
    return f"written by Rockhopper{early}"


def _log(view: StoreView) -> dict[str, Any]:
    files = view.log.files
    first = view.record_at(view.log.min_offset)
    newest = next(filter(None, map(last_store_time_ms, reversed(files))), None)
    return {
        "start": view.log.min_offset,
        "end": view.log_end(),
        "firstTime": first.store_time_ms if first is not None else None,
        "lastTime": newest,
        "directories": [str(directory) for directory in view.log_directories],
    }


def _files(view: StoreView) -> dict[str, dict[str, int]]:
    layout = view.layout
    found: dict[str, dict[str, int]] = {}
    parts: dict[str, list[Path]] = {
        "commit log": view.log_directories,
        "consume queues": [layout.consume_queues],
        "batch consume queues": [layout.batch_consume_queues],
        "extensions of queues": [layout.consume_queue_exts],
        "index": [layout.index],
        "tables": [layout.config],
        "timer wheel": [layout.timer_log, layout.timer_wheel],
        "files of Rockhopper": [layout.own],
    }
    for name, places in parts.items():
        count = size_bytes = disk_bytes = 0
        for path in (file for place in places for file in (place, *place.rglob("*"))):
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if path.is_file():
                count += 1
                size_bytes += status.st_size
                disk_bytes += status.st_blocks * 512
        if count:
            found[name] = {"count": count, "bytes": size_bytes, "onDisk": disk_bytes}
    return found


def _groups(view: StoreView, ends: dict[tuple[str, int], int]) -> list[dict[str, Any]]:
    offsets = _readable(lambda: _offsets(view))
    return [
        {
            "group": group,
            "topic": topic,
            "queue": queue_id,
            "offset": offset,
            "lag": max(ends.get((topic, queue_id), 0) - offset, 0),
        }
        for topic, group, queues in sorted(
            offsets.entries() if offsets is not None else (), key=lambda entry: entry[1::-1]
        )
        for queue_id, offset in sorted(queues.items())
    ]


def _offsets(view: StoreView) -> ConsumerOffsetTable:
    table = Tables(view.config, BrokerClock()).offsets
    table.load()
    return table


def _readable(read: Callable[[], Value]) -> Value | None:
    try:
        return read()
    except StoreError:
        return None  # ``store check`` reports the problem.


def _waiting(view: StoreView, queues: list[QueueRow]) -> dict[str, int]:
    """Return the numbers of delayed messages and of stored timer messages."""
    delivered = _readable(lambda: _delay_offsets(view)) or {}
    delayed = sum(
        max(row.next - max(delivered.get(row.queue_id + 1, 0), row.first), 0)
        for row in queues
        if row.topic == SCHEDULE_TOPIC
    )
    timers = sum(row.next - row.first for row in queues if row.topic == TIMER_TOPIC)
    return {"delayed": delayed, "timersStored": timers}


def _delay_offsets(view: StoreView) -> dict[int, int]:
    table = Tables(view.config, BrokerClock()).delays.table
    table.load()
    return dict(table.offsets)
